//! Quantised convolution, by the kernel that suits its channels.

use std::ops::Range;

use super::dense::{self, Dense, DenseRows, Part};
use super::depthwise::{self, ByteDepthwise, WindowView};
use super::dispatch;
use super::tiles::TileTarget;
use super::weights::{SumInputs, fit_to_bytes};
use super::{Requantize, Sign};
use crate::length::check_length;
use crate::window::{Channels, Window, WindowPositions};
use crate::{Cpu, Split};

/// Number of rows whose inputs are located before weights are read. Keeps weights and inputs in the
/// cache.
const ROWS_PER_BLOCK: usize = 60;

/// Number of channels below which the taps of a window's row are read as one: locating a tap takes as long as multiplying
/// some dozens of channels.
const MERGE_BELOW_CHANNELS: usize = 256;

/// A convolution: packed weights, and the conversion of sums to bytes.
#[derive(Debug)]
pub struct ByteConvolution {
    window: Window,
    channels: Channels,
    /// Sign of input bytes.
    sign: Sign,
    /// Byte value of padding.
    zero: u8,
    /// Number of times that windows are read; see [`fit_to_bytes`].
    repeats: usize,
    kernel: ByteKernel,
}

/// The kernel that computes a convolution.
#[derive(Debug)]
enum ByteKernel {
    /// Pixels times output channels.
    Dense(Dense),
    /// The same, with all taps of a window's row read at once, from images copied into their
    /// padding.
    Merged(Dense),
    /// Each channel separately.
    Depthwise(ByteDepthwise),
}

/// Parameters of a convolution.
#[derive(Debug, Clone)]
pub struct ConvolutionParams<'a> {
    /// The window.
    pub window: Window,
    /// The channels.
    pub channels: Channels,
    /// Weights `[output][kernel height][kernel width][input / groups]`.
    pub weights: &'a [i8],
    /// Zero points of the weights: empty if all are 0, one, or one for each output channel.
    pub weight_zeros: &'a [i32],
    /// Added to the sums of each output channel, in their unit.
    pub bias: Option<&'a [i32]>,
    /// Zero point of the input.
    pub input_zero: i32,
    /// Sign of input bytes.
    pub sign_in: Sign,
    /// Sign of output bytes.
    pub sign_out: Sign,
    /// Conversion of sums to bytes.
    pub requantize: &'a Requantize,
}

impl ByteConvolution {
    /// Packs weights for this instruction set.
    pub fn new(cpu: Cpu, parts: &ConvolutionParams<'_>) -> Result<Self, String> {
        let Channels {
            input,
            output,
            groups,
        } = parts.channels;
        parts.window.check()?;
        let divided = groups > 0 && input.is_multiple_of(groups) && output.is_multiple_of(groups);
        if !divided || input == 0 || output == 0 {
            return Err(format!(
                "channels are not divisible by the groups: {input} input and {output} output channels, {groups} groups"
            ));
        }
        let [kernel_height, kernel_width] = parts.window.kernel;
        let inputs = input / groups;
        let sizes = [output, kernel_height, kernel_width, inputs];
        check_length("the weights", parts.weights.len(), &sizes)?;
        let taps = kernel_height * kernel_width;
        let (limits, factors) = parts.requantize.check(parts.sign_out, output)?;
        let repeated = fit_to_bytes(parts.weights, parts.weight_zeros, output)?;
        let repeats = repeated.len() / parts.weights.len();
        let depthwise = inputs == 1 && output == groups;
        let flip = if depthwise {
            dense::flips_bytes(cpu, parts.sign_in)
        } else {
            dense::flips(cpu, parts.sign_in)
        };
        let sums = SumInputs {
            sign: parts.sign_in,
            zero: parts.input_zero,
            flip,
        };
        let bias = sums.bias(&repeated, parts.bias, output)?;
        let merged = groups == 1 && kernel_width > 1 && parts.window.dilation[1] == 1;
        let merged = merged && (input < MERGE_BELOW_CHANNELS || !inputs.is_multiple_of(4));
        let kernel = if depthwise {
            ByteKernel::Depthwise(ByteDepthwise::new(
                cpu,
                &depthwise::DepthwiseParams {
                    sizes: [output, taps * repeats],
                    stride: parts.window.stride[1],
                    weights: &repeated,
                    bias: &bias,
                    factors: &factors,
                    limits,
                    flip,
                },
            ))
        } else {
            let (taps, inputs) = if merged {
                (kernel_height, kernel_width * inputs)
            } else {
                (taps, inputs)
            };
            let dense = Dense::new(
                cpu,
                &dense::DenseParams {
                    sizes: [groups, output / groups, taps * repeats, inputs],
                    weights: &repeated,
                    bias: &bias,
                    factors: &factors,
                    limits,
                    flip,
                },
            );
            if merged {
                ByteKernel::Merged(dense)
            } else {
                ByteKernel::Dense(dense)
            }
        };
        Ok(Self {
            window: parts.window,
            channels: parts.channels,
            sign: parts.sign_in,
            zero: parts.sign_in.byte(parts.input_zero),
            repeats,
            kernel,
        })
    }

    /// Computes the output bytes of images.
    pub fn run(
        &self,
        placed: &WindowPositions,
        input: &[u8],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let channels = [self.channels.input, self.channels.output];
        placed.check(channels, input.len(), output.len())?;
        if output.is_empty() {
            return Ok(());
        }
        match &self.kernel {
            ByteKernel::Depthwise(depthwise) => {
                let zeros = vec![self.zero; depthwise.padding(placed.input[1])];
                let view = WindowView {
                    window: self.window,
                    placed: *placed,
                    input,
                    zeros: &zeros,
                    repeats: self.repeats,
                };
                // A multiplication here takes about four times as long as in a matrix product.
                let cost = depthwise.channels * depthwise.steps * 16;
                split.rows(output, depthwise.channels, cost, |first, output| {
                    dispatch::pixels(depthwise, &view, first, output);
                });
                Ok(())
            }
            ByteKernel::Dense(dense) | ByteKernel::Merged(dense) => {
                // A whole pixel, or the taps of a window's row.
                let form = dense.form();
                let longest = self.channels.input.div_ceil(form.inputs());
                let zeros = vec![form.word(self.sign, self.zero); longest.max(dense.steps)];
                let merged = matches!(self.kernel, ByteKernel::Merged(_));
                let group_inputs = self.channels.input / self.channels.groups;
                let padded = if merged || !group_inputs.is_multiple_of(form.inputs()) {
                    Some(self.padded(placed, input)?)
                } else {
                    None
                };
                let (placed, input) = match &padded {
                    Some((placed, padded)) => (*placed, padded.as_slice()),
                    None => (*placed, input),
                };
                let input = &*form.words_of(dense.cpu, self.sign, input, split);
                let mut window = self.window;
                if merged {
                    window.kernel[1] = 1;
                }
                let images = Images {
                    window,
                    placed,
                    input,
                    pixel: self.channels.input * form.input_bytes(),
                    zeros: &zeros,
                };
                self.dense(dense, &images, output, split);
                Ok(())
            }
        }
    }

    /// Returns the size of the packed weights, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.kernel {
            ByteKernel::Dense(dense) | ByteKernel::Merged(dense) => dense.bytes(),
            ByteKernel::Depthwise(depthwise) => depthwise.bytes(),
        }
    }

    /// Computes all groups, in blocks of rows.
    fn dense(&self, dense: &Dense, images: &Images<'_>, output: &mut [u8], split: Split) {
        let Channels {
            input,
            output: channels,
            groups,
        } = self.channels;
        let cost = dense.inputs() * channels;
        split.rows(output, channels, cost, |first, output| {
            for (block, output) in output.chunks_mut(ROWS_PER_BLOCK * channels).enumerate() {
                let first = first + block * ROWS_PER_BLOCK;
                let pixels = first..first + output.len() / channels;
                let mut target = TileTarget::Bytes(output);
                let inputs = input / groups;
                // Groups of whole words are read from the same pixels.
                let word = dense.form().inputs();
                let together = inputs.is_multiple_of(word);
                let mut rows = images.rows(dense, pixels.clone(), 0);
                for group in 0..groups {
                    if group > 0 && !together {
                        rows = images.rows(dense, pixels.clone(), group * inputs);
                    }
                    let part = Part {
                        group,
                        lines: 0..dense.group_lines(),
                        stride: channels,
                        column: group * dense.outputs,
                        offset: if together { group * inputs / word } else { 0 },
                    };
                    dispatch::block(dense, &part, &rows, &mut target);
                }
            }
        });
    }

    /// Copies the images into their padding, with room for reading a word at any position.
    fn padded(
        &self,
        placed: &WindowPositions,
        input: &[u8],
    ) -> Result<(WindowPositions, Vec<u8>), String> {
        let channels = self.channels.input;
        let mut sizes = [0; 2];
        for (at, padded) in sizes.iter_mut().enumerate() {
            let steps = (placed.output[at] - 1).checked_mul(self.window.stride[at]);
            let reach = (self.window.kernel[at] - 1) * self.window.dilation[at] + 1;
            let size = steps.and_then(|steps| steps.checked_add(reach));
            // Larger sizes are a mistake, not padding, and would use too much memory.
            let most = placed.input[at] + placed.before[at] + placed.output[at] + reach;
            *padded = match size {
                Some(size) if size <= most + self.window.stride[at] => size,
                _ => {
                    return Err(format!(
                        "invalid output size {:?}: too large for windows of {:?} over an input of {:?}",
                        placed.output, self.window.kernel, placed.input
                    ));
                }
            };
        }
        let [height, width] = sizes;
        let bytes = [placed.batch, height, width, channels];
        let bytes = bytes
            .iter()
            .try_fold(1_usize, |all, size| all.checked_mul(*size));
        let bytes = bytes.and_then(|bytes| bytes.checked_add(3));
        let bytes = bytes.ok_or_else(|| format!("images of {sizes:?} pixels are too large"))?;
        let mut padded = vec![self.zero; bytes];
        let placed = placed.pad(input, channels, (sizes, placed.before), &mut padded);
        Ok((placed, padded))
    }
}

/// Images that a dense product reads, with their windows.
struct Images<'a> {
    window: Window,
    placed: WindowPositions,
    input: &'a [u8],
    /// Number of bytes of a pixel.
    pixel: usize,
    zeros: &'a [[u8; 4]],
}

impl<'a> Images<'a> {
    /// Returns the inputs that the windows of pixels read, starting at a channel.
    fn rows(&self, dense: &Dense, pixels: Range<usize>, channel: usize) -> DenseRows<'a> {
        let before = channel * dense.form().input_bytes();
        let [height, width] = self.placed.input;
        if self.placed.is_pixelwise(self.window) && dense.taps == 1 {
            return DenseRows::of_rows(dense, pixels.len(), |row| {
                let start = (pixels.start + row) * self.pixel + before;
                self.input[start..].as_chunks().0
            });
        }
        let step = self.window.stride[1];
        let locate = |slices: &mut Vec<&'a [[u8; 4]]>, [image, y, x]: [usize; 3], count: usize| {
            if y >= height {
                slices.extend(std::iter::repeat_n(self.zeros, count));
                return;
            }
            let line = (image * height + y) * width;
            let at = |x: usize| self.input[(line + x) * self.pixel + before..].as_chunks().0;
            if x < width && (count - 1) * step < width - x {
                slices.extend((0..count).map(|pixel| at(x + pixel * step)));
                return;
            }
            slices.extend((0..count).map(|pixel| {
                let x = x.wrapping_add(pixel * step);
                if x < width { at(x) } else { self.zeros }
            }));
        };
        let repeats = dense.taps / self.window.taps();
        let mut rows = DenseRows::new(dense, pixels.len());
        rows.each_tile(|slices, first, size| {
            for _ in 0..repeats {
                let tile = [pixels.start + first, size, size];
                self.placed.each_tap(self.window, tile, |corner, count| {
                    locate(slices, corner, count);
                });
            }
        });
        rows
    }
}
