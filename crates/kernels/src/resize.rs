//! Resizing of images `[outer, h, w, inner]`: channels may be first (`outer`) or last (`inner`).

use crate::length::check_length;
use crate::simd::compiled;
use crate::{Cpu, Split};

/// Height and width of an image, and the numbers of images before and of elements within a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSizes {
    /// Number of images.
    pub outer: usize,
    /// Height and width.
    pub size: [usize; 2],
    /// Number of elements of a pixel.
    pub inner: usize,
}

/// Two input positions, and the weight of the second one.
pub type BetweenTwo = (usize, usize, f32);

/// Input positions with their weights.
pub type Weighted = Vec<(usize, f32)>;

impl ImageSizes {
    fn check(&self, input: usize, output: usize, to: [usize; 2]) -> Result<(), String> {
        let (outer, inner) = (self.outer, self.inner);
        let [[height, width], [rows, columns]] = [self.size, to];
        check_length("the input", input, &[outer, height, width, inner])?;
        check_length("the output", output, &[outer, rows, columns, inner])
    }

    /// Fails if a position is outside of the image.
    fn check_places(
        &self,
        axis: usize,
        mut places: impl Iterator<Item = usize>,
    ) -> Result<(), String> {
        let size = self.size[axis];
        match places.find(|place| *place >= size) {
            Some(place) => Err(format!(
                "position {place} is outside of an image of {size} pixels"
            )),
            None => Ok(()),
        }
    }
}

/// Copies the input pixel of each output row and column.
pub fn nearest<T: Copy + Send + Sync>(
    sizes: ImageSizes,
    [rows, columns]: [&[usize]; 2],
    input: &[T],
    output: &mut [T],
    split: Split,
) -> Result<(), String> {
    sizes.check(input.len(), output.len(), [rows.len(), columns.len()])?;
    sizes.check_places(0, rows.iter().copied())?;
    sizes.check_places(1, columns.iter().copied())?;
    let ImageSizes {
        size: [height, width],
        inner,
        ..
    } = sizes;
    let (line, row) = (width * inner, columns.len() * inner);
    split.rows(output, row, row, |first, output| {
        let mut known = None;
        for (at, number) in (first..).take(output.len() / row).enumerate() {
            let from = number / rows.len() * height + rows[number % rows.len()];
            let (before, rest) = output.split_at_mut(at * row);
            let to = &mut rest[..row];
            if known.replace(from) == Some(from) {
                to.copy_from_slice(&before[(at - 1) * row..]);
                continue;
            }
            let line = &input[from * line..][..line];
            if inner == 1 {
                for (to, column) in to.iter_mut().zip(columns) {
                    *to = line[*column];
                }
            } else {
                for (to, column) in to.chunks_exact_mut(inner).zip(columns) {
                    to.copy_from_slice(&line[column * inner..][..inner]);
                }
            }
        }
    });
    Ok(())
}

compiled! {
    fn across(columns: &[BetweenTwo], inner: usize, line: &[f32], to: &mut [f32]) {
        if inner == 1 {
            for (to, (left, right, share)) in to.iter_mut().zip(columns) {
                *to = line[*left] + (line[*right] - line[*left]) * share;
            }
            return;
        }
        for (to, (left, right, share)) in to.chunks_exact_mut(inner).zip(columns) {
            let (left, right) = (&line[left * inner..], &line[right * inner..]);
            for (to, (left, right)) in to.iter_mut().zip(left.iter().zip(right)) {
                *to = left + (right - left) * share;
            }
        }
    }
}

compiled! {
    fn down(share: f32, upper: &[f32], lower: &[f32], to: &mut [f32]) {
        for (to, (upper, lower)) in to.iter_mut().zip(upper.iter().zip(lower)) {
            *to = upper + (lower - upper) * share;
        }
    }
}

/// Interpolates between two columns, then between two rows.
pub fn linear(
    cpu: Cpu,
    sizes: ImageSizes,
    [rows, columns]: [&[BetweenTwo]; 2],
    input: &[f32],
    output: &mut [f32],
    split: Split,
) -> Result<(), String> {
    sizes.check(input.len(), output.len(), [rows.len(), columns.len()])?;
    sizes.check_places(0, rows.iter().flat_map(|(top, bottom, _)| [*top, *bottom]))?;
    sizes.check_places(
        1,
        columns.iter().flat_map(|(left, right, _)| [*left, *right]),
    )?;
    let ImageSizes {
        size: [height, width],
        inner,
        ..
    } = sizes;
    let (line, row) = (width * inner, columns.len() * inner);
    split.rows(output, row, row * 4, |first, output| {
        // Two rows with interpolated columns, and the numbers of their lines.
        let mut upper = (usize::MAX, vec![0.0; row]);
        let mut lower = (usize::MAX, vec![0.0; row]);
        for (number, to) in (first..).zip(output.chunks_exact_mut(row)) {
            let (top, bottom, share) = rows[number % rows.len()];
            let image = number / rows.len() * height;
            if lower.0 == image + top {
                std::mem::swap(&mut upper, &mut lower);
            }
            for (known, from) in [(&mut upper, image + top), (&mut lower, image + bottom)] {
                if known.0 != from {
                    across(
                        cpu,
                        columns,
                        inner,
                        &input[from * line..][..line],
                        &mut known.1,
                    );
                    known.0 = from;
                }
            }
            down(cpu, share, &upper.1, &lower.1, to);
        }
    });
    Ok(())
}

compiled! {
    fn sums(positions: &[Weighted], fill: f32, line: &[f32], to: &mut [f32]) {
        for (to, places) in to.iter_mut().zip(positions) {
            let mut sum = if places.is_empty() { fill } else { 0.0 };
            for (place, weight) in places {
                sum += line[*place] * weight;
            }
            *to = sum;
        }
    }
}

compiled! {
    fn add_weighted(weight: f32, from: &[f32], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to += from * weight;
        }
    }
}

/// Resizes the second of the dimensions `[outer, size, inner]`. Each output position is a sum of
/// weighted input positions, or `fill` if it has none.
pub fn weighted(
    cpu: Cpu,
    [outer, size, inner]: [usize; 3],
    (positions, fill): (&[Weighted], f32),
    input: &[f32],
    output: &mut [f32],
    split: Split,
) -> Result<(), String> {
    let sizes = ImageSizes {
        outer,
        size: [size, 1],
        inner,
    };
    sizes.check(input.len(), output.len(), [positions.len(), 1])?;
    sizes.check_places(0, positions.iter().flatten().map(|(place, _)| *place))?;
    let most = positions.iter().map(Vec::len).max().unwrap_or(0);
    if inner == 1 {
        let row = positions.len();
        split.rows(output, row, row * most, |first, output| {
            for (number, to) in (first..).zip(output.chunks_exact_mut(row)) {
                sums(cpu, positions, fill, &input[number * size..][..size], to);
            }
        });
        return Ok(());
    }
    split.rows(output, inner, inner * most, |first, output| {
        for (number, to) in (first..).zip(output.chunks_exact_mut(inner)) {
            let places = &positions[number % positions.len()];
            let image = number / positions.len() * size;
            to.fill(if places.is_empty() { fill } else { 0.0 });
            for (place, weight) in places {
                add_weighted(cpu, *weight, &input[(image + place) * inner..][..inner], to);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pixels_are_where_they_belong(
            (outer, height, width, inner) in (1..3_usize, 1..6_usize, 1..6_usize, 1..4_usize),
            rows in prop::collection::vec((0..6_usize, 0..6_usize, 0.0..1.0_f32), 1..9),
            columns in prop::collection::vec((0..6_usize, 0..6_usize, 0.0..1.0_f32), 1..9),
            threads in 1..3_usize,
        ) {
            let sizes = ImageSizes { outer, size: [height, width], inner };
            let within = |places: &[BetweenTwo], size: usize| -> Vec<BetweenTwo> {
                places.iter().map(|(a, b, share)| (a % size, b % size, *share)).collect()
            };
            let (rows, columns) = (within(&rows, height), within(&columns, width));
            let input: Vec<f32> = (0..outer * height * width * inner).map(|at| f32::from(u16::try_from(at * 37 % 101).unwrap_or(0))).collect();
            let mut output = vec![f32::NAN; outer * rows.len() * columns.len() * inner];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            let pixel = |image: usize, row: usize, column: usize, at: usize| input[((image * height + row) * width + column) * inner + at];
            let place = |at: usize| (at / inner / columns.len() / rows.len(), at / inner / columns.len() % rows.len(), at / inner % columns.len(), at % inner);
            for cpu in Cpu::all() {
                let done = pool.install(|| linear(cpu, sizes, [&rows, &columns], &input, &mut output, Split::current()));
                prop_assert_eq!(done, Ok(()));
                for (at, found) in output.iter().enumerate() {
                    let (image, row, column, inner) = place(at);
                    let ((top, bottom, down), (left, right, across)) = (rows[row], columns[column]);
                    let between = |row| {
                        let (left, right) = (pixel(image, row, left, inner), pixel(image, row, right, inner));
                        left + (right - left) * across
                    };
                    let (upper, lower) = (between(top), between(bottom));
                    let wanted = upper + (lower - upper) * down;
                    prop_assert_eq!(found.to_bits(), wanted.to_bits());
                }
            }
            let first = |places: &[BetweenTwo]| -> Vec<usize> { places.iter().map(|place| place.0).collect() };
            let (tops, lefts) = (first(&rows), first(&columns));
            let done = pool.install(|| nearest(sizes, [&tops, &lefts], &input, &mut output, Split::current()));
            prop_assert_eq!(done, Ok(()));
            for (at, found) in output.iter().enumerate() {
                let (image, row, column, inner) = place(at);
                let wanted = pixel(image, tops[row], lefts[column], inner);
                prop_assert_eq!(found.to_bits(), wanted.to_bits());
            }
        }
    }

    proptest! {
        #[test]
        fn weighted_positions_are_added_up(
            (outer, size, inner) in (1..3_usize, 1..6_usize, 1..20_usize),
            positions in prop::collection::vec(prop::collection::vec((0..6_usize, -1.0..1.0_f32), 0..5), 1..9),
            threads in 1..3_usize,
        ) {
            let positions: Vec<Weighted> = positions.into_iter().map(|places| {
                places.into_iter().map(|(place, weight)| (place % size, weight)).collect()
            }).collect();
            let input: Vec<f32> = (0..outer * size * inner).map(|at| f32::from(u16::try_from(at * 37 % 101).unwrap_or(0))).collect();
            let mut output = vec![f32::NAN; outer * positions.len() * inner];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            for cpu in Cpu::all() {
                let done = pool.install(|| weighted(cpu, [outer, size, inner], (&positions, 7.0), &input, &mut output, Split::current()));
                prop_assert_eq!(done, Ok(()));
                for (at, found) in output.iter().enumerate() {
                    let (image, place, at) = (at / inner / positions.len(), at / inner % positions.len(), at % inner);
                    let places = &positions[place];
                    let sum: f32 = places.iter().map(|(place, weight)| input[(image * size + place) * inner + at] * weight).sum();
                    let wanted = if places.is_empty() { 7.0 } else { sum };
                    prop_assert!((found - wanted).abs() < 1e-3, "{found} {wanted}");
                }
            }
        }
    }

    #[test]
    fn places_outside_are_refused() {
        let sizes = ImageSizes {
            outer: 1,
            size: [2, 2],
            inner: 1,
        };
        let run = |rows: &[usize], output: &mut [u8]| {
            nearest(sizes, [rows, &[0]], &[0; 4], output, Split::ONE)
        };
        assert_eq!(run(&[1], &mut [0]), Ok(()));
        assert!(run(&[2], &mut [0]).is_err());
        assert!(run(&[1], &mut [0; 2]).is_err());
        let run = |rows: &[BetweenTwo]| {
            linear(
                Cpu::PLAIN,
                sizes,
                [rows, &[(0, 0, 0.0)]],
                &[0.0; 4],
                &mut [0.0],
                Split::ONE,
            )
        };
        assert_eq!(run(&[(0, 1, 0.5)]), Ok(()));
        assert!(run(&[(0, 2, 0.5)]).is_err());
        let run = |place: usize, output: &mut [f32]| {
            let positions = (&[vec![(place, 1.0)]][..], 0.0);
            weighted(
                Cpu::PLAIN,
                [1, 2, 1],
                positions,
                &[0.0; 2],
                output,
                Split::ONE,
            )
        };
        assert_eq!(run(1, &mut [0.0]), Ok(()));
        assert!(run(2, &mut [0.0]).is_err());
        assert!(run(1, &mut [0.0; 2]).is_err());
    }
}
