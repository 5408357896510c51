//! Convolutions in which each channel is windowed for itself.

#[cfg(target_arch = "aarch64")]
use super::neon;
use super::tiles::{CHANNELS, INPUTS, Line};
#[cfg(target_arch = "x86_64")]
use super::x86;
use super::{Limits, plain};
use crate::kernels::Cpu;
use crate::kernels::cpu::Level;
use crate::kernels::simd::inside;
use crate::kernels::window::{Placed, Window};

/// Weights by blocks of channels, taps in fours, and channels as the instructions interleave them.
#[derive(Debug)]
pub(super) struct Depthwise {
    cpu: Cpu,
    /// Channels of a block.
    width: usize,
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
    /// A pixel of the padding.
    pub(super) zeros: &'a [u8],
    /// How often the taps are repeated.
    pub(super) repeats: usize,
}

impl<'a> View<'a> {
    /// Finds what the window of a pixel reads: from the pixel of each tap to the end of the images.
    pub(super) fn taps(&self, depthwise: &Depthwise, pixel: usize, taps: &mut [&'a [u8]]) {
        let [image, row, column] = self.placed.pixel(pixel);
        let [height, width] = self.placed.input;
        let [kernel_height, kernel_width] = self.window.kernel;
        let mut places = taps.iter_mut();
        for _ in 0..self.repeats {
            for i in 0..kernel_height {
                let y = row * self.window.stride[0] + i * self.window.dilation[0];
                let y = y.wrapping_sub(self.placed.before[0]);
                for (j, place) in (0..kernel_width).zip(&mut places) {
                    let x = column * self.window.stride[1] + j * self.window.dilation[1];
                    let x = x.wrapping_sub(self.placed.before[1]);
                    *place = if y < height && x < width {
                        &self.input[((image * height + y) * width + x) * depthwise.channels..]
                    } else {
                        self.zeros
                    };
                }
            }
        }
    }
}

/// Channels of a block: as few as there are registers for where many would be left over.
const fn width(cpu: Cpu, channels: usize) -> usize {
    match cpu.level() {
        Level::Avx512 | Level::Avx512Vnni => match channels % 64 {
            1..=32 if channels < 256 => 32,
            _ => 64,
        },
        Level::Avx2 | Level::Avx2Vnni => 32,
        Level::Plain | Level::Neon | Level::NeonDot => 16,
    }
}

impl Depthwise {
    /// Packs weights.
    pub(super) fn new(cpu: Cpu, parts: &Parts<'_>) -> Self {
        let [channels, taps] = parts.sizes;
        let width = width(cpu, channels);
        let (quads, blocks) = (taps.div_ceil(INPUTS), channels.div_ceil(width));
        let lines = width / CHANNELS;
        let mut depthwise = Self {
            cpu,
            width,
            channels,
            quads,
            flip: parts.flip,
            limits: parts.limits,
            lines: vec![Line([0; 64]); blocks * quads * lines],
            bias: vec![[0; CHANNELS]; blocks * lines],
            factors: vec![[0.0; CHANNELS]; blocks * lines],
        };
        for (channel, weights) in parts.weights.chunks_exact(taps).enumerate() {
            let (block, channel_in_block) = (channel / width, channel % width);
            let place = place(width, channel_in_block);
            let (line, lane) = (place / CHANNELS, place % CHANNELS);
            depthwise.bias[block * lines + line][lane] = parts.bias[channel];
            depthwise.factors[block * lines + line][lane] = parts.factors[channel];
            for (tap, weight) in weights.iter().enumerate() {
                let quad = (block * quads + tap / INPUTS) * lines;
                let place = lane * INPUTS + tap % INPUTS;
                depthwise.lines[quad + line].0[place] = weight.cast_unsigned();
            }
        }
        depthwise
    }

    /// Channels of the padding's pixel: whole blocks.
    pub(super) const fn padded(&self) -> usize {
        self.channels.next_multiple_of(self.width)
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

/// Computes the pixels of `output`, whose first has the number `first`.
pub(super) fn pixels(depthwise: &Depthwise, view: &View<'_>, first: usize, output: &mut [u8]) {
    match (depthwise.cpu.level(), depthwise.width) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512Vnni, 64) => inside!(
            "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
            x86::vnni_512::pixels,
            depthwise: &Depthwise, view: &View<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512Vnni, 32) => inside!(
            "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
            x86::narrow_vnni_512::pixels,
            depthwise: &Depthwise, view: &View<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 64) => inside!(
            "avx512f,avx512bw,avx512dq,avx512vl",
            x86::pairs_512::pixels,
            depthwise: &Depthwise, view: &View<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2Vnni, 32) => inside!(
            "avx2,fma,avxvnni",
            x86::vnni_256::pixels,
            depthwise: &Depthwise, view: &View<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512 | Level::Avx2, 32) => inside!(
            "avx2,fma",
            x86::pairs_256::pixels,
            depthwise: &Depthwise, view: &View<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "aarch64")]
        (Level::NeonDot, 16) => inside!(
            "neon,dotprod",
            neon::dot::pixels,
            depthwise: &Depthwise, view: &View<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "aarch64")]
        (Level::Neon, 16) => inside!(
            "neon",
            neon::pairs::pixels,
            depthwise: &Depthwise, view: &View<'_>, first: usize, output: &mut [u8]
        ),
        _ => plain::pixels(depthwise, view, first, output),
    }
}
