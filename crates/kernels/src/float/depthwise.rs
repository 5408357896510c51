//! Depthwise float32 convolutions.

use super::aligned::AlignedNumbers;
use crate::Cpu;
use crate::simd::enter;
use crate::window::{Window, WindowPositions};

/// A convolution in which each output channel reads one input channel. It has at least as many
/// channels as a register has lanes.
pub(super) struct FloatDepthwise {
    cpu: Cpu,
    window: Window,
    channels: usize,
    /// The bias of each channel, then the weights of each channel for every tap.
    packed: AlignedNumbers,
    /// One zero for each channel.
    zeros: Vec<f32>,
}

/// A row of the output, with its inputs.
pub(super) struct DepthwiseRow<'a> {
    window: Window,
    channels: usize,
    bias: &'a [f32],
    /// Weights of the window's rows inside the image.
    weights: &'a [f32],
    /// The image's rows for those weights.
    rows: &'a [&'a [f32]],
    zeros: &'a [f32],
    /// Number of zero columns on the left.
    before: usize,
    added: Option<&'a [f32]>,
    range: [f32; 2],
}

impl FloatDepthwise {
    /// Packs weights `[channel][tap]`, whose number was checked.
    pub(super) fn new(
        cpu: Cpu,
        window: Window,
        channels: usize,
        weights: &[f32],
        bias: Option<&[f32]>,
    ) -> Self {
        let taps = window.taps();
        let mut packed = AlignedNumbers::zeros((taps + 1) * channels);
        let (first, rest) = packed.values_mut().split_at_mut(channels);
        if let Some(bias) = bias {
            first.copy_from_slice(bias);
        }
        for (tap, row) in rest.chunks_exact_mut(channels).enumerate() {
            for (place, weight) in row.iter_mut().zip(weights[tap..].iter().step_by(taps)) {
                *place = *weight;
            }
        }
        let zeros = vec![0.0; channels];
        Self {
            cpu,
            window,
            channels,
            packed,
            zeros,
        }
    }

    /// Computes rows of `row` elements each, starting at number `first`. `added` has the size of
    /// the whole output.
    pub(super) fn rows(
        &self,
        placed: &WindowPositions,
        input: &[f32],
        range: [f32; 2],
        [first, row]: [usize; 2],
        added: Option<&[f32]>,
        output: &mut [f32],
    ) {
        let Window {
            kernel,
            stride,
            dilation,
        } = self.window;
        let [height, width] = placed.input;
        let (bias, weights) = self.packed.values().split_at(self.channels);
        let line = width * self.channels;
        let mut rows: Vec<&[f32]> = Vec::with_capacity(kernel[0]);
        for (number, output) in output.chunks_exact_mut(row).enumerate() {
            let (image, y) = (
                (first + number) / placed.output[0],
                (first + number) % placed.output[0],
            );
            rows.clear();
            let mut above = 0;
            for tap in 0..kernel[0] {
                let y = (y * stride[0] + tap * dilation[0]).wrapping_sub(placed.before[0]);
                if y < height {
                    rows.push(&input[(image * height + y) * line..][..line]);
                } else if rows.is_empty() {
                    above += 1;
                }
            }
            let row = DepthwiseRow {
                window: self.window,
                channels: self.channels,
                bias,
                weights: &weights[above * kernel[1] * self.channels..],
                rows: &rows,
                zeros: &self.zeros,
                before: placed.before[1],
                added: added.map(|added| &added[(first + number) * row..][..row]),
                range,
            };
            line_of(self.cpu, &row, output);
        }
    }

    /// Returns the memory used, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.packed.bytes() + self.zeros.capacity() * size_of::<f32>()
    }
}

impl<'a> DepthwiseRow<'a> {
    /// Returns the pixel of an image's row at this distance in columns from the first window's
    /// start.
    fn pixel(&self, row: &'a [f32], column: usize) -> &'a [f32] {
        let start = column.wrapping_sub(self.before).wrapping_mul(self.channels);
        if column < self.before || start >= row.len() {
            return self.zeros;
        }
        &row[start..][..self.channels]
    }

    /// Locates adjacent pixels, starting there.
    fn pixels(&self, row: &'a [f32], column: usize, into: &mut [&'a [f32]]) {
        let inside = column.checked_sub(self.before).and_then(|start| {
            let start = start * self.channels;
            row.get(start..start + into.len() * self.channels)
        });
        for (number, pixel) in into.iter_mut().enumerate() {
            *pixel = match inside {
                Some(inside) => &inside[number * self.channels..][..self.channels],
                None => self.pixel(row, column + number),
            };
        }
    }
}

/// Maximum number of pixels computed together.
const TOGETHER: usize = 4;

/// Computes some pixels of a row with the function for its window.
macro_rules! together {
    ($pixels:literal, $row:ident, $first:ident, $output:ident) => {{
        let of = $row.window;
        match (of.kernel, of.stride[1]) {
            ([3, 3], 1) if of.dilation[1] == 1 => {
                window::<$pixels, 3, 1, { $pixels + 2 }>($row, $first, $output);
            }
            ([3, 3], 2) if of.dilation[1] == 1 => {
                window::<$pixels, 3, 2, { 2 * $pixels + 1 }>($row, $first, $output);
            }
            ([5, 5], 1) if of.dilation[1] == 1 => {
                window::<$pixels, 5, 1, { $pixels + 4 }>($row, $first, $output);
            }
            ([5, 5], 2) if of.dilation[1] == 1 => {
                window::<$pixels, 5, 2, { 2 * $pixels + 3 }>($row, $first, $output);
            }
            _ => any::<$pixels>($row, $first, $output),
        }
    }};
}

/// Defines the functions for one instruction set.
macro_rules! depthwise {
    (#[$set:meta] $registers:ident) => {
        use super::{DepthwiseRow, TOGETHER};
        use crate::float::registers::$registers::{
            LANES, Register, add, clamp, fused, load, splat, store,
        };
        use crate::window::tiles;

        /// Computes a row of the output.
        #[$set]
        pub(super) fn line_of(row: &DepthwiseRow<'_>, output: &mut [f32]) {
            let mut first = 0;
            for pixels in tiles(output.len() / row.channels, TOGETHER) {
                match pixels {
                    1 => any::<1>(row, first, output),
                    2 => together!(2, row, first, output),
                    3 => together!(3, row, first, output),
                    _ => together!(4, row, first, output),
                }
                first += pixels;
            }
        }

        /// Computes pixels of any window.
        #[$set]
        fn any<const PIXELS: usize>(row: &DepthwiseRow<'_>, first: usize, output: &mut [f32]) {
            let [_, kernel] = row.window.kernel;
            let mut inputs: Vec<[&[f32]; PIXELS]> = Vec::with_capacity(kernel * row.rows.len());
            for line in row.rows {
                for tap in 0..kernel {
                    let mut slices: [&[f32]; PIXELS] = [&[]; PIXELS];
                    for pixel in 0..PIXELS {
                        let column =
                            (first + pixel) * row.window.stride[1] + tap * row.window.dilation[1];
                        slices[pixel] = row.pixel(line, column);
                    }
                    inputs.push(slices);
                }
            }
            for channel in (0..row.channels).step_by(LANES) {
                let channel = channel.min(row.channels - LANES);
                let mut sums = [load(at(row.bias, channel)); PIXELS];
                for (inputs, weights) in inputs.iter().zip(row.weights.chunks_exact(row.channels)) {
                    let weight = load(at(weights, channel));
                    for pixel in 0..PIXELS {
                        sums[pixel] = fused(load(at(inputs[pixel], channel)), weight, sums[pixel]);
                    }
                }
                finish(row, first, channel, &mut sums, output);
            }
        }

        /// Computes pixels of a window whose columns are held in registers.
        #[$set]
        fn window<
            const PIXELS: usize,
            const KERNEL: usize,
            const STRIDE: usize,
            const COLUMNS: usize,
        >(
            row: &DepthwiseRow<'_>,
            first: usize,
            output: &mut [f32],
        ) {
            let mut inputs: [[&[f32]; COLUMNS]; KERNEL] = [[&[]; COLUMNS]; KERNEL];
            for (slices, line) in inputs.iter_mut().zip(row.rows) {
                row.pixels(line, first * STRIDE, slices);
            }
            for channel in (0..row.channels).step_by(LANES) {
                let channel = channel.min(row.channels - LANES);
                let mut sums = [load(at(row.bias, channel)); PIXELS];
                let weights = row.weights.chunks_exact(row.channels * KERNEL);
                for (inputs, weights) in inputs[..row.rows.len()].iter().zip(weights) {
                    let mut values = [sums[0]; COLUMNS];
                    for column in 0..COLUMNS {
                        values[column] = load(at(inputs[column], channel));
                    }
                    for tap in 0..KERNEL {
                        let weight = load(at(weights, tap * row.channels + channel));
                        for pixel in 0..PIXELS {
                            sums[pixel] = fused(values[pixel * STRIDE + tap], weight, sums[pixel]);
                        }
                    }
                }
                finish(row, first, channel, &mut sums, output);
            }
        }

        /// Adds, clamps and writes one register for each pixel.
        #[$set]
        fn finish<const PIXELS: usize>(
            row: &DepthwiseRow<'_>,
            first: usize,
            channel: usize,
            sums: &mut [Register; PIXELS],
            output: &mut [f32],
        ) {
            let (least, most) = (splat(row.range[0]), splat(row.range[1]));
            for pixel in 0..PIXELS {
                let place = (first + pixel) * row.channels + channel;
                if let Some(added) = row.added {
                    sums[pixel] = add(sums[pixel], load(at(added, place)));
                }
                let place = output[place..]
                    .first_chunk_mut()
                    .expect("a register's channels are there");
                store(place, clamp(sums[pixel], least, most));
            }
        }

        /// Returns the numbers starting at a position.
        #[inline(always)]
        fn at(values: &[f32], place: usize) -> &[f32; LANES] {
            values[place..]
                .first_chunk()
                .expect("a register's channels are there")
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    depthwise!(
        #[target_feature(enable = "avx2,fma")]
        avx2
    );
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    depthwise!(
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        avx512
    );
}

#[cfg(target_arch = "aarch64")]
mod neon {
    depthwise!(
        #[target_feature(enable = "neon")]
        neon
    );
}

mod plain {
    depthwise!(
        #[inline]
        plain
    );
}

enter! {
    /// Computes a row of the output.
    fn line_of(row: &DepthwiseRow<'_>, output: &mut [f32]);
}
