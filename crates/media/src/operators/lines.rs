//! Lines of text in a map of scores.

use std::cmp::Ordering;

use super::{Data, DataKind, Operator, StepContext, values};
use crate::answer::{LineAnswer, TextLine, TypedAnswer, TypedAnswerKind};
use crate::operators::{Arguments, Parameter, ParameterKind};
use crate::picture::Quad;

/// Minimum width of an area of text, and of one that has grown, in pixels of the map.
const MIN_SIDE: f64 = 3.0;
const MIN_GROWN_SIDE: f64 = 5.0;

/// Minimum overlap of the heights of two areas in one row, relative to the smaller one.
const ROW_OVERLAP: f64 = 0.3;

/// Minimum width of the gap between two columns, relative to the width of all.
const GUTTER: f64 = 0.06;

/// Maximum number of columns within columns.
const MAX_DEPTH: usize = 8;

pub(super) const TABLE: &[Operator] = &[Operator {
    name: "text_map",
    from: &[DataKind::Values],
    to: DataKind::Answer(TypedAnswerKind::Lines),
    parameters: &[
        // The least score of a pixel with text.
        Parameter {
            name: "pixel_threshold",
            kind: ParameterKind::Number(0.0, 1.0),
            default: Some("0.3"),
        },
        // The least mean score of an area.
        Parameter {
            name: "threshold",
            kind: ParameterKind::Number(0.0, 1.0),
            default: Some("0.6"),
        },
        // An area grows by its size over its circumference times this number.
        Parameter {
            name: "grow",
            kind: ParameterKind::Number(0.0, 10.0),
            default: Some("1.5"),
        },
        // Joins areas with a gap of one pixel.
        Parameter {
            name: "dilate",
            kind: ParameterKind::Flag,
            default: Some("false"),
        },
        Parameter {
            name: "most",
            kind: ParameterKind::Whole(1, 1000),
            default: Some("1000"),
        },
    ],
    run: text_map,
}];

/// A map of scores.
struct ScoreMap<'a> {
    width: usize,
    height: usize,
    scores: &'a [f32],
}

/// Finds areas of text: pixels with a score that touch each other, in the smallest rectangle around them.
fn text_map(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [height, width] = array.last::<2>()?;
    let map = ScoreMap {
        width,
        height,
        scores: &array.values,
    };
    let mut found_lines = Vec::new();
    let is_text = map.above(
        arguments.number("pixel_threshold"),
        arguments.flag("dilate"),
    );
    for area in areas(is_text, width, AreaTouch::Corners) {
        let Some(found) = Rectangle::around(&hull(row_ends(&area, width))) else {
            continue;
        };
        let score = map.mean_within(&found.corners());
        if found.least_side() < MIN_SIDE || score < arguments.number("threshold") {
            continue;
        }
        let found = found.grown(arguments.number("grow"));
        if found.least_side() < MIN_GROWN_SIDE {
            continue;
        }
        found_lines.push((found, score));
    }
    let most = arguments.whole("most");
    Ok(line_answer(found_lines, [width, height], most, context))
}

/// Returns the surest lines in reading order. Rectangles are in pixels of a map of this size.
pub(super) fn line_answer(
    found: Vec<(Rectangle, f64)>,
    [width, height]: [usize; 2],
    most: usize,
    context: &StepContext<'_>,
) -> Data {
    let geometry = context.geometry;
    let step = [
        f64::from(geometry.model[0]) / as_number(width.max(1)),
        f64::from(geometry.model[1]) / as_number(height.max(1)),
    ];
    let lines = found.into_iter().map(|(rectangle, score)| {
        let corners = rectangle.corners();
        TextLine {
            quad: Quad(corners.map(|[x, y]| geometry.to_picture([x * step[0], y * step[1]]))),
            score,
            read: None,
        }
    });
    let mut lines: Vec<TextLine> = lines.collect();
    lines.sort_by(|a, b| b.score.total_cmp(&a.score));
    lines.truncate(most);
    Data::Answer(TypedAnswer::Lines(LineAnswer {
        lines: in_reading_order(lines, 0),
        text: None,
        size: geometry.picture,
    }))
}

#[expect(clippy::cast_precision_loss, reason = "sides of a map are small")]
pub(super) fn as_number(count: usize) -> f64 {
    count as f64
}

impl ScoreMap<'_> {
    /// Returns which pixels have a score above the threshold.
    fn above(&self, threshold: f64, dilate: bool) -> Vec<bool> {
        let above: Vec<bool> = self
            .scores
            .iter()
            .map(|score| f64::from(*score) > threshold)
            .collect();
        if !dilate {
            return above;
        }
        let at = |x: usize, y: usize| above[y * self.width + x];
        let pixels = (0..above.len()).map(|pixel| {
            let (x, y) = (pixel % self.width, pixel / self.width);
            let (left, up) = (x.saturating_sub(1), y.saturating_sub(1));
            at(x, y) || at(left, y) || at(x, up) || at(left, up)
        });
        pixels.collect()
    }

    /// Returns the mean score within a convex quadrilateral, whose corners are reduced to pixels.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the map"
    )]
    fn mean_within(&self, corners: &[[f64; 2]; 4]) -> f64 {
        let corners = corners.map(|point| point.map(f64::trunc));
        let clamp = |value: f64, size: usize| value.clamp(0.0, as_number(size.max(1) - 1)) as usize;
        let ys = corners.map(|point| point[1]);
        let top = ys.into_iter().fold(f64::INFINITY, f64::min);
        let bottom = ys.into_iter().fold(0.0, f64::max);
        let (mut sum, mut count) = (0.0, 0_usize);
        for y in clamp(top, self.height)..=clamp(bottom, self.height) {
            let row = as_number(y);
            let (mut left, mut right) = (f64::INFINITY, f64::NEG_INFINITY);
            for (place, from) in corners.iter().enumerate() {
                let to = corners[(place + 1) % 4];
                let (low, high) = (from[1].min(to[1]), from[1].max(to[1]));
                if row < low || row > high {
                    continue;
                }
                let crossings = if high > low {
                    let x = from[0] + (row - from[1]) / (to[1] - from[1]) * (to[0] - from[0]);
                    [x, x]
                } else {
                    [from[0], to[0]]
                };
                for x in crossings {
                    (left, right) = (left.min(x), right.max(x));
                }
            }
            if left > right {
                continue;
            }
            let (left, right) = (
                clamp(left.round(), self.width),
                clamp(right.round(), self.width),
            );
            let scores = self
                .scores
                .get(y * self.width + left..=y * self.width + right);
            for score in scores.unwrap_or_default() {
                sum += f64::from(*score);
                count += 1;
            }
        }
        sum / as_number(count.max(1))
    }
}

/// How pixels of one area touch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum AreaTouch {
    /// By an edge.
    Edges,
    /// By an edge or a corner.
    Corners,
}

/// Returns the pixels of each area, by their places in the map. The first one is in the uppermost row.
pub(super) fn areas(mut is_text: Vec<bool>, width: usize, touch: AreaTouch) -> Vec<Vec<usize>> {
    let mut areas = Vec::new();
    let height = is_text.len() / width.max(1);
    for start in 0..is_text.len() {
        if !std::mem::take(&mut is_text[start]) {
            continue;
        }
        let mut area = vec![start];
        let mut seen = 0;
        while let Some(&pixel) = area.get(seen) {
            seen += 1;
            let (x, y) = (pixel % width, pixel / width);
            for near_y in y.saturating_sub(1)..=(y + 1).min(height - 1) {
                for near_x in x.saturating_sub(1)..=(x + 1).min(width - 1) {
                    let touches = touch == AreaTouch::Corners || near_x == x || near_y == y;
                    let near = near_y * width + near_x;
                    if touches && std::mem::take(&mut is_text[near]) {
                        area.push(near);
                    }
                }
            }
        }
        areas.push(area);
    }
    areas
}

/// Returns the first and last pixel of each row of an area.
pub(super) fn row_ends(area: &[usize], width: usize) -> Vec<[f64; 2]> {
    let top = area.first().map_or(0, |start| start / width);
    let mut ends: Vec<Option<(usize, usize)>> = Vec::new();
    for pixel in area {
        let (x, y) = (pixel % width, pixel / width);
        if ends.len() <= y - top {
            ends.resize(y - top + 1, None);
        }
        let row = &mut ends[y - top];
        *row = Some(row.map_or((x, x), |(first, last)| (first.min(x), last.max(x))));
    }
    let rows = ends.into_iter().enumerate();
    let points = rows.filter_map(|(row, ends)| {
        let (first, last) = ends?;
        let y = as_number(top + row);
        Some([[as_number(first), y], [as_number(last), y]])
    });
    points.flatten().collect()
}

/// Returns the convex hull of points, in order around it.
pub(super) fn hull(mut points: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    let order = |a: &[f64; 2], b: &[f64; 2]| match a[0].total_cmp(&b[0]) {
        Ordering::Equal => a[1].total_cmp(&b[1]),
        other => other,
    };
    points.sort_by(order);
    points.dedup();
    if points.len() < 3 {
        return points;
    }
    let turns_right = |a: &[f64; 2], b: &[f64; 2], c: &[f64; 2]| {
        (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]) <= 0.0
    };
    let half = |points: &mut dyn Iterator<Item = &[f64; 2]>| {
        let mut chain: Vec<[f64; 2]> = Vec::new();
        for point in points {
            while let [.., before, last] = &chain[..]
                && turns_right(before, last, point)
            {
                chain.pop();
            }
            chain.push(*point);
        }
        chain.pop();
        chain
    };
    let mut hull = half(&mut points.iter());
    hull.extend(half(&mut points.iter().rev()));
    hull
}

/// A rectangle in any direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rectangle {
    /// A unit vector along its first side.
    along: [f64; 2],
    /// Least and most position along this vector, and across it.
    ranges: [[f64; 2]; 2],
}

impl Rectangle {
    /// Returns the smallest rectangle around a convex hull; one of its sides is a side of the hull.
    pub(super) fn around(hull: &[[f64; 2]]) -> Option<Self> {
        let mut best: Option<(f64, Self)> = None;
        for (place, from) in hull.iter().enumerate() {
            let to = hull[(place + 1) % hull.len()];
            let (x, y) = (to[0] - from[0], to[1] - from[1]);
            let length = x.hypot(y);
            if length == 0.0 {
                continue;
            }
            let along = [x / length, y / length];
            let range = |axis: [f64; 2]| {
                let positions = hull
                    .iter()
                    .map(|point| point[0] * axis[0] + point[1] * axis[1]);
                positions.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], at| {
                    [least.min(at), most.max(at)]
                })
            };
            let found = Self {
                along,
                ranges: [range(along), range([-along[1], along[0]])],
            };
            let [width, height] = found.sides();
            if best.as_ref().is_none_or(|(area, _)| width * height < *area) {
                best = Some((width * height, found));
            }
        }
        best.map(|(_, found)| found)
    }

    fn sides(&self) -> [f64; 2] {
        self.ranges.map(|[least, most]| most - least)
    }

    /// Returns the longer side and the shorter one.
    pub(super) fn long_and_short(&self) -> [f64; 2] {
        let [width, height] = self.sides();
        [width.max(height), width.min(height)]
    }

    /// Returns the middle.
    pub(super) fn centre(&self) -> [f64; 2] {
        let [a, _, b, _] = self.corners();
        [f64::midpoint(a[0], b[0]), f64::midpoint(a[1], b[1])]
    }

    /// Returns a unit vector along the longer side; along the more level one if the longer is less than `ratio` times
    /// the shorter.
    pub(super) fn direction(&self, ratio: f64) -> [f64; 2] {
        let [width, height] = self.sides();
        let [x, y] = self.along;
        let is_first = if width.max(height) < ratio * width.min(height) {
            x.abs() >= y.abs()
        } else {
            width >= height
        };
        if is_first { [x, y] } else { [-y, x] }
    }

    /// Returns the least distance between corners of both.
    pub(super) fn gap(&self, other: &Self) -> f64 {
        let others = other.corners();
        let pairs = self
            .corners()
            .into_iter()
            .flat_map(|a| others.map(|b| [a, b]));
        let distances = pairs.map(|[a, b]| (a[0] - b[0]).hypot(a[1] - b[1]));
        distances.fold(f64::INFINITY, f64::min)
    }

    fn least_side(&self) -> f64 {
        let [width, height] = self.sides();
        width.min(height)
    }

    /// Moves each side outwards, by `factor` times the area over the circumference.
    fn grown(mut self, factor: f64) -> Self {
        let [width, height] = self.sides();
        let distance = width * height * factor / (2.0 * (width + height)).max(f64::MIN_POSITIVE);
        for [least, most] in &mut self.ranges {
            (*least, *most) = (*least - distance, *most + distance);
        }
        self
    }

    /// Returns the upper left, upper right, lower right and lower left corner.
    pub(super) fn corners(&self) -> [[f64; 2]; 4] {
        let [[left, right], [top, bottom]] = self.ranges;
        let [cosine, sine] = self.along;
        let point = |along: f64, across: f64| {
            [
                along * cosine - across * sine,
                along * sine + across * cosine,
            ]
        };
        let mut points = [
            point(left, top),
            point(right, top),
            point(right, bottom),
            point(left, bottom),
        ];
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let [left, other_left, right, other_right] = points;
        let by_height = |a: [f64; 2], b: [f64; 2]| if b[1] > a[1] { (a, b) } else { (b, a) };
        let ((upper_left, lower_left), (upper_right, lower_right)) =
            (by_height(left, other_left), by_height(right, other_right));
        [upper_left, upper_right, lower_right, lower_left]
    }
}

/// Sorts lines as they are read: by columns, rows, and from left to right.
fn in_reading_order(mut lines: Vec<TextLine>, depth: usize) -> Vec<TextLine> {
    let bounds = |line: &TextLine| line.quad.bounds();
    lines.sort_by(|a, b| bounds(a)[0].total_cmp(&bounds(b)[0]));
    let left = lines.first().map_or(0.0, |line| bounds(line)[0]);
    let right = lines
        .iter()
        .map(|line| bounds(line)[2])
        .fold(left, f64::max);
    let mut end = f64::INFINITY;
    for place in 0..lines.len() {
        let [start, _, stop, _] = bounds(&lines[place]);
        if start - end >= GUTTER * (right - left) && depth < MAX_DEPTH {
            let others = lines.split_off(place);
            let mut sorted = in_reading_order(lines, depth + 1);
            sorted.extend(in_reading_order(others, depth + 1));
            return sorted;
        }
        end = if end.is_finite() { end.max(stop) } else { stop };
    }
    lines.sort_by(|a, b| bounds(a)[1].total_cmp(&bounds(b)[1]));
    let mut rows: Vec<Vec<TextLine>> = Vec::new();
    for line in lines {
        let [_, top, _, bottom] = bounds(&line);
        let is_beside = |row: &Vec<TextLine>| {
            let [_, other_top, _, other_bottom] = bounds(&row[0]);
            let overlap = bottom.min(other_bottom) - top.max(other_top);
            overlap >= ROW_OVERLAP * (bottom - top).min(other_bottom - other_top)
        };
        match rows.last_mut().filter(|row| is_beside(row)) {
            Some(row) => row.push(line),
            None => rows.push(vec![line]),
        }
    }
    for row in &mut rows {
        row.sort_by(|a, b| bounds(a)[0].total_cmp(&bounds(b)[0]));
    }
    rows.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(left: f64, top: f64, width: f64) -> TextLine {
        let (right, bottom) = (left + width, top + 10.0);
        TextLine {
            quad: Quad([[left, top], [right, top], [right, bottom], [left, bottom]]),
            score: 1.0,
            read: None,
        }
    }

    #[test]
    fn rows_go_from_left_to_right_and_columns_one_after_the_other() {
        let starts = |lines: Vec<TextLine>| -> Vec<[f64; 2]> {
            let lines = in_reading_order(lines, 0);
            lines.iter().map(|line| line.quad.0[0]).collect()
        };
        let row = vec![
            line(60.0, 3.0, 30.0),
            line(0.0, 0.0, 58.0),
            line(0.0, 20.0, 90.0),
        ];
        assert_eq!(starts(row), [[0.0, 0.0], [60.0, 3.0], [0.0, 20.0]]);
        let columns = vec![
            line(60.0, 0.0, 40.0),
            line(0.0, 0.0, 40.0),
            line(60.0, 20.0, 40.0),
            line(0.0, 20.0, 40.0),
        ];
        assert_eq!(
            starts(columns),
            [[0.0, 0.0], [0.0, 20.0], [60.0, 0.0], [60.0, 20.0]]
        );
    }

    #[test]
    fn a_turned_rectangle_is_found() {
        // A rectangle of 40 by 10, turned by 30 degrees.
        let (sine, cosine) = 30.0_f64.to_radians().sin_cos();
        let corners = [
            [0.0, 0.0],
            [40.0, 0.0],
            [40.0, 10.0],
            [0.0, 10.0],
            [20.0, 5.0],
        ];
        let points = corners.map(|[x, y]| [x * cosine - y * sine, x * sine + y * cosine]);
        let found = Rectangle::around(&hull(points.to_vec())).expect("a rectangle");
        assert!((found.least_side() - 10.0).abs() < 1e-9);
        let [upper_left, _, lower_right, _] = found.corners();
        assert!(
            (upper_left[0] - points[0][0]).abs() < 1e-9,
            "{upper_left:?}"
        );
        assert!(
            (lower_right[1] - points[2][1]).abs() < 1e-9,
            "{lower_right:?}"
        );
        let grown = found.grown(1.0);
        assert!(
            (grown.least_side() - 18.0).abs() < 1e-9,
            "400 / 100 on each side"
        );
    }

    #[test]
    fn areas_that_touch_at_a_corner_are_one() {
        let map = ["#..#", ".#.#", "....", "...#"];
        let pixels = map.iter().flat_map(|row| row.chars().map(|c| c == '#'));
        let found = areas(pixels.collect(), 4, AreaTouch::Corners);
        let sizes: Vec<usize> = found.iter().map(|area| row_ends(area, 4).len()).collect();
        assert_eq!(sizes, [4, 4, 2]);
        assert!(areas(Vec::new(), 0, AreaTouch::Corners).is_empty());
        assert!(Rectangle::around(&hull(vec![[1.0, 1.0]])).is_none());
    }
}
