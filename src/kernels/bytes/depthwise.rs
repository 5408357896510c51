//! Convolutions in which each channel is windowed for itself.

use super::Limits;
use super::tiles::{CHANNELS, INPUTS, Line};
use crate::kernels::Cpu;
use crate::kernels::cpu::Level;
use crate::kernels::window::{Placed, Window};

/// Weights by blocks of channels, taps in fours, and channels as the instructions interleave them.
#[derive(Debug)]
pub(super) struct Depthwise {
    /// What it is packed for.
    pub(super) cpu: Cpu,
    /// Channels of a block.
    pub(super) width: usize,
    /// Neighbouring pixels that fit into a block, where windows lie as close as pixels.
    pub(super) together: usize,
    /// Channels of a pixel.
    pub(super) channels: usize,
    /// Groups of four taps.
    pub(super) quads: usize,
    /// Inputs have another sign than the instructions want.
    pub(super) flip: bool,
    /// What bytes are held to.
    pub(super) limits: Limits,
    /// Weights.
    pub(super) lines: Vec<Line>,
    /// What sums begin with.
    pub(super) bias: Vec<[i32; CHANNELS]>,
    /// Scales.
    pub(super) factors: Vec<[f32; CHANNELS]>,
}

/// What [`Depthwise`] is made of.
pub(super) struct Parts<'a> {
    /// Channels and taps.
    pub(super) sizes: [usize; 2],
    /// Pixels from a window to the next one to its right.
    pub(super) stride: usize,
    /// Weights by channels and taps.
    pub(super) weights: &'a [i8],
    /// What sums begin with, the inputs' zero point accounted for.
    pub(super) bias: &'a [i32],
    /// Scales of all channels.
    pub(super) factors: &'a [f32],
    /// What bytes are held to.
    pub(super) limits: Limits,
    /// Inputs have another sign than the instructions want.
    pub(super) flip: bool,
}

/// Images and the windows over them.
pub(super) struct View<'a> {
    /// The windows.
    pub(super) window: Window,
    /// Where they are.
    pub(super) placed: Placed,
    /// The images.
    pub(super) input: &'a [u8],
    /// Padding: as long as a row of the images, and a block more.
    pub(super) zeros: &'a [u8],
    /// How often the taps are repeated.
    pub(super) repeats: usize,
}

impl<'a> View<'a> {
    /// Finds what the window of a pixel reads: from the pixel of each tap to the end of the images. Gives for
    /// how many pixels from this one on the same is read, each time a step to the right.
    pub(super) fn taps(&self, depthwise: &Depthwise, pixel: usize, taps: &mut [&'a [u8]]) -> usize {
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

/// Channels of a block: as few as there are registers for where half of the larger would be left over.
const fn width(cpu: Cpu, channels: usize, close: bool) -> usize {
    match cpu.level() {
        Level::Avx512 | Level::Avx512Vnni if close && 64 % channels == 0 => 64,
        Level::Avx512 | Level::Avx512Vnni if channels > 32 => 64,
        Level::Plain | Level::Neon | Level::NeonDot => 16,
        _ => 32,
    }
}

impl Depthwise {
    /// Packs weights.
    pub(super) fn new(cpu: Cpu, parts: &Parts<'_>) -> Self {
        let [channels, taps] = parts.sizes;
        let close = parts.stride == 1;
        let width = width(cpu, channels, close);
        let together = if close && width.is_multiple_of(channels) {
            width / channels
        } else {
            1
        };
        let (quads, blocks) = (taps.div_ceil(INPUTS), channels.div_ceil(width));
        let lines = width / CHANNELS;
        let mut depthwise = Self {
            cpu,
            width,
            together,
            channels,
            quads,
            flip: parts.flip,
            limits: parts.limits,
            lines: vec![Line([0; 64]); blocks * quads * lines],
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
                    let quad = (block * quads + tap / INPUTS) * lines;
                    let place = within * INPUTS + tap % INPUTS;
                    depthwise.lines[quad + line].0[place] = weight.cast_unsigned();
                }
            }
        }
        depthwise
    }

    /// Bytes of padding in a row of so many pixels, see [`View::zeros`].
    pub(super) const fn padding(&self, pixels: usize) -> usize {
        (pixels + 1) * self.channels + self.width
    }

    /// Bytes of the packed weights.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
            + size_of_val(self.bias.as_slice())
            + size_of_val(self.factors.as_slice())
    }
}

/// Where a channel of a block is after four taps' bytes were interleaved twice: within each 16 bytes of a
/// register in its order, four of them in each of the four results.
const fn place(width: usize, channel: usize) -> usize {
    let (lane, channel) = (channel / 16, channel % 16);
    channel / 4 * (width / 4) + lane * 4 + channel % 4
}
