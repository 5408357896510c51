//! Packed weights of quantised depthwise convolutions.

use super::ByteLimits;
use super::tiles::{CHANNELS, Line};
use super::words::WordForm;
use crate::Cpu;
use crate::cpu::Level;
use crate::window::{Window, WindowPositions};

/// Packed weights, ordered by blocks of channels, taps in words, and channels as the
/// instructions interleave them.
#[derive(Debug)]
pub(super) struct ByteDepthwise {
    /// Instruction set that the weights are packed for.
    pub(super) cpu: Cpu,
    /// Number of channels in a block.
    pub(super) width: usize,
    /// Number of neighbouring pixels that fit into a block, for windows with stride 1.
    pub(super) together: usize,
    /// Number of channels of a pixel.
    pub(super) channels: usize,
    /// Number of words of taps.
    pub(super) steps: usize,
    /// Whether inputs have another sign than the instructions expect.
    pub(super) flip: bool,
    /// Range of output bytes.
    pub(super) limits: ByteLimits,
    /// Packed weights.
    pub(super) lines: Vec<Line>,
    /// Initial values of the sums.
    pub(super) bias: Vec<[i32; CHANNELS]>,
    /// Scales.
    pub(super) factors: Vec<[f32; CHANNELS]>,
}

/// Parameters for packing [`ByteDepthwise`].
pub(super) struct DepthwiseParams<'a> {
    /// Number of channels and taps.
    pub(super) sizes: [usize; 2],
    /// Number of pixels from a window to the next one on its right.
    pub(super) stride: usize,
    /// Weights, ordered by channels and taps.
    pub(super) weights: &'a [i8],
    /// Initial values of the sums, which include the inputs' zero point.
    pub(super) bias: &'a [i32],
    /// Scales of all channels.
    pub(super) factors: &'a [f32],
    /// Range of output bytes.
    pub(super) limits: ByteLimits,
    /// Whether inputs have another sign than the instructions expect.
    pub(super) flip: bool,
}

/// Images with the windows over them.
pub(super) struct WindowView<'a> {
    /// The window.
    pub(super) window: Window,
    /// Positions of the windows.
    pub(super) placed: WindowPositions,
    /// The images.
    pub(super) input: &'a [u8],
    /// Padding: as long as a row of the images, plus a block.
    pub(super) zeros: &'a [u8],
    /// Number of times that the taps are repeated.
    pub(super) repeats: usize,
}

impl<'a> WindowView<'a> {
    /// Locates the inputs of a pixel's window: for each tap, the image from its pixel to the end.
    ///
    /// Returns the number of pixels, starting at this one, whose taps lie at the same places, each
    /// one step further to the right.
    pub(super) fn taps(
        &self,
        depthwise: &ByteDepthwise,
        pixel: usize,
        taps: &mut [&'a [u8]],
    ) -> usize {
        let [image, row, column] = self.placed.pixel(pixel);
        let [height, width] = self.placed.input;
        let [kernel_height, kernel_width] = self.window.kernel;
        let (stride, dilation) = (self.window.stride, self.window.dilation);
        let left = (column * stride[1]).wrapping_sub(self.placed.before[1]);
        let right = left.wrapping_add((kernel_width - 1) * dilation[1]);
        let mut places = taps.iter_mut();
        for _ in 0..self.repeats {
            for i in 0..kernel_height {
                let y = row * stride[0] + i * dilation[0];
                let y = y.wrapping_sub(self.placed.before[0]);
                for (j, place) in (0..kernel_width).zip(&mut places) {
                    let x = left.wrapping_add(j * dilation[1]);
                    *place = if y < height && x < width {
                        &self.input[((image * height + y) * width + x) * depthwise.channels..]
                    } else {
                        self.zeros
                    };
                }
            }
        }
        if left < width && right < width {
            let most = self.placed.output[1] - column;
            most.min((width - 1 - right) / stride[1] + 1)
        } else {
            1
        }
    }
}

/// Returns the number of channels in a block: the smaller size if half of a larger block would be
/// unused.
const fn width(cpu: Cpu, channels: usize, close: bool) -> usize {
    match cpu.level() {
        Level::Avx512 | Level::Avx512Vnni if close && 64 % channels == 0 => 64,
        Level::Avx512 | Level::Avx512Vnni if channels > 32 => 64,
        Level::Plain | Level::Neon | Level::NeonDot | Level::NeonMatrix => 16,
        _ => 32,
    }
}

impl ByteDepthwise {
    /// Packs weights.
    pub(super) fn new(cpu: Cpu, parts: &DepthwiseParams<'_>) -> Self {
        let [channels, taps] = parts.sizes;
        let close = parts.stride == 1;
        let width = width(cpu, channels, close);
        let together = if close && width.is_multiple_of(channels) {
            width / channels
        } else {
            1
        };
        let form = WordForm::of(cpu);
        let (steps, blocks) = (taps.div_ceil(form.inputs()), channels.div_ceil(width));
        let lines = width / CHANNELS;
        let mut depthwise = Self {
            cpu,
            width,
            together,
            channels,
            steps,
            flip: parts.flip,
            limits: parts.limits,
            lines: vec![Line([0; 64]); blocks * steps * lines],
            bias: vec![[0; CHANNELS]; blocks * lines],
            factors: vec![[0.0; CHANNELS]; blocks * lines],
        };
        for (channel, weights) in parts.weights.chunks_exact(taps).enumerate() {
            for copy in 0..together {
                let (block, in_block) = (channel / width, channel % width + copy * channels);
                let place = place(width, in_block);
                let (line, within) = (place / CHANNELS, place % CHANNELS);
                depthwise.bias[block * lines + line][within] = parts.bias[channel];
                depthwise.factors[block * lines + line][within] = parts.factors[channel];
                for (tap, weight) in weights.iter().enumerate() {
                    let step = (block * steps + tap / form.inputs()) * lines;
                    let line = &mut depthwise.lines[step + line];
                    form.put(line, within, tap % form.inputs(), *weight);
                }
            }
        }
        depthwise
    }

    /// Returns the size of the padding for a row of `pixels` pixels, in bytes; see [`WindowView::zeros`].
    pub(super) const fn padding(&self, pixels: usize) -> usize {
        (pixels + 1) * self.channels + self.width
    }

    /// Returns the size of the packed weights, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
            + size_of_val(self.bias.as_slice())
            + size_of_val(self.factors.as_slice())
    }
}

/// Returns the position of a channel of a block after interleaving the bytes of taps twice.
///
/// Channels keep their order within each 16 bytes of a register; each of the four results has four
/// of them.
const fn place(width: usize, channel: usize) -> usize {
    let (lane, channel) = (channel / 16, channel % 16);
    channel / 4 * (width / 4) + lane * 4 + channel % 4
}
