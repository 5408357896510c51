//! The largest of windows over images of bytes, and means of windows and of whole images.

use std::ops::Range as Places;

use super::Sign;
use super::elementwise::{Grid, Range, Reader, Writer};
use crate::kernels::length::check_length;
use crate::kernels::simd::compiled;
use crate::kernels::window::{Placed, Window};
use crate::kernels::{Cpu, Split};

compiled! {
    fn raise(flip: u8, from: &[u8], to: &mut [u8]) {
        for pixel in from.chunks_exact(to.len()) {
            for (to, byte) in to.iter_mut().zip(pixel) {
                *to = (*to).max(byte ^ flip);
            }
        }
    }
}

compiled! {
    fn add(reader: Reader, from: &[u8], sums: &mut [i32]) {
        for pixel in from.chunks_exact(sums.len()) {
            for (sum, byte) in sums.iter_mut().zip(pixel) {
                *sum = sum.wrapping_add(reader.read(*byte));
            }
        }
    }
}

compiled! {
    fn means(factor: f32, writer: Writer, sums: &[i32], to: &mut [u8]) {
        for (to, sum) in to.iter_mut().zip(sums) {
            #[expect(clippy::cast_precision_loss, reason = "rounded as it is to be")]
            let sum = *sum as f32;
            *to = writer.write_moved(sum * factor);
        }
    }
}

compiled! {
    fn real_means(of: [f32; 3], writer: Writer, sums: &[i32], to: &mut [u8]) {
        let [scale, count, to_scale] = of;
        for (to, sum) in to.iter_mut().zip(sums) {
            #[expect(clippy::cast_precision_loss, reason = "rounded as it is to be")]
            let sum = *sum as f32;
            *to = writer.write(sum * scale / count / to_scale);
        }
    }
}

/// How a sum becomes the byte of a mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// As XNNPACK does: times one factor, the zero point added before it is rounded.
    Moved,
    /// As a mean in float32 between two quantizations: the number divided by the count, then rounded.
    Real,
}

/// Which taps of a window its mean is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Those that lie on the image.
    Pixels,
    /// Those on its padding too, which is zeros: as much before it as windows have there, and so many rows below and
    /// columns to its right.
    Padded([usize; 2]),
}

/// Most taps of a window: sums of so many bytes stay whole in float32.
pub(crate) const MOST_TAPS: usize = 1 << 16;

/// The grids of a mean's input and output, and what the output is held to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mean {
    /// The input's grid.
    pub(crate) from: Grid,
    /// The output's.
    pub(crate) to: Grid,
    /// What the output is held to.
    pub(crate) range: Range,
    /// How sums become bytes.
    pub(crate) rounding: Rounding,
}

impl Mean {
    /// The mean of each channel of images `[n, pixels, channels]`.
    pub(crate) fn of_images(
        &self,
        cpu: Cpu,
        [batch, pixels, channels]: [usize; 3],
        input: &[u8],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        let (reader, writer) = (self.from.reader()?, self.to.writer(self.range)?);
        check_length("the input", input.len(), &[batch, pixels, channels])?;
        check_length("the output", output.len(), &[batch, channels])?;
        split.rows(output, channels, pixels * channels, |first, output| {
            let mut sums = vec![0; channels];
            for (image, to) in output.chunks_exact_mut(channels).enumerate() {
                let start = (first + image) * pixels * channels;
                let image = &input[start..start + pixels * channels];
                sums.fill(0);
                add(cpu, reader, image, &mut sums);
                self.write(cpu, writer, (&sums, pixels), to);
            }
        });
        Ok(())
    }

    /// The mean of each channel of the pixels that windows have within images.
    pub(crate) fn of_windows(
        &self,
        cpu: Cpu,
        (window, placed): (&Window, &Placed),
        (channels, counted): (usize, Counted),
        input: &[u8],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        window.check()?;
        if window.taps() > MOST_TAPS {
            let kernel = window.kernel;
            return Err(format!(
                "a mean of a window of {kernel:?}; at most {MOST_TAPS} taps are wanted"
            ));
        }
        placed.check([channels; 2], input.len(), output.len())?;
        let (reader, writer) = (self.from.reader()?, self.to.writer(self.range)?);
        let cost = window.taps() * channels;
        split.rows(output, channels, cost, |first, output| {
            let mut sums = vec![0; channels];
            for (pixel, to) in output.chunks_exact_mut(channels).enumerate() {
                sums.fill(0);
                each_run((window, placed), first + pixel, |run| {
                    let run = run.start * channels..run.end * channels;
                    add(cpu, reader, &input[run], &mut sums);
                });
                let count = counted.of((window, placed), first + pixel);
                self.write(cpu, writer, (&sums, count), to);
            }
        });
        Ok(())
    }

    /// Writes the means of sums of so many pixels.
    fn write(&self, cpu: Cpu, writer: Writer, (sums, count): (&[i32], usize), to: &mut [u8]) {
        match self.rounding {
            Rounding::Moved => means(cpu, self.factor(count), writer, sums, to),
            Rounding::Real => {
                #[expect(clippy::cast_precision_loss, reason = "pixels of an image")]
                let count = count.max(1) as f32;
                real_means(
                    cpu,
                    [self.from.scale, count, self.to.scale],
                    writer,
                    sums,
                    to,
                );
            }
        }
    }

    /// What a sum of so many pixels is multiplied by.
    #[expect(clippy::cast_precision_loss, reason = "pixels of an image")]
    fn factor(&self, pixels: usize) -> f32 {
        self.from.scale / (self.to.scale * pixels.max(1) as f32)
    }
}

/// The largest number of each channel of the pixels that windows have within the image; the least there is
/// where they have none.
pub(crate) fn largest(
    cpu: Cpu,
    sign: Sign,
    (window, placed): (&Window, &Placed),
    channels: usize,
    input: &[u8],
    output: &mut [u8],
    split: Split,
) -> Result<(), String> {
    window.check()?;
    placed.check([channels; 2], input.len(), output.len())?;
    let flip = sign.flip();
    split.rows(
        output,
        channels,
        window.taps() * channels,
        |first, output| {
            for (pixel, to) in output.chunks_exact_mut(channels).enumerate() {
                to.fill(0);
                each_run((window, placed), first + pixel, |run| {
                    let run = run.start * channels..run.end * channels;
                    raise(cpu, flip, &input[run], to);
                });
                for byte in to {
                    *byte ^= flip;
                }
            }
        },
    );
    Ok(())
}

impl Counted {
    /// How many taps of the window count whose output is this pixel.
    fn of(self, (window, placed): (&Window, &Placed), pixel: usize) -> usize {
        let [_, row, column] = placed.pixel(pixel);
        let along = |axis: usize, place: usize| {
            let (before, size) = (placed.before[axis], placed.input[axis]);
            let bounds = match self {
                Self::Pixels => before..before + size,
                Self::Padded(after) => 0..before + size + after[axis],
            };
            taps_within(window, axis, place, &bounds).len()
        };
        along(0, row) * along(1, column)
    }
}

/// The taps along an axis of the window at a place of the output that lie in these bounds, counted from where
/// padding begins.
fn taps_within(
    window: &Window,
    axis: usize,
    place: usize,
    bounds: &Places<usize>,
) -> Places<usize> {
    let start = place * window.stride[axis];
    let until = |bound: usize| {
        let taps = bound.saturating_sub(start).div_ceil(window.dilation[axis]);
        taps.min(window.kernel[axis])
    };
    until(bounds.start)..until(bounds.end)
}

/// Calls `work` with the numbers of the pixels that a window has within the image, as many at a time as lie beside
/// each other.
fn each_run(
    (window, placed): (&Window, &Placed),
    pixel: usize,
    mut work: impl FnMut(Places<usize>),
) {
    let [image, row, column] = placed.pixel(pixel);
    let [height, width] = placed.input;
    let taps = |axis: usize, place: usize| {
        let before = placed.before[axis];
        let taps = taps_within(window, axis, place, &(before..before + placed.input[axis]));
        let (start, step) = (place * window.stride[axis], window.dilation[axis]);
        taps.map(move |tap| start + tap * step - before)
    };
    for y in taps(0, row) {
        let line = (image * height + y) * width;
        if window.dilation[1] > 1 {
            for x in taps(1, column) {
                work(line + x..line + x + 1);
            }
            continue;
        }
        let mut columns = taps(1, column);
        if let Some(x) = columns.next() {
            work(line + x..line + x + 1 + columns.len());
        }
    }
}
