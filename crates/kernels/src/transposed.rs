//! Transposed convolutions, as plain convolutions whose results are interleaved.
//!
//! With a stride of `s`, the output pixels of an axis fall into `s` phases. All pixels of a phase read the same
//! taps, so a phase is a convolution with stride 1. Neighbouring phases whose windows lie at the same place share
//! a convolution, which has the output channels of each of them.

use crate::Split;
use crate::length::check_length;
use crate::window::{Channels, Window, WindowPositions};

/// The convolutions that a transposed convolution consists of.
#[derive(Debug, Clone)]
pub struct TransposedPlan {
    window: Window,
    channels: Channels,
    /// Phases of each axis.
    axes: [Vec<Phases>; 2],
}

/// Neighbouring phases of an axis that read the same pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Phases {
    /// The first output pixel of the first phase.
    start: usize,
    /// For each phase the taps in the order of the pixels that they read.
    taps: Vec<Vec<usize>>,
    /// Number of pixels from one tap to the next.
    dilation: usize,
    /// Number of pixels before the image that the first window reads.
    before: usize,
}

/// One of the convolutions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransposedPart {
    /// Its window.
    pub window: Window,
    /// Its channels: the output channels of each of its phases.
    pub channels: Channels,
    /// Its number.
    number: usize,
}

impl TransposedPlan {
    /// Plans a transposed convolution that leaves out `before` pixels of the output at the start of each axis. Fails
    /// if no plain convolutions compute it.
    pub fn new(window: Window, channels: Channels, before: [usize; 2]) -> Result<Self, String> {
        window.check()?;
        let axis = |at: usize| {
            let numbers = [window.kernel[at], window.stride[at], window.dilation[at]];
            phases(numbers, before[at], channels.groups == 1)
        };
        Ok(Self {
            window,
            channels,
            axes: [axis(0)?, axis(1)?],
        })
    }

    /// Returns the convolutions.
    pub fn parts(&self) -> impl Iterator<Item = TransposedPart> {
        let [down, across] = &self.axes;
        pairs(down, across)
            .enumerate()
            .map(|(number, phases)| TransposedPart {
                window: Window {
                    kernel: [phases.0, phases.1].map(|phases| phases.taps[0].len()),
                    stride: [1, 1],
                    dilation: [phases.0, phases.1].map(|phases| phases.dilation),
                },
                channels: Channels {
                    output: self.channels.output * phases.0.taps.len() * phases.1.taps.len(),
                    ..self.channels
                },
                number,
            })
    }

    /// Returns the weights of a part `[out][kh][kw][in / groups]` from those of the transposed convolution in the same
    /// order.
    pub fn weights<T: Copy + Default>(
        &self,
        part: &TransposedPart,
        weights: &[T],
    ) -> Result<Vec<T>, String> {
        let Channels {
            input,
            output,
            groups,
        } = self.channels;
        let [height, width] = self.window.kernel;
        let inputs = input / groups.max(1);
        check_length(
            "the weights",
            weights.len(),
            &[output, height, width, inputs],
        )?;
        let [down, across] = self.phases(part);
        let mut chosen = Vec::with_capacity(part.channels.output * part.window.taps() * inputs);
        for (rows, columns) in pairs(&down.taps, &across.taps) {
            for channel in 0..output {
                for (row, column) in pairs(rows, columns) {
                    let start = ((channel * height + row) * width + column) * inputs;
                    chosen.extend_from_slice(&weights[start..start + inputs]);
                }
            }
        }
        Ok(chosen)
    }

    /// Returns a part's numbers of output channels from those of the transposed convolution.
    pub fn of_channels<T: Copy>(&self, part: &TransposedPart, numbers: &[T]) -> Vec<T> {
        let [down, across] = self.phases(part);
        numbers.repeat(down.taps.len() * across.taps.len())
    }

    fn phases(&self, part: &TransposedPart) -> [&Phases; 2] {
        let [down, across] = &self.axes;
        [
            &down[part.number / across.len()],
            &across[part.number % across.len()],
        ]
    }

    /// Computes images `[n, oh, ow, out]`. `convolve` computes those of a part, given its number and the positions of
    /// its windows. Only the batch and the sizes of `placed` are used.
    pub fn run<T: Copy + Default + Send + Sync>(
        &self,
        placed: &WindowPositions,
        output: &mut [T],
        split: Split,
        convolve: impl Fn(usize, &WindowPositions, &mut [T]) -> Result<(), String>,
    ) -> Result<(), String> {
        let channels = self.channels.output;
        let [height, width] = placed.output;
        check_length(
            "the output",
            output.len(),
            &[placed.batch, height, width, channels],
        )?;
        if output.is_empty() {
            return Ok(());
        }
        let mut results = Vec::new();
        for (number, part) in self.parts().enumerate() {
            let phases = self.phases(&part);
            let sizes = [0, 1].map(|axis| {
                let rest = placed.output[axis].saturating_sub(phases[axis].start);
                rest.div_ceil(self.window.stride[axis])
            });
            let part_placed = WindowPositions {
                output: sizes,
                before: phases.map(|phases| phases.before),
                ..*placed
            };
            if self.window.stride == [1, 1] {
                return convolve(number, &part_placed, output);
            }
            let elements = placed.batch * sizes[0] * sizes[1] * part.channels.output;
            let mut result = vec![T::default(); elements];
            if elements > 0 {
                convolve(number, &part_placed, &mut result)?;
            }
            results.push(PartResult {
                sizes,
                elements: result,
            });
        }
        let row = width * channels;
        split.rows(output, row, row, |first, rows| {
            for (row, to) in (first..).zip(rows.chunks_exact_mut(row)) {
                self.interleave([row / height, row % height], &results, to);
            }
        });
        Ok(())
    }

    /// Writes a row of an image.
    fn interleave<T: Copy>(
        &self,
        [image, row]: [usize; 2],
        results: &[PartResult<T>],
        to: &mut [T],
    ) {
        let [down, across] = &self.axes;
        let [stride, step] = self.window.stride;
        let phase = row % stride;
        let found = down.iter().enumerate().find_map(|(at, phases)| {
            let within = phase.checked_sub(phases.start)?;
            (within < phases.taps.len()).then_some((at, within))
        });
        let Some((y, within)) = found else { return };
        let channels = self.channels.output;
        for (x, phases) in across.iter().enumerate() {
            let result = &results[y * across.len() + x];
            let [height, width] = result.sizes;
            let run = phases.taps.len() * channels;
            let pixel = down[y].taps.len() * run;
            let first = (image * height + row / stride) * width * pixel;
            let pixels = result.elements[first..first + width * pixel].chunks_exact(pixel);
            for (pixel, to) in pixels.zip(to[phases.start * channels..].chunks_mut(step * channels))
            {
                // The last pixel may lack phases.
                let run = run.min(to.len());
                to[..run].copy_from_slice(&pixel[within * phases.taps.len() * channels..][..run]);
            }
        }
    }
}

/// The result of a part.
struct PartResult<T> {
    sizes: [usize; 2],
    elements: Vec<T>,
}

/// Returns the phases of an axis, together if they may be and read the same pixels.
fn phases(
    [kernel, stride, dilation]: [usize; 3],
    before: usize,
    may_join: bool,
) -> Result<Vec<Phases>, String> {
    let common = greatest_common_divisor(stride, dilation);
    let step = dilation / common;
    let mut all: Vec<Phases> = Vec::new();
    for start in 0..stride {
        let (period, remainder) = (stride / common, (start + before) % stride);
        let first = (0..period.min(kernel)).find(|tap| tap * dilation % stride == remainder);
        let first = first.ok_or("windows that leave out pixels")?;
        let taps: Vec<usize> = (first..kernel).step_by(period).rev().collect();
        // In pixels of the output: where the last tap lies, and where the first pixel does.
        let reach = (taps.len() - 1).checked_mul(step * stride);
        let last = reach.and_then(|reach| reach.checked_add(first * dilation));
        let ahead = last.and_then(|last| last.checked_sub(start + before));
        let before = ahead.ok_or("windows that start within the image")? / stride;
        match all.last_mut() {
            Some(last) if may_join && last.before == before && last.taps[0].len() == taps.len() => {
                last.taps.push(taps);
            }
            _ => all.push(Phases {
                start,
                taps: vec![taps],
                dilation: step,
                before,
            }),
        }
    }
    Ok(all)
}

/// Returns each of the first with each of the second.
fn pairs<'a, A, B>(first: &'a [A], second: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    let with_all = move |a| second.iter().map(move |b| (a, b));
    first.iter().flat_map(with_all)
}

const fn greatest_common_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic fails the test")]

    use proptest::prelude::*;

    use super::*;
    use crate::Cpu;
    use crate::float::{Activation, FloatConvolution};

    /// Computes a transposed convolution by its definition: each pixel of the input is added at each tap.
    fn defined(
        (window, channels, before): (Window, Channels, [usize; 2]),
        placed: &WindowPositions,
        (input, weights, bias): (&[f32], &[f32], &[f32]),
    ) -> Vec<f32> {
        let Channels {
            input: inputs,
            output: outputs,
            groups,
        } = channels;
        let ([high, wide], [height, width]) = (placed.input, placed.output);
        let mut all = bias.repeat(placed.batch * height * width);
        for (pixel, values) in input.chunks_exact(inputs).enumerate() {
            let (image, y, x) = (pixel / (high * wide), pixel / wide % high, pixel % wide);
            for tap in 0..window.taps() {
                let (row, column) = (tap / window.kernel[1], tap % window.kernel[1]);
                let down = (y * window.stride[0] + row * window.dilation[0]).checked_sub(before[0]);
                let across =
                    (x * window.stride[1] + column * window.dilation[1]).checked_sub(before[1]);
                let (Some(down), Some(across)) = (down, across) else {
                    continue;
                };
                if down >= height || across >= width {
                    continue;
                }
                for output in 0..outputs {
                    let group = output / (outputs / groups);
                    let of_group = inputs / groups;
                    let weights = &weights[(output * window.taps() + tap) * of_group..][..of_group];
                    let values = &values[group * of_group..][..of_group];
                    let sum: f32 = values.iter().zip(weights).map(|(a, b)| a * b).sum();
                    all[((image * height + down) * width + across) * outputs + output] += sum;
                }
            }
        }
        all
    }

    proptest! {
        /// Numbers are small and whole, so that sums are exact.
        #[test]
        fn parts_add_up(
            kernel in [1_usize..6, 1_usize..6], stride in [1_usize..5, 1_usize..5],
            dilation in [1_usize..4, 1_usize..4], before in [0_usize..4, 0_usize..4],
            sizes in [1_usize..5, 1_usize..5], more in [0_usize..4, 0_usize..4],
            (inner, outer, groups, batch) in (1_usize..4, 1_usize..4, 1_usize..3, 1_usize..3),
            threads in any::<bool>(),
        ) {
            let window = Window { kernel, stride, dilation };
            let channels = Channels { input: inner * groups, output: outer * groups, groups };
            let Ok(plan) = TransposedPlan::new(window, channels, before) else {
                return Ok(());
            };
            let output = [0, 1].map(|at| {
                let whole = (sizes[at] - 1) * stride[at] + (kernel[at] - 1) * dilation[at] + 1 + more[at];
                whole.saturating_sub(2 * before[at])
            });
            let placed = WindowPositions { batch, input: sizes, output, before: [9, 9] };
            let number = |at: usize| f32::from(u8::try_from(at * 7 % 11).unwrap()) - 5.0;
            let input: Vec<f32> = (0..batch * sizes[0] * sizes[1] * channels.input).map(number).collect();
            let weights: Vec<f32> = (0..window.taps() * inner * channels.output).map(number).collect();
            let bias: Vec<f32> = (0..channels.output).map(number).collect();
            let kernels: Vec<FloatConvolution> = plan.parts().map(|part| {
                let weights = plan.weights(&part, &weights).unwrap();
                let bias = plan.of_channels(&part, &bias);
                FloatConvolution::new(Cpu::chosen(), part.window, part.channels, &weights, Some(&bias), Activation::None).unwrap()
            }).collect();
            let mut found = vec![0.0; batch * output[0] * output[1] * channels.output];
            let split = if threads { Split::current() } else { Split::ONE };
            plan.run(&placed, &mut found, split, |part, placed, to| {
                kernels[part].run(placed, &input, None, to, split)
            }).unwrap();
            prop_assert_eq!(found, defined((window, channels, before), &placed, (&input, &weights, &bias)));
        }
    }

    #[test]
    fn strides_of_the_kernel_are_one_product() {
        let window = Window {
            kernel: [2, 2],
            stride: [2, 2],
            dilation: [1, 1],
        };
        let channels = Channels {
            input: 3,
            output: 5,
            groups: 1,
        };
        let plan = TransposedPlan::new(window, channels, [0, 0]).unwrap();
        let parts: Vec<TransposedPart> = plan.parts().collect();
        assert_eq!(parts.len(), 1);
        assert_eq!(
            (parts[0].window, parts[0].channels.output),
            (Window::PIXEL, 20)
        );
    }

    #[test]
    fn others_are_refused() {
        let channels = Channels {
            input: 1,
            output: 1,
            groups: 1,
        };
        for (kernel, stride, dilation, before) in
            [(1, 2, 1, 0), (3, 2, 2, 0), (1, 1, 1, 1), (2, 1 << 20, 1, 0)]
        {
            let window = Window {
                kernel: [1, kernel],
                stride: [1, stride],
                dilation: [1, dilation],
            };
            assert!(
                TransposedPlan::new(window, channels, [0, before]).is_err(),
                "{window:?}"
            );
        }
    }
}
