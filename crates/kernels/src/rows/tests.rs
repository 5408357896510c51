//! Products against plain loops, for every instruction set.

use proptest::prelude::*;

use super::{Bits, FloatRowProduct, MatrixSizes, QuantizedRowProduct};
use crate::{Cpu, Split};

/// A product, with its method of computation.
#[derive(Debug)]
struct ProductCase {
    bits: Bits,
    sizes: MatrixSizes,
    rows: usize,
    seed: u64,
}

impl ProductCase {
    /// Returns numbers from -1 to 1.
    fn reals(&self, count: usize, salt: u64) -> Vec<f32> {
        let mut state = self.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            #[expect(clippy::cast_precision_loss, reason = "24 bits")]
            let unit = (state >> 40) as f32 / 8_388_608.0;
            unit - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[expect(clippy::cast_possible_truncation, reason = "clamped to a byte")]
    fn weights(&self) -> Vec<i8> {
        let reals = self.reals(self.sizes.outputs * self.sizes.inputs, 1);
        let half = match self.bits {
            Bits::Four => 8.0,
            Bits::Eight => 128.0,
        };
        let whole = reals.iter().map(|x| (x * half).floor().min(half - 1.0));
        whole.map(|x| x as i8).collect()
    }
}

fn cases() -> impl Strategy<Value = ProductCase> {
    let groups = prop_oneof![
        (1..300_usize).prop_map(|inputs| (inputs, inputs)),
        (
            prop_oneof![Just(32), Just(64), Just(128), Just(12)],
            1..4_usize
        )
            .prop_map(|(group, groups)| (group * groups, group)),
    ];
    let bits = prop_oneof![Just(Bits::Four), Just(Bits::Eight)];
    (groups, bits, 1..100_usize, 0..20_usize, any::<u64>()).prop_map(
        |((inputs, group), bits, outputs, rows, seed)| ProductCase {
            bits,
            sizes: MatrixSizes {
                inputs,
                outputs,
                group,
            },
            rows,
            seed,
        },
    )
}

/// XNNPACK's dynamic quantisation of a row, written out. Returns the integers minus their zero
/// point, and the size of a step.
fn rounded(row: &[f32]) -> (Vec<f64>, f64) {
    let low = row.iter().fold(0.0_f32, |low, x| low.min(*x));
    let high = row.iter().fold(0.0_f32, |high, x| high.max(*x));
    let scale = if (high - low) <= 0.0 {
        1.0
    } else {
        255.0 / (high - low)
    };
    let errors = (-128.0 + low * scale) + (127.0 + high * scale);
    let zero = if errors > 0.0 {
        -128.0 - low * scale
    } else {
        127.0 - high * scale
    };
    let zero = zero.clamp(-128.0, 127.0).round_ties_even();
    let whole = row.iter().map(|x| {
        let place = (x * scale).clamp(-128.0 - zero, 127.0 - zero);
        f64::from(place.round_ties_even())
    });
    (whole.collect(), f64::from(scale.recip()))
}

/// Returns the expected results, with their tolerances.
fn expected(case: &ProductCase, input: &[f32], scales: &[f32], bias: &[f32]) -> Vec<(f64, f64)> {
    let MatrixSizes {
        inputs,
        outputs,
        group,
    } = case.sizes;
    let weights = case.weights();
    let mut expected = Vec::new();
    for row in input.chunks(inputs) {
        let (whole, step) = rounded(row);
        for output in 0..outputs {
            let (mut sum, mut size) = (0.0, 0.0);
            for input in 0..inputs {
                let scale = f64::from(scales[output * (inputs / group) + input / group]);
                let weight = f64::from(weights[output * inputs + input]);
                sum += whole[input] * weight * scale;
                size += (128.0 * weight * scale).abs();
            }
            let bias = f64::from(bias[output]);
            expected.push((sum * step + bias, 1e-6 * (size * step + bias.abs())));
        }
    }
    expected
}

fn product(case: &ProductCase, cpu: Cpu, scales: &[f32], bias: &[f32]) -> QuantizedRowProduct {
    let (weights, inputs) = (case.weights(), case.sizes.inputs);
    let weight = |output: usize, input: usize| weights[output * inputs + input];
    QuantizedRowProduct::new(cpu, case.bits, case.sizes, weight, scales, Some(bias))
        .expect("sizes that fit")
}

proptest! {
    #[test]
    fn products_are_those_of_plain_loops(case in cases()) {
        let MatrixSizes { inputs, outputs, group } = case.sizes;
        let input = case.reals(case.rows * inputs, 2);
        let scales = case.reals(outputs * (inputs / group), 3);
        let bias = case.reals(outputs, 4);
        let expected = expected(&case, &input, &scales, &bias);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
        for cpu in Cpu::all() {
            let product = product(&case, cpu, &scales, &bias);
            let mut alone = vec![f32::NAN; case.rows * outputs];
            product.run(case.rows, &input, &mut alone, Split::ONE).expect("lengths that fit");
            for (at, (found, (expected, within))) in alone.iter().zip(&expected).enumerate() {
                prop_assert!(
                    (f64::from(*found) - expected).abs() <= *within,
                    "{cpu:?} at {at}: {found}, expected {expected} ± {within}"
                );
            }
            let mut shared = vec![f32::NAN; case.rows * outputs];
            pool.install(|| product.run(case.rows, &input, &mut shared, Split::current()))
                .expect("lengths that fit");
            prop_assert_eq!(alone, shared);
        }
    }
}

proptest! {
    #[test]
    fn products_of_real_rows_are_those_of_plain_loops(case in cases(), with_zeros: bool) {
        let MatrixSizes { inputs, outputs, group } = case.sizes;
        prop_assume!(group.is_multiple_of(8));
        let groups = inputs / group;
        let input = case.reals(case.rows * inputs, 2);
        let scales = case.reals(outputs * groups, 3);
        let half = if case.bits == Bits::Four { 8 } else { 128 };
        let weights: Vec<u8> = case.weights().iter().map(|x| x.cast_unsigned().wrapping_add(half)).collect();
        #[expect(clippy::cast_possible_truncation, reason = "a remainder")]
        let zeros: Vec<u8> = (0..scales.len()).map(|at| (at * 5 % (2 * usize::from(half))) as u8).collect();
        let zeros = with_zeros.then_some(zeros.as_slice());
        let mut expected = Vec::new();
        for row in input.chunks(inputs) {
            for output in 0..outputs {
                let (mut sum, mut size) = (0.0, 0.0);
                for (input, x) in row.iter().enumerate() {
                    let at = output * groups + input / group;
                    let zero = f64::from(zeros.map_or(half, |zeros| zeros[at]));
                    let weight = f64::from(weights[output * inputs + input]);
                    let scale = f64::from(scales[at]);
                    sum += f64::from(*x) * (weight - zero) * scale;
                    size += (f64::from(*x) * (weight + zero) * scale).abs();
                }
                expected.push((sum, 1e-6 * size));
            }
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
        let weight = |output: usize, input: usize| weights[output * inputs + input];
        for cpu in Cpu::all() {
            let product = FloatRowProduct::new(cpu, case.bits, case.sizes, weight, &scales, zeros)
                .expect("sizes that fit");
            let mut alone = vec![f32::NAN; case.rows * outputs];
            product.run(case.rows, &input, &mut alone, Split::ONE).expect("lengths that fit");
            for (at, (found, (expected, within))) in alone.iter().zip(&expected).enumerate() {
                prop_assert!(
                    (f64::from(*found) - expected).abs() <= *within,
                    "{cpu:?} at {at}: {found}, expected {expected} ± {within}"
                );
            }
            let mut shared = vec![f32::NAN; case.rows * outputs];
            pool.install(|| product.run(case.rows, &input, &mut shared, Split::current()))
                .expect("lengths that fit");
            prop_assert_eq!(alone, shared);
        }
    }
}

#[test]
fn work_is_divided_among_threads() {
    let sizes = MatrixSizes {
        inputs: 512,
        outputs: 1000,
        group: 128,
    };
    let case = ProductCase {
        bits: Bits::Four,
        sizes,
        rows: 3,
        seed: 7,
    };
    let input = case.reals(3 * 512, 2);
    let (scales, bias) = (case.reals(4000, 3), case.reals(1000, 4));
    let product = product(&case, Cpu::best(), &scales, &bias);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
    let (mut alone, mut shared) = (vec![0.0; 3000], vec![0.0; 3000]);
    let done = product.run(3, &input, &mut alone, Split::ONE);
    done.expect("lengths that fit");
    let done = pool
        .expect("a pool")
        .install(|| product.run(3, &input, &mut shared, Split::current()));
    done.expect("lengths that fit");
    assert_eq!(alone, shared);
}

#[test]
fn four_bits_stay_four_bits() {
    let sizes = MatrixSizes {
        inputs: 1024,
        outputs: 64,
        group: 1024,
    };
    let of = |bits| {
        let product = QuantizedRowProduct::new(Cpu::PLAIN, bits, sizes, |_, _| 1, &[1.0; 64], None);
        product.expect("sizes that fit").bytes()
    };
    assert_eq!(of(Bits::Four), 64 * 1024 / 2 + 64 * 12);
    assert_eq!(of(Bits::Eight), 64 * 1024 + 64 * 12);
}

#[test]
fn what_does_not_fit_is_refused() {
    let of = |inputs, outputs, group, scales: usize| {
        let sizes = MatrixSizes {
            inputs,
            outputs,
            group,
        };
        let scales = vec![1.0; scales];
        QuantizedRowProduct::new(Cpu::PLAIN, Bits::Four, sizes, |_, _| 0, &scales, None)
    };
    for (sizes, told) in [
        ((0, 1, 1, 1), "invalid matrix of 1 outputs and 0 inputs"),
        (
            (64, 2, 30, 4),
            "rows of 64 inputs are not divisible into groups of 30",
        ),
        (
            (64, 2, 32, 3),
            "wrong number of scales: got 3 for 2 outputs of 2 groups",
        ),
    ] {
        let (inputs, outputs, group, scales) = sizes;
        assert_eq!(
            of(inputs, outputs, group, scales).err().as_deref(),
            Some(told)
        );
    }
    let product = of(8, 2, 8, 2).expect("sizes that fit");
    let told = product.run(2, &[0.0; 8], &mut [0.0; 4], Split::ONE);
    assert_eq!(
        told.err().as_deref(),
        Some("2 rows of 8 inputs and 2 outputs do not match 8 and 4 elements")
    );
}

#[test]
fn numbers_without_end_are_no_panic() {
    let sizes = MatrixSizes {
        inputs: 4,
        outputs: 1,
        group: 4,
    };
    for cpu in Cpu::all() {
        let product = QuantizedRowProduct::new(cpu, Bits::Eight, sizes, |_, _| -3, &[1.0], None);
        let product = product.expect("sizes that fit");
        for input in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX] {
            let input = [input, -input, 1.0, 0.0];
            let mut output = [0.0];
            let done = product.run(1, &input, &mut output, Split::ONE);
            done.expect("lengths that fit");
        }
    }
}
