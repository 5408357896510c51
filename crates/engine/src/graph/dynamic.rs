//! Quantises numbers on a grid that they determine.

use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::bytes::elementwise::{Grid, IntegerRange};
use pkgtool_kernels::bytes::real::extent;
use pkgtool_kernels::{Cpu, Split};

/// Quantises numbers on the grid of unsigned bytes that covers them and zero. Returns the grid. Its
/// scale is 1 if all numbers are zero, as in ONNX Runtime.
pub(crate) fn quantise(numbers: &[f32], to: &mut [u8], split: Split) -> Result<Grid, String> {
    let cpu = Cpu::chosen();
    let grid = covering(extent(cpu, numbers, split));
    if grid.scale.is_normal() {
        grid.round(cpu, IntegerRange::whole(grid.sign), numbers, to, split)?;
    } else {
        // The scale is too small or too large for float32.
        for (to, number) in to.iter_mut().zip(numbers) {
            *to = grid.sign.byte(place(grid, *number));
        }
    }
    Ok(grid)
}

fn covering([least, most]: [f32; 2]) -> Grid {
    #[expect(clippy::float_cmp, reason = "equal only if both are zero")]
    let is_all_zero = least == most;
    let scale = if is_all_zero {
        1.0
    } else {
        (most - least) / 255.0
    };
    let zero = (-least / scale).round_ties_even().clamp(0.0, 255.0);
    #[expect(clippy::cast_possible_truncation, reason = "a byte; NaN becomes 0")]
    let zero_point = zero as i32;
    Grid {
        sign: Sign::Unsigned,
        scale,
        zero_point,
    }
}

/// Quantises a real number like `QuantizeLinear`. Rounding is monotonic, so a bound can be rounded
/// instead of the clamped number.
pub(crate) fn place(grid: Grid, number: f32) -> i32 {
    let (least, most) = grid.sign.range();
    let steps = (number / grid.scale).round_ties_even();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "clamped to 24 bits, and NaN becomes 0"
    )]
    let steps = steps.clamp(-1e7, 1e7) as i32;
    (steps + grid.zero_point).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_zero_on_it() {
        let of = |extent| {
            let grid = covering(extent);
            (grid.scale, grid.zero_point)
        };
        assert_eq!(of([-1.0, 254.0]), (1.0, 1));
        assert_eq!(of([0.0, 510.0]), (2.0, 0));
        assert_eq!(of([-510.0, 0.0]), (2.0, 255));
        assert_eq!(of([0.0, 0.0]), (1.0, 0));
        let tiny = covering([0.0, f32::MIN_POSITIVE]);
        assert_eq!(place(tiny, f32::MIN_POSITIVE), 255);
        assert_eq!(place(covering([0.0; 2]), 0.0), 0);
    }

    #[test]
    fn numbers_determine_their_grid() {
        let mut bytes = [0; 3];
        let grid =
            quantise(&[-1.0, 0.0, 254.0], &mut bytes, Split::ONE).expect("the lengths match");
        assert_eq!((grid.scale, grid.zero_point, bytes), (1.0, 1, [0, 1, 255]));
        let tiny = quantise(&[0.0, 0.0, 1e-44], &mut bytes, Split::ONE).expect("the lengths match");
        assert_eq!((tiny.zero_point, bytes), (0, [0, 0, 255]));
    }
}
