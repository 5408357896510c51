//! The kernels of every instruction set against plain loops.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]
#![expect(clippy::cast_precision_loss, reason = "24 bits suffice")]
#![expect(clippy::float_cmp, reason = "compares infinite results")]

use proptest::prelude::*;

use super::{Activation, Channels, FloatConvolution, FloatProduct, activate};
use crate::window::{Window, WindowPositions};
use crate::{Cpu, Split};

/// A convolution with its sizes.
#[derive(Debug, Clone)]
struct ConvolutionCase {
    window: Window,
    channels: Channels,
    placed: WindowPositions,
    activation: Activation,
    added: bool,
    bias: bool,
    /// NaN and infinite elements of the input.
    odd: Vec<(usize, f32)>,
    seed: u64,
}

/// Returns numbers from -1 to 1 that follow from a seed.
fn numbers(seed: u64, length: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    (0..length).map(|_| next()).collect()
}

/// Computes the activation by its definition.
fn defined(activation: Activation, value: f64) -> f64 {
    let clamp = |value: f64, least: f64, most: f64| {
        if value.is_nan() {
            value
        } else {
            value.max(least).min(most)
        }
    };
    let sigmoid = 1.0 / (1.0 + (-value).exp());
    match activation {
        Activation::None => value,
        Activation::Clamp { least, most } => clamp(value, f64::from(least), f64::from(most)),
        Activation::HardSwish => value * (clamp(value + 3.0, 0.0, 6.0) / 6.0),
        Activation::Sigmoid => sigmoid,
        Activation::Silu => value * sigmoid,
    }
}

/// Returns whether a result is close enough, relative to the sum of magnitudes.
fn agrees(found: f32, wanted: f64, magnitude: f64) -> bool {
    if wanted.is_nan() || wanted.is_infinite() {
        return found.is_nan() == wanted.is_nan()
            && (wanted.is_nan() || f64::from(found) == wanted);
    }
    (f64::from(found) - wanted).abs() <= 1e-5 * (magnitude + 1.0)
}

impl ConvolutionCase {
    /// Returns the number of elements of the input and the output.
    fn lengths(&self) -> [usize; 2] {
        let WindowPositions {
            batch,
            input,
            output,
            ..
        } = self.placed;
        let [inputs, outputs] = [self.channels.input, self.channels.output];
        [
            batch * input[0] * input[1] * inputs,
            batch * output[0] * output[1] * outputs,
        ]
    }

    /// Returns input, weights, bias and the numbers to add.
    fn arrays(&self) -> [Vec<f32>; 4] {
        let [inputs, outputs] = self.lengths();
        let weights = self.window.taps()
            * (self.channels.input / self.channels.groups)
            * self.channels.output;
        let mut input = numbers(self.seed, inputs);
        for (place, value) in &self.odd {
            if let Some(place) = place.checked_rem(inputs) {
                input[place] = *value;
            }
        }
        [
            input,
            numbers(self.seed + 1, weights),
            numbers(self.seed + 2, self.channels.output),
            numbers(self.seed + 3, outputs),
        ]
    }

    /// Computes each output by plain loops, with the sum of the magnitudes of its terms.
    fn wanted(&self) -> Vec<(f64, f64)> {
        let [input, weights, bias, added] = self.arrays();
        let WindowPositions {
            input: [height, width],
            output: [rows, columns],
            before,
            ..
        } = self.placed;
        let Window {
            kernel,
            stride,
            dilation,
        } = self.window;
        let inner = self.channels.input / self.channels.groups;
        let outer = self.channels.output / self.channels.groups;
        let mut wanted = Vec::new();
        for (place, added) in added.iter().enumerate() {
            let (pixel, channel) = (place / self.channels.output, place % self.channels.output);
            let (image, y, x) = (
                pixel / columns / rows,
                pixel / columns % rows,
                pixel % columns,
            );
            let mut terms = Vec::new();
            if self.bias {
                terms.push(f64::from(bias[channel]));
            }
            if self.added {
                terms.push(f64::from(*added));
            }
            for (down, right) in
                (0..kernel[0]).flat_map(|down| (0..kernel[1]).map(move |right| (down, right)))
            {
                let y = (y * stride[0] + down * dilation[0]).checked_sub(before[0]);
                let x = (x * stride[1] + right * dilation[1]).checked_sub(before[1]);
                let (Some(y), Some(x)) = (y, x) else { continue };
                if y >= height || x >= width {
                    continue;
                }
                for number in 0..inner {
                    let from = ((image * height + y) * width + x) * self.channels.input
                        + channel / outer * inner;
                    let weight = ((channel * kernel[0] + down) * kernel[1] + right) * inner;
                    terms.push(
                        f64::from(input[from + number]) * f64::from(weights[weight + number]),
                    );
                }
            }
            let magnitude = terms.iter().map(|term| term.abs()).sum();
            wanted.push((defined(self.activation, terms.iter().sum()), magnitude));
        }
        wanted
    }

    /// Fails unless every instruction set computes the expected result, on one thread and on two.
    fn check(&self) {
        let [input, weights, bias, added] = self.arrays();
        let wanted = self.wanted();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(2)
            .build()
            .unwrap();
        for cpu in Cpu::all() {
            let bias = self.bias.then_some(&bias[..]);
            let made = FloatConvolution::new(
                cpu,
                self.window,
                self.channels,
                &weights,
                bias,
                self.activation,
            );
            let made = made.unwrap();
            let run = |split: Split| {
                let mut output = vec![f32::NAN; wanted.len()];
                let added = self.added.then_some(&added[..]);
                made.run(&self.placed, &input, added, &mut output, split)
                    .unwrap();
                output
            };
            let one = run(Split::ONE);
            let two = pool.install(|| run(Split::current()));
            for (place, (found, (wanted, magnitude))) in one.iter().zip(&wanted).enumerate() {
                assert!(
                    agrees(*found, *wanted, *magnitude),
                    "{cpu:?} {made:?}: element {place} is {found}, expected {wanted}"
                );
            }
            let same = one
                .iter()
                .zip(&two)
                .all(|(one, two)| one.to_bits() == two.to_bits() || one.is_nan() && two.is_nan());
            assert!(same, "{cpu:?} {made:?}: results on two threads differ");
        }
    }
}

/// Returns any activation.
fn activations() -> impl Strategy<Value = Activation> {
    prop_oneof![
        Just(Activation::None),
        Just(Activation::Clamp {
            least: -0.5,
            most: 0.75
        }),
        Just(Activation::Clamp {
            least: 0.0,
            most: f32::INFINITY
        }),
        Just(Activation::HardSwish),
        Just(Activation::Sigmoid),
        Just(Activation::Silu),
    ]
}

/// Groups of all kinds: one, several, and depthwise with one or several outputs for each channel.
fn channels() -> impl Strategy<Value = Channels> {
    prop_oneof![
        (1..70_usize, 1..70_usize).prop_map(|(input, output)| Channels {
            input,
            output,
            groups: 1
        }),
        (1..4_usize, 1..20_usize, 1..20_usize).prop_map(|(groups, input, output)| Channels {
            input: input * groups,
            output: output * groups,
            groups
        }),
        (1..70_usize, 1..3_usize).prop_map(|(groups, each)| Channels {
            input: groups,
            output: groups * each,
            groups
        }),
        (1..70_usize).prop_map(|groups| Channels {
            input: groups,
            output: groups,
            groups
        }),
    ]
}

/// Returns any case.
fn cases() -> impl Strategy<Value = ConvolutionCase> {
    let pair = |range: std::ops::Range<usize>| prop::array::uniform2(range);
    let window =
        (pair(1..6), pair(1..4), pair(1..3)).prop_map(|(kernel, stride, dilation)| Window {
            kernel,
            stride,
            dilation,
        });
    let usual =
        (prop::sample::select(vec![1, 3, 5]), 1..3_usize).prop_map(|(kernel, stride)| Window {
            kernel: [kernel; 2],
            stride: [stride; 2],
            dilation: [1, 1],
        });
    let placed = (0..4_usize, pair(0..12), pair(0..10), pair(0..5)).prop_map(
        |(batch, input, output, before)| WindowPositions {
            batch,
            input,
            output,
            before,
        },
    );
    let odd = prop::collection::vec(
        (
            any::<usize>(),
            prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
        ),
        0..3,
    );
    (
        prop_oneof![window, usual],
        channels(),
        placed,
        activations(),
        any::<[bool; 2]>(),
        odd,
        any::<u32>(),
    )
        .prop_map(
            |(window, channels, placed, activation, [added, bias], odd, seed)| ConvolutionCase {
                window,
                channels,
                placed,
                activation,
                added,
                bias,
                odd,
                seed: u64::from(seed),
            },
        )
}

proptest! {
    #[test]
    fn convolutions_are_what_plain_loops_give(case in cases()) {
        case.check();
    }

    #[test]
    fn products_are_what_plain_loops_give(
        rows in prop_oneof![Just(1), 0..30_usize],
        inputs in 1..70_usize,
        outputs in 0..300_usize,
        activation in activations(),
        added: bool,
        seed: u32,
    ) {
        let case = ConvolutionCase {
            window: Window::PIXEL,
            channels: Channels { input: inputs, output: outputs, groups: 1 },
            placed: WindowPositions { batch: rows, input: [1, 1], output: [1, 1], before: [0, 0] },
            activation,
            added,
            bias: true,
            odd: Vec::new(),
            seed: u64::from(seed),
        };
        case.check();
        let [input, weights, bias, added] = case.arrays();
        for cpu in Cpu::all() {
            let product = FloatProduct::new(cpu, inputs, outputs, &weights, Some(&bias), activation).unwrap();
            let mut output = vec![f32::NAN; rows * outputs];
            let added = case.added.then_some(&added[..]);
            product.run(rows, &input, added, &mut output, Split::ONE).unwrap();
            for (found, (wanted, magnitude)) in output.iter().zip(case.wanted()) {
                prop_assert!(agrees(*found, wanted, magnitude), "got {found}, expected {wanted}");
            }
        }
    }

    #[test]
    fn activations_are_what_they_are_defined_as(activation in activations(), values in prop::collection::vec(any::<f32>(), 0..70)) {
        let near = values.iter().map(|value| value % 100.0);
        let all: Vec<f32> = near.chain([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0]).collect();
        for cpu in Cpu::all() {
            let mut found = all.clone();
            activate(cpu, activation, &mut found);
            for (found, value) in found.iter().zip(&all) {
                let wanted = defined(activation, f64::from(*value));
                prop_assert!(agrees(*found, wanted, wanted.abs()), "{cpu:?} {activation:?} of {value} is {found}");
            }
        }
    }
}

#[test]
fn large_work_is_divided_and_gives_the_same() {
    let pixel = |input, output, side| ConvolutionCase {
        window: Window::PIXEL,
        channels: Channels {
            input,
            output,
            groups: 1,
        },
        placed: WindowPositions {
            batch: 1,
            input: [side, side],
            output: [side, side],
            before: [0, 0],
        },
        activation: Activation::Silu,
        added: true,
        bias: true,
        odd: Vec::new(),
        seed: 7,
    };
    pixel(100, 131, 13).check();
    // A single row is divided by its columns.
    pixel(700, 1_003, 1).check();
    let depthwise = ConvolutionCase {
        window: Window {
            kernel: [3, 3],
            stride: [1, 1],
            dilation: [1, 1],
        },
        channels: Channels {
            input: 72,
            output: 72,
            groups: 72,
        },
        placed: WindowPositions {
            batch: 2,
            input: [31, 31],
            output: [31, 31],
            before: [1, 1],
        },
        ..pixel(1, 1, 1)
    };
    depthwise.check();
}

/// A convolution of one pixel with two groups, four inputs and six outputs.
const SMALL: (Window, Channels) = (
    Window::PIXEL,
    Channels {
        input: 4,
        output: 6,
        groups: 2,
    },
);

#[test]
fn weights_that_do_not_fit_are_an_error() {
    let (window, channels) = SMALL;
    let error = |window, channels, weights: usize, bias: Option<&[f32]>| {
        let weights = vec![0.0; weights];
        FloatConvolution::new(
            Cpu::best(),
            window,
            channels,
            &weights,
            bias,
            Activation::None,
        )
        .unwrap_err()
    };
    assert_eq!(
        error(window, channels, 11, None),
        "wrong number of weights: expected 12, got 11"
    );
    assert_eq!(
        error(window, channels, 12, Some(&[0.0])),
        "wrong number of biases: expected 6, got 1"
    );
    for groups in [0, 3, 4] {
        let channels = Channels { groups, ..channels };
        assert!(error(window, channels, 12, None).contains("divide into"));
    }
    for kernel in [0, usize::MAX] {
        let kernel = [kernel, 1];
        let window = Window { kernel, ..window };
        assert!(error(window, channels, 12, None).contains("invalid window"));
    }
}

#[test]
fn images_that_do_not_fit_are_an_error() {
    let (window, channels) = SMALL;
    let made = FloatConvolution::new(
        Cpu::best(),
        window,
        channels,
        &[0.0; 12],
        None,
        Activation::None,
    )
    .unwrap();
    let run = |placed: WindowPositions, lengths: [usize; 3]| {
        let [input, added, mut output] = lengths.map(|length| vec![0.0; length]);
        made.run(&placed, &input, Some(&added), &mut output, Split::ONE)
    };
    let placed = WindowPositions {
        batch: 1,
        input: [2, 2],
        output: [2, 2],
        before: [0, 0],
    };
    assert_eq!(run(placed, [16, 24, 24]), Ok(()));
    for (lengths, text) in [
        ([15, 24, 24], "the input has 15 elements"),
        ([16, 24, 23], "the output has 23 elements"),
        (
            [16, 23, 24],
            "wrong number of elements to add: expected 24, got 23",
        ),
    ] {
        assert!(run(placed, lengths).unwrap_err().contains(text));
    }
    let batch = usize::MAX;
    assert!(run(WindowPositions { batch, ..placed }, [16, 24, 24]).is_err());
    let before = [0, usize::MAX];
    assert!(run(WindowPositions { before, ..placed }, [16, 24, 24]).is_err());
}

/// Weights that 16 bits hold exactly take half of the memory, and give the sums of the same weights in float32.
#[test]
fn products_with_halves_are_those_with_floats() {
    let [inputs, outputs] = [300, 270];
    let short = |bits: u32| {
        let numbers = numbers(5, inputs * outputs).into_iter();
        numbers.map(move |it| f32::from_bits(it.to_bits() >> bits << bits))
    };
    // Without the bits that float16 and bfloat16 lack. The factor 2^60 exceeds float16.
    let halves = short(13).map(|it| if it.abs() < 6.2e-5 { 0.0 } else { it });
    for weights in [
        halves.collect::<Vec<f32>>(),
        short(16)
            .map(|it| it * f32::from_bits(0x5d80_0000))
            .collect(),
    ] {
        let mut other = weights.clone();
        other[0] = 0.1;
        for cpu in Cpu::all().filter(|cpu| *cpu != Cpu::PLAIN) {
            let product = |weights: &[f32]| {
                FloatProduct::new(cpu, inputs, outputs, weights, None, Activation::None).unwrap()
            };
            let (product, floats) = (product(&weights), product(&other));
            assert!(
                product.bytes() < floats.bytes() * 3 / 5,
                "{:?}",
                cpu.level()
            );
            for rows in [1, 2, 3, 4, 7, 40] {
                let input = numbers(7, rows * inputs);
                let added = numbers(9, rows * outputs);
                let run = |product: &FloatProduct| {
                    let mut output = vec![0.0; rows * outputs];
                    let added = (rows > 2).then_some(&*added);
                    let done = product.run(rows, &input, added, &mut output, Split::ONE);
                    done.map(|()| output).unwrap()
                };
                let (found, wanted) = (run(&product), run(&floats));
                for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                    assert!(
                        at % outputs == 0 || found.to_bits() == wanted.to_bits(),
                        "{:?}, {rows} rows, {at}: {found}, {wanted}",
                        cpu.level()
                    );
                }
            }
        }
    }
}
