//! Every instruction set against plain loops.

mod elementwise;
mod pool;

use proptest::prelude::*;

use super::convolution::{self, ByteConvolution};
use super::product::{self, ByteProduct, SumProduct};
use super::{Requantize, Sign};
use crate::window::{Channels, Window, WindowPositions};
use crate::{Cpu, Split};

/// Bytes from a seed, with many extreme values.
pub(super) fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        state.to_be_bytes()
    };
    let bytes = (0..count).map(|_| match next() {
        [0..40, ..] => 0x80,
        [40..80, ..] => 0x7f,
        [80..100, ..] => 0xff,
        [100..120, ..] => 0,
        [_, byte, ..] => byte,
    });
    bytes.collect()
}

/// The integer that a byte represents.
pub(super) fn number(sign: Sign, byte: u8) -> i64 {
    match sign {
        Sign::Signed => byte.cast_signed().into(),
        Sign::Unsigned => byte.into(),
    }
}

/// The byte for a sum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the rule"
)]
fn requantized(requantize: &Requantize, channel: usize, sum: i64) -> u8 {
    let factors = &requantize.factors;
    let factor = factors[if factors.len() == 1 { 0 } else { channel }];
    let zero = requantize.zero_point;
    let (least, most) = (
        (requantize.least - zero) as f32,
        (requantize.most - zero) as f32,
    );
    let number = (sum as f32 * factor).max(least).min(most).round_ties_even() as i32;
    (number + zero) as u8
}

/// Runs on one thread, and on two.
pub(super) fn on_threads(work: impl Fn(Split) + Sync + Send) {
    work(Split::ONE);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
    pool.expect("two threads")
        .install(|| work(Split::current()));
}

/// Integers of a sign.
pub(super) fn numbers(sign: Sign) -> impl Strategy<Value = i32> {
    let (least, most) = sign.range();
    prop_oneof![Just(least), Just(most), Just(0), least..=most]
}

/// Both signs.
pub(super) fn signs() -> impl Strategy<Value = Sign> {
    prop_oneof![Just(Sign::Signed), Just(Sign::Unsigned)]
}

#[derive(Debug, Clone)]
struct Arithmetic {
    signs: [Sign; 2],
    input_zero: i32,
    requantize: Requantize,
    by_channel: bool,
    weight_zeros: Option<i32>,
    seed: u64,
}

fn arithmetic() -> impl Strategy<Value = Arithmetic> {
    let signs = (signs(), signs()).prop_flat_map(|(from, to)| {
        let numbers = (numbers(from), numbers(to), numbers(to), numbers(to));
        (Just([from, to]), numbers)
    });
    let zeros = prop_oneof![3 => Just(None), 1 => numbers(Sign::Signed).prop_map(Some)];
    (signs, zeros, any::<bool>(), any::<u64>(), 1.0_f32..300.0).prop_map(
        |((signs, (input_zero, zero_point, a, b)), weight_zeros, by_channel, seed, divisor)| {
            let requantize = Requantize {
                factors: vec![0.03 / divisor],
                zero_point,
                least: a.min(b),
                most: a.max(b),
            };
            Arithmetic {
                signs,
                input_zero,
                requantize,
                by_channel,
                weight_zeros,
                seed,
            }
        },
    )
}

impl Arithmetic {
    /// Factors, biases and zero points of the weights for this number of channels.
    #[expect(clippy::cast_precision_loss, reason = "a few channels")]
    fn of(&self, channels: usize) -> (Requantize, Vec<i32>, Vec<i32>) {
        let mut requantize = self.requantize.clone();
        if self.by_channel {
            let factor = requantize.factors[0];
            requantize.factors = (0..channels)
                .map(|at| factor * (1.0 + at as f32 / 7.0))
                .collect();
        }
        let bias = bytes(self.seed + 1, channels)
            .into_iter()
            .map(|byte| i32::from(byte) * 50 - 3000);
        let zeros = self.weight_zeros.into_iter().flat_map(|zero| {
            let count = if self.by_channel { channels } else { 1 };
            (0..count).map(move |at| if at % 3 == 1 { 3 } else { zero })
        });
        (requantize, bias.collect(), zeros.collect())
    }
}

fn convolution(
    window: Window,
    placed: WindowPositions,
    channels: Channels,
    arithmetic: &Arithmetic,
) {
    let inputs = channels.input / channels.groups;
    let taps = window.taps();
    let weights: Vec<i8> = bytes(arithmetic.seed + 2, channels.output * taps * inputs)
        .into_iter()
        .map(u8::cast_signed)
        .collect();
    let (requantize, bias, zeros) = arithmetic.of(channels.output);
    let [sign_in, sign_out] = arithmetic.signs;
    let [height, width] = placed.input;
    let input = bytes(
        arithmetic.seed,
        placed.batch * height * width * channels.input,
    );
    let pixels = placed.batch * placed.output[0] * placed.output[1];
    let mut expected = vec![0; pixels * channels.output];
    for pixel in 0..pixels {
        let [image, row, column] = placed.pixel(pixel);
        for channel in 0..channels.output {
            let mut sum = i64::from(bias[channel]);
            let zero = zeros.get(if zeros.len() == 1 { 0 } else { channel });
            for tap in 0..taps {
                let (i, j) = (tap / window.kernel[1], tap % window.kernel[1]);
                let y =
                    (row * window.stride[0] + i * window.dilation[0]).checked_sub(placed.before[0]);
                let x = (column * window.stride[1] + j * window.dilation[1])
                    .checked_sub(placed.before[1]);
                let (Some(y), Some(x)) = (y, x) else { continue };
                if y >= height || x >= width {
                    continue;
                }
                for at in 0..inputs {
                    let weight = weights[(channel * taps + tap) * inputs + at];
                    let weight = i64::from(weight) - i64::from(*zero.unwrap_or(&0));
                    let group = channel / (channels.output / channels.groups);
                    let from =
                        ((image * height + y) * width + x) * channels.input + group * inputs + at;
                    sum +=
                        weight * (number(sign_in, input[from]) - i64::from(arithmetic.input_zero));
                }
            }
            expected[pixel * channels.output + channel] = requantized(&requantize, channel, sum);
        }
    }
    for cpu in Cpu::all() {
        let parts = convolution::ConvolutionParams {
            window,
            channels,
            weights: &weights,
            weight_zeros: &zeros,
            bias: Some(&bias),
            input_zero: arithmetic.input_zero,
            sign_in,
            sign_out,
            requantize: &requantize,
        };
        let convolution = ByteConvolution::new(cpu, &parts).expect("a convolution");
        assert!(convolution.bytes() >= weights.len());
        on_threads(|split| {
            let mut output = vec![0; expected.len()];
            convolution
                .run(&placed, &input, &mut output, split)
                .expect("a run");
            assert!(
                output == expected,
                "{:?} differs from plain loops",
                cpu.level()
            );
            let short = convolution.run(&placed, &input[1..], &mut output, split);
            assert!(short.is_err());
        });
    }
}

/// Windows over small images.
pub(super) fn windows() -> impl Strategy<Value = (Window, WindowPositions)> {
    let window = (
        [1_usize..=5, 1..=5],
        [1_usize..=3, 1..=3],
        [1_usize..=2, 1..=2],
    );
    let sizes = (
        1_usize..=3,
        [1_usize..=12, 1..=12],
        [0_usize..=3, 0..=3],
        [0_usize..=3, 0..=3],
    );
    (window, sizes).prop_map(
        |((kernel, stride, dilation), (batch, input, before, after))| {
            let mut output = [0; 2];
            for at in 0..2 {
                let reach = (kernel[at] - 1) * dilation[at] + 1;
                let all = input[at] + before[at] + after[at];
                output[at] = all
                    .checked_sub(reach)
                    .map_or(0, |rest| rest / stride[at] + 1);
            }
            let window = Window {
                kernel,
                stride,
                dilation,
            };
            let placed = WindowPositions {
                batch,
                input,
                output,
                before,
            };
            (window, placed)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn convolutions_are_exact(
        (window, placed) in windows(),
        inputs in 1_usize..=70,
        outputs in 1_usize..=70,
        arithmetic in arithmetic(),
    ) {
        let channels = Channels { input: inputs, output: outputs, groups: 1 };
        convolution(window, placed, channels, &arithmetic);
    }

    #[test]
    fn pixels_are_multiplied_exactly(
        batch in 1_usize..=2,
        input in [1_usize..=9, 1..=9],
        inputs in 1_usize..=140,
        outputs in 1_usize..=70,
        arithmetic in arithmetic(),
    ) {
        let channels = Channels { input: inputs, output: outputs, groups: 1 };
        let placed = WindowPositions { batch, input, output: input, before: [0; 2] };
        convolution(Window::PIXEL, placed, channels, &arithmetic);
    }

    #[test]
    fn groups_are_exact(
        (window, placed) in windows(),
        sizes in [1_usize..=9, 1..=20],
        groups in 2_usize..=5,
        arithmetic in arithmetic(),
    ) {
        let [input, output] = sizes.map(|size| size * groups);
        convolution(window, placed, Channels { input, output, groups }, &arithmetic);
    }

    #[test]
    fn depthwise_windows_are_exact(
        (window, placed) in windows(),
        channels in prop_oneof![1_usize..=140, Just(320_usize)],
        arithmetic in arithmetic(),
    ) {
        let channels = Channels { input: channels, output: channels, groups: channels };
        convolution(window, placed, channels, &arithmetic);
    }

    #[test]
    fn products_are_exact(
        rows in prop_oneof![0_usize..=3, 0_usize..=30],
        sizes in [1_usize..=90, 1..=90],
        arithmetic in arithmetic(),
    ) {
        let [inputs, outputs] = sizes;
        let (requantize, bias, zeros) = arithmetic.of(outputs);
        let [sign_in, sign_out] = arithmetic.signs;
        let input = bytes(arithmetic.seed, rows * inputs);
        let weights: Vec<i8> =
            bytes(arithmetic.seed + 2, outputs * inputs).into_iter().map(u8::cast_signed).collect();
        let sums = (0..rows * outputs).map(|at| {
            let (row, output) = (at / outputs, at % outputs);
            let zero = zeros.get(if zeros.len() == 1 { 0 } else { output }).copied().unwrap_or(0);
            let products = (0..inputs).map(|at| {
                let weight = i64::from(weights[output * inputs + at]) - i64::from(zero);
                let input = number(sign_in, input[row * inputs + at]);
                weight * (input - i64::from(arithmetic.input_zero))
            });
            products.sum::<i64>() + i64::from(bias[output])
        });
        let sums: Vec<i64> = sums.collect();
        let plain_sums = sums.iter().enumerate().map(|(at, sum)| {
            i32::try_from(sum - i64::from(bias[at % outputs])).expect("few inputs")
        });
        let plain_sums: Vec<i32> = plain_sums.collect();
        let expected = sums.iter().enumerate();
        let expected: Vec<u8> =
            expected.map(|(at, sum)| requantized(&requantize, at % outputs, *sum)).collect();
        for cpu in Cpu::all() {
            let parts = product::Parts {
                sizes,
                weights: &weights,
                weight_zeros: &zeros,
                bias: Some(&bias),
                input_zero: arithmetic.input_zero,
                sign_in,
                sign_out,
                requantize: &requantize,
            };
            let product = ByteProduct::new(cpu, &parts).expect("a product");
            let of_sums = SumProduct::new(cpu, sizes, &weights, &zeros, sign_in).expect("a product");
            on_threads(|split| {
                let mut output = vec![0; expected.len()];
                product.run(&input, &mut output, split).expect("a run");
                assert!(output == expected, "{:?} differs from plain loops", cpu.level());
                let mut output = vec![7; expected.len()];
                of_sums.run(arithmetic.input_zero, &input, &mut output, split).expect("a run");
                assert!(output == plain_sums, "{:?} differs from plain loops", cpu.level());
                assert!(of_sums.run(300, &input, &mut output, split).is_err());
            });
        }
    }
}
