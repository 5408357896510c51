//! Elementwise byte arithmetic against plain loops.

use proptest::prelude::*;

use super::{bytes, number, numbers, on_threads, signs};
use crate::Cpu;
use crate::bytes::Sign;
use crate::bytes::elementwise::{AffineChannels, FixedSum, Grid, IntegerRange, PairGrids, clamp};
use crate::bytes::real::{RealOperation, extent};
use crate::bytes::table::ByteTable;

/// Grids, each with a range of its integers.
pub(super) fn grids() -> impl Strategy<Value = (Grid, IntegerRange)> {
    let grids = signs().prop_flat_map(|sign| {
        let numbers = (numbers(sign), numbers(sign), numbers(sign));
        (Just(sign), 0.004_f32..0.9, numbers)
    });
    grids.prop_map(|(sign, scale, (zero_point, a, b))| {
        let range = IntegerRange {
            least: a.min(b),
            most: a.max(b),
        };
        let grid = Grid {
            sign,
            scale,
            zero_point,
        };
        (grid, range)
    })
}

/// The integer of a byte, minus the zero point.
#[expect(clippy::cast_possible_truncation, reason = "a number of nine bits")]
pub(super) fn steps(grid: Grid, byte: u8) -> i32 {
    number(grid.sign, byte) as i32 - grid.zero_point
}

/// The byte for a number of steps.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the rule"
)]
pub(super) fn byte((grid, range): (Grid, IntegerRange), steps: f32, moved: bool) -> u8 {
    let zero = grid.zero_point;
    let bounds = [range.least, range.most].map(|number| (number - zero) as f32);
    if moved {
        let zero = zero as f32;
        let held = (steps + zero).max(bounds[0] + zero).min(bounds[1] + zero);
        return held.round_ties_even() as i32 as u8;
    }
    (steps.max(bounds[0]).min(bounds[1]).round_ties_even() as i32 + zero) as u8
}

#[test]
fn sums_are_rounded_half_up() {
    let grid = |scale| Grid {
        sign: Sign::Signed,
        scale,
        zero_point: 0,
    };
    let pair = PairGrids {
        inputs: [grid(0.5), grid(0.5)],
        output: grid(1.0),
        range: IntegerRange {
            least: -128,
            most: 127,
        },
    };
    let sum = pair.fixed_sum(false).expect("ordinary factors");
    let mut output = [0; 4];
    let input: [&[u8]; 2] = [&[1, 255, 3, 127], &[0, 0, 2, 127]];
    let added = pair.add(Cpu::PLAIN, sum, input, &mut output, crate::Split::ONE);
    assert_eq!((added, output), (Ok(()), [1, 0, 3, 127]));
    assert!(FixedSum::new([300.0, 1.0]).is_none());
    assert!(FixedSum::new([1.0, f32::NAN]).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn pairs_are_exact(a in grids(), b in grids(), to in grids(), count in 0_usize..300, seed: u64) {
        let input = [bytes(seed, count), bytes(seed.wrapping_add(1), count)];
        let pair = PairGrids { inputs: [a.0, b.0], output: to.0, range: to.1 };
        let each: Vec<[i32; 2]> = input[0].iter().zip(&input[1])
            .map(|(left, right)| [steps(a.0, *left), steps(b.0, *right)])
            .collect();
        let factor = a.0.scale * b.0.scale / to.0.scale;
        #[expect(clippy::cast_precision_loss, reason = "the rule")]
        let product = |[a, b]: &[i32; 2]| byte(to, (a * b) as f32 * factor, false);
        let products: Vec<u8> = each.iter().map(product).collect();
        for cpu in Cpu::all() {
            on_threads(|split| {
                let mut output = vec![0; count];
                let input = [input[0].as_slice(), input[1].as_slice()];
                pair.multiply(cpu, input, &mut output, split).expect("a product");
                assert!(output == products, "{:?} differs", cpu.level());
                for subtract in [false, true] {
                    let Some(sum) = pair.fixed_sum(subtract) else { continue };
                    pair.add(cpu, sum, input, &mut output, split).expect("a sum");
                    let right = if subtract { -b.0.scale } else { b.0.scale };
                    for (output, [left_steps, right_steps]) in output.iter().zip(&each) {
                        let exact = f64::from(a.0.scale) * f64::from(*left_steps)
                            + f64::from(right) * f64::from(*right_steps);
                        let exact = exact / f64::from(to.0.scale) + f64::from(to.0.zero_point);
                        let exact = exact.max(to.1.least.into()).min(to.1.most.into());
                        let found = f64::from(i32::try_from(number(to.0.sign, *output)).expect("a byte"));
                        assert!((exact - found).abs() < 0.51, "{exact} became {found}");
                    }
                    let mut plain = vec![0; count];
                    pair.add(Cpu::PLAIN, sum, input, &mut plain, split).expect("a sum");
                    assert!(output == plain, "{:?} differs", cpu.level());
                }
            });
        }
    }

    #[test]
    fn real_arithmetic_is_that_of_float32(
        a in grids(), b in grids(), to in grids(), count in 0_usize..300, seed: u64,
    ) {
        let input = [bytes(seed, count), bytes(seed.wrapping_add(1), count)];
        let pair = PairGrids { inputs: [a.0, b.0], output: to.0, range: to.1 };
        #[expect(clippy::cast_precision_loss, reason = "numbers of nine bits")]
        let real = |grid: Grid, bytes: &[u8]| -> Vec<f32> {
            bytes.iter().map(|byte| steps(grid, *byte) as f32 * grid.scale).collect()
        };
        let numbers = [real(a.0, &input[0]), real(b.0, &input[1])];
        let rounded = |operation| -> Vec<u8> {
            let each = numbers[0].iter().zip(&numbers[1]);
            let each = each.map(|(a, b)| match operation {
                RealOperation::Add => a + b,
                RealOperation::Subtract => a - b,
                RealOperation::Multiply => a * b,
            });
            each.map(|number| byte(to, number / to.0.scale, false)).collect()
        };
        let again: Vec<u8> = numbers[0].iter().map(|x| byte(to, x / to.0.scale, false)).collect();
        for cpu in Cpu::all() {
            on_threads(|split| {
                let mut output = vec![0; count];
                let bytes = [input[0].as_slice(), input[1].as_slice()];
                for operation in [RealOperation::Add, RealOperation::Subtract, RealOperation::Multiply] {
                    pair.compute(cpu, operation, bytes, &mut output, split).expect("bytes");
                    assert!(output == rounded(operation), "{:?} differs", cpu.level());
                    assert!(pair.compute(cpu, operation, [bytes[0], &[0; 400]], &mut output, split).is_err());
                }
                a.0.round_again(cpu, to, bytes[0], &mut output, split).expect("bytes");
                assert!(output == again, "{:?} differs", cpu.level());
                assert!(a.0.round_again(cpu, to, &[0; 400], &mut output, split).is_err());
                output.fill(0);
                to.0.round(cpu, to.1, &numbers[0], &mut output, split).expect("bytes");
                assert!(output == again, "{:?} differs", cpu.level());
                assert!(to.0.round(cpu, to.1, &[0.0; 400], &mut output, split).is_err());
            });
        }
    }

    #[test]
    fn an_extent_has_zero_in_it(numbers in prop::collection::vec(-1e30_f32..1e30, 0..200), repeats in 1_usize..900) {
        let mut numbers = numbers.repeat(repeats);
        let least = numbers.iter().fold(0.0_f32, |least, number| least.min(*number));
        let most = numbers.iter().fold(0.0_f32, |most, number| most.max(*number));
        if let Some(number) = numbers.iter_mut().find(|number| least < **number && **number < most) {
            *number = f32::NAN;
        }
        for cpu in Cpu::all() {
            on_threads(|split| {
                let found = extent(cpu, &numbers, split).map(f32::to_bits);
                assert_eq!(found, [least, most].map(f32::to_bits), "{:?}", cpu.level());
            });
        }
    }

    #[test]
    fn grids_are_exact(from in grids(), to in grids(), count in 0_usize..300, seed: u64) {
        let input = bytes(seed, count);
        #[expect(clippy::cast_precision_loss, reason = "numbers of nine bits")]
        let floats: Vec<f32> =
            input.iter().map(|byte| steps(from.0, *byte) as f32 * from.0.scale).collect();
        let inverse = to.0.scale.recip();
        let moved: Vec<u8> = floats.iter().map(|x| byte(to, x * inverse, false)).collect();
        let held = input.iter().map(|byte| {
            let held = number(from.0.sign, *byte).max(from.1.least.into()).min(from.1.most.into());
            from.0.sign.byte(i32::try_from(held).expect("a byte"))
        });
        let held: Vec<u8> = held.collect();
        for cpu in Cpu::all() {
            on_threads(|split| {
                let mut read = vec![0.0; count];
                from.0.dequantize(cpu, &input, &mut read, split).expect("numbers");
                assert!(read == floats, "{:?} differs", cpu.level());
                let mut output = vec![0; count];
                to.0.quantize(cpu, to.1, &floats, &mut output, split).expect("bytes");
                assert!(output == moved, "{:?} differs", cpu.level());
                output.fill(0);
                from.0.requantize(cpu, to, &input, &mut output, split).expect("bytes");
                assert!(output == moved, "{:?} differs", cpu.level());
                clamp(cpu, (from.0.sign, from.1), &input, &mut output, split).expect("bytes");
                assert!(output == held, "{:?} differs", cpu.level());
                assert!(clamp(cpu, (from.0.sign, from.1), &[0; 400], &mut output, split).is_err());
            });
        }
    }

    #[test]
    fn tables_are_exact(
        count in 0_usize..300, seed: u64,
    ) {
        let (input, results) = (bytes(seed, count), bytes(!seed, 256));
        let expected: Vec<u8> = input.iter().map(|from| results[usize::from(*from)]).collect();
        let table = ByteTable::new(&results).expect("a table");
        for cpu in Cpu::all() {
            on_threads(|split| {
                let mut output = vec![7; count];
                table.look_up(cpu, &input, &mut output, split).expect("bytes");
                assert!(output == expected, "{:?} differs", cpu.level());
                assert!(table.look_up(cpu, &[0; 400], &mut output, split).is_err());
            });
        }
        prop_assert!(ByteTable::new(&results[1..]).is_err());
    }

    #[test]
    fn slopes_are_exact(
        from in grids(), to in grids(), rows in 0_usize..9, slopes in prop::collection::vec(-2.0_f32..2.0, 1..40), seed: u64,
    ) {
        let input = bytes(seed, rows * slopes.len());
        let inverse = to.0.scale.recip();
        let expected = input.iter().zip(slopes.iter().cycle()).map(|(from_byte, slope)| {
            #[expect(clippy::cast_precision_loss, reason = "numbers of nine bits")]
            let number = steps(from.0, *from_byte) as f32 * from.0.scale;
            byte(to, if number < 0.0 { number * slope } else { number } * inverse, false)
        });
        let expected: Vec<u8> = expected.collect();
        for cpu in Cpu::all() {
            on_threads(|split| {
                let mut output = vec![7; input.len()];
                from.0.sloped(cpu, to, &slopes, &input, &mut output, split).expect("bytes");
                assert!(output == expected, "{:?} differs", cpu.level());
                assert!(from.0.sloped(cpu, to, &slopes, &[0; 400], &mut output, split).is_err());
                assert!(input.is_empty() || from.0.sloped(cpu, to, &[], &input, &mut output, split).is_err());
            });
        }
    }

    #[test]
    fn scales_of_channels_are_exact(
        from in grids(), to in grids(), rows in 0_usize..9, factors in prop::collection::vec(-2.0_f32..2.0, 1..40), seed: u64,
    ) {
        let input = bytes(seed, rows * factors.len());
        let inverse = to.0.scale.recip();
        let shifts: Vec<f32> = factors.iter().map(|factor| factor - 1.0).collect();
        let channels = AffineChannels { factors: factors.clone(), shifts, range: [0.0, 1.5] };
        let expected = input.iter().zip(channels.factors.iter().zip(&channels.shifts).cycle()).map(|(from_byte, (factor, shift))| {
            #[expect(clippy::cast_precision_loss, reason = "numbers of nine bits")]
            let number = steps(from.0, *from_byte) as f32 * from.0.scale;
            byte(to, number.mul_add(*factor, *shift).clamp(0.0, 1.5) * inverse, false)
        });
        let expected: Vec<u8> = expected.collect();
        let others = AffineChannels { shifts: vec![], ..channels.clone() };
        for cpu in Cpu::all() {
            on_threads(|split| {
                let mut output = vec![7; input.len()];
                from.0.affine(cpu, to, &channels, &input, &mut output, split).expect("bytes");
                assert!(output == expected, "{:?} differs", cpu.level());
                assert!(from.0.affine(cpu, to, &channels, &[0; 400], &mut output, split).is_err());
                assert!(from.0.affine(cpu, to, &others, &input, &mut output, split).is_err());
            });
        }
    }
}
