//! Pixels of objects as runs, as COCO has them: column by column, in turn without and with the object.

use pkgtool_media::answer::ObjectMask;
use serde::{Deserialize, Serialize};

/// Points of a polygon per pixel, as COCO's own tool has them.
const SCALE: f64 = 5.0;

/// Bits of a number in one letter of a text, and the first letter.
const BITS: u32 = 5;
const FIRST: u8 = b'0';

/// Maximum number of pixels of a picture with masks.
const MAX_PIXELS: u64 = 1 << 28;

/// The pixels of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PixelRuns {
    /// Places at which the object begins or ends, ascending.
    changes: Vec<u32>,
}

impl PixelRuns {
    /// Returns the runs of a mask in a picture of this size.
    pub fn of_mask(mask: &ObjectMask, [width, height]: [u32; 2]) -> Self {
        let [left, top] = mask.origin;
        let mask = &mask.mask;
        let mut changes = Vec::new();
        for x in 0..mask.width().min(width.saturating_sub(left)) {
            for y in 0..mask.height().min(height.saturating_sub(top)) {
                if mask.get_pixel(x, y).0[0] > 0 {
                    let place = (left + x) * height + top + y;
                    add_run(&mut changes, place, place + 1);
                }
            }
        }
        Self { changes }
    }

    /// Returns the runs of their lengths; the first is without the object.
    pub(crate) fn of_counts(counts: &[u32], size: [u32; 2]) -> Result<Self, String> {
        let all = pixels(size)?;
        let (mut changes, mut place) = (Vec::new(), 0_u32);
        for (number, count) in counts.iter().enumerate() {
            let end = place.checked_add(*count).filter(|end| *end <= all);
            let end = end.ok_or_else(|| format!("the runs of a mask exceed {all} pixels"))?;
            if number % 2 == 1 {
                add_run(&mut changes, place, end);
            }
            place = end;
        }
        Ok(Self { changes })
    }

    /// Returns the runs of a text as COCO writes it.
    pub(crate) fn of_text(text: &str, size: [u32; 2]) -> Result<Self, String> {
        let mut counts: Vec<i64> = Vec::new();
        let (mut number, mut shift) = (0_i64, 0);
        for letter in text.bytes() {
            let bits = letter.checked_sub(FIRST).filter(|bits| *bits < 64);
            let bits = bits.filter(|_| shift < 60);
            let bits = bits.ok_or_else(|| "the runs of a mask are not valid".to_owned())?;
            number |= i64::from(bits & 0x1f) << shift;
            shift += BITS;
            if bits & 0x20 != 0 {
                continue;
            }
            if bits & 0x10 != 0 {
                number |= -1 << shift;
            }
            let before = match counts.len() {
                0..=2 => 0,
                length => counts[length - 2],
            };
            counts.push(number.wrapping_add(before));
            (number, shift) = (0, 0);
        }
        let counts = counts.into_iter().map(u32::try_from);
        let counts: Result<Vec<u32>, _> = counts.collect();
        let counts = counts.map_err(|_| "the runs of a mask have a negative length".to_owned())?;
        Self::of_counts(&counts, size)
    }

    /// Returns the pixels inside at least one polygon; each is a list of x and y in turn.
    pub(crate) fn of_polygons(polygons: &[Vec<f64>], size: [u32; 2]) -> Result<Self, String> {
        pixels(size)?;
        let mut all = Self {
            changes: Vec::new(),
        };
        for polygon in polygons {
            if polygon.len() < 6 || polygon.len() % 2 != 0 {
                let count = polygon.len();
                return Err(format!(
                    "a polygon has {count} numbers: expected x and y of at least 3 points"
                ));
            }
            all = all.union(&Self::of_polygon(polygon, size)?);
        }
        Ok(all)
    }

    /// Draws the boundary on a grid that is finer than the pixels, and changes sides where it crosses the middle of a
    /// column.
    fn of_polygon(polygon: &[f64], [width, height]: [u32; 2]) -> Result<Self, String> {
        let boundary = boundary(polygon, [width, height])?;
        let mut changes: Vec<u32> = Vec::new();
        let (columns, rows) = (f64::from(width), f64::from(height));
        for pair in boundary.windows(2) {
            let ([before, above], [x, y]) = ((pair[0]), (pair[1]));
            if x == before {
                continue;
            }
            let fine = if x < before { x } else { x - 1 };
            let column = (f64::from(fine) + 0.5) / SCALE - 0.5;
            if column.fract() != 0.0 || column < 0.0 || column > columns - 1.0 {
                continue;
            }
            let row = (f64::from(y.min(above)) + 0.5) / SCALE - 0.5;
            let row = row.clamp(0.0, rows).ceil();
            changes.push(whole(column) * height + whole(row));
        }
        changes.sort_unstable();
        // Two changes at one place cancel each other.
        let mut kept: Vec<u32> = Vec::with_capacity(changes.len());
        for change in changes {
            if kept.last() == Some(&change) {
                kept.pop();
            } else {
                kept.push(change);
            }
        }
        if kept.len() % 2 == 1 {
            kept.push(width * height);
        }
        Ok(Self { changes: kept })
    }

    /// Returns the pixels of both objects.
    fn union(&self, other: &Self) -> Self {
        let mut runs: Vec<[u32; 2]> = self.runs().chain(other.runs()).collect();
        runs.sort_unstable();
        let mut changes: Vec<u32> = Vec::new();
        for [start, end] in runs {
            match changes.last_mut() {
                Some(last) if start <= *last => *last = end.max(*last),
                _ => changes.extend([start, end]),
            }
        }
        Self { changes }
    }

    fn runs(&self) -> impl Iterator<Item = [u32; 2]> {
        self.changes.chunks_exact(2).map(|run| [run[0], run[1]])
    }

    /// Returns the number of pixels.
    pub fn area(&self) -> u64 {
        self.runs().map(|[start, end]| u64::from(end - start)).sum()
    }

    /// Returns the number of pixels that both objects have.
    pub(crate) fn overlap(&self, other: &Self) -> u64 {
        let (mut mine, mut its) = (self.runs().peekable(), other.runs().peekable());
        let mut overlap = 0;
        while let (Some(&[start, end]), Some(&[from, to])) = (mine.peek(), its.peek()) {
            overlap += u64::from(end.min(to).saturating_sub(start.max(from)));
            if end <= to {
                mine.next();
            } else {
                its.next();
            }
        }
        overlap
    }
}

/// Adds a run behind the others.
fn add_run(changes: &mut Vec<u32>, start: u32, end: u32) {
    match changes.last_mut() {
        _ if start == end => {}
        Some(last) if *last == start => *last = end,
        _ => changes.extend([start, end]),
    }
}

fn pixels([width, height]: [u32; 2]) -> Result<u32, String> {
    let pixels = u64::from(width) * u64::from(height);
    let fits = u32::try_from(pixels).ok();
    fits.filter(|_| pixels <= MAX_PIXELS)
        .ok_or_else(|| format!("a picture of {width} x {height} pixels is too large for masks"))
}

/// Returns the points of a polygon's boundary on the fine grid, without gaps.
fn boundary(polygon: &[f64], [width, height]: [u32; 2]) -> Result<Vec<[i32; 2]>, String> {
    // Corners far outside would make a boundary without end.
    let most = f64::from(width.max(height)) * 4.0 + 16.0;
    let is_near = |value: &f64| value.is_finite() && value.abs() <= most;
    if !polygon.iter().all(is_near) {
        return Err("a polygon has a corner far outside the picture".to_owned());
    }
    let fine = |value: f64| truncated(SCALE * value + 0.5);
    let corners = polygon.chunks_exact(2);
    let corners: Vec<[i32; 2]> = corners.map(|xy| [fine(xy[0]), fine(xy[1])]).collect();
    let ends = corners.iter().cycle().skip(1);
    let mut points = Vec::new();
    for (from, to) in corners.iter().zip(ends) {
        let steps = [0, 1].map(|axis| (to[axis] - from[axis]).abs());
        // The longer axis takes whole steps; a step always goes in the positive direction.
        let long = usize::from(steps[0] < steps[1]);
        let is_flipped = from[long] > to[long];
        let (start, end) = if is_flipped { (to, from) } else { (from, to) };
        let slope = if steps[long] == 0 {
            0.0
        } else {
            f64::from(end[1 - long] - start[1 - long]) / f64::from(steps[long])
        };
        for step in 0..=steps[long] {
            let step = if is_flipped { steps[long] - step } else { step };
            let across = f64::from(start[1 - long]) + slope * f64::from(step) + 0.5;
            let mut point = [0; 2];
            point[long] = start[long] + step;
            point[1 - long] = truncated(across);
            points.push(point);
        }
    }
    Ok(points)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the caller has checked the range"
)]
fn truncated(value: f64) -> i32 {
    value as i32
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a column or row of a picture"
)]
fn whole(value: f64) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_counts_are_equal() {
        let of_text = PixelRuns::of_text("51316", [5, 4]).expect("valid");
        let of_counts = PixelRuns::of_counts(&[5, 1, 3, 2, 9], [5, 4]).expect("valid");
        assert_eq!(of_text, of_counts);
        assert_eq!((of_text.area(), of_text.overlap(&of_counts)), (3, 3));
        for text in ["\u{7f}", "06", "oooooooooooooooooooooooooooo", "05:"] {
            let result = PixelRuns::of_text(text, [1, 2]);
            assert!(result.is_err(), "{text}: {result:?}");
        }
    }

    #[test]
    fn unions_join_runs() {
        let runs = |counts: &[u32]| PixelRuns::of_counts(counts, [10, 10]).expect("valid");
        let both = runs(&[0, 5, 10, 5]).union(&runs(&[3, 4, 20, 1]));
        assert_eq!(both.changes, [0, 7, 15, 20, 27, 28]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[0-o]{0,40}", width in 0..50_u32, height in 0..50_u32) {
            let _ = PixelRuns::of_text(&text, [width, height]);
        }

        #[test]
        fn no_polygon_panics(points in proptest::collection::vec(-200.0..200.0_f64, 6..24)) {
            let even = points.len() / 2 * 2;
            let runs = PixelRuns::of_polygons(&[points[..even].to_vec()], [40, 30]).ok();
            proptest::prop_assert!(runs.is_none_or(|runs| runs.area() <= 1200));
        }
    }
}
