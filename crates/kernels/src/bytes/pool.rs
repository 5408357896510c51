//! Max and average pooling over images of bytes, and means over whole images.

use super::Sign;
use super::elementwise::{ByteReader, ByteWriter, Grid, IntegerRange};
use crate::largest::{WindowMaximum, largest};
use crate::length::check_length;
use crate::simd::compiled;
use crate::window::{Window, WindowPositions, each_run, taps_within};
use crate::{Cpu, Split};

compiled! {
    fn raise(flip: u8, from: &[u8], to: &mut [u8]) {
        for (to, byte) in to.iter_mut().zip(from) {
            *to = (*to).max(byte ^ flip);
        }
    }
}

compiled! {
    fn raise_pixels(sizes: [usize; 2], from: &[u8], to: &mut [u8]) {
        for (to, from) in to.chunks_exact_mut(sizes[1]).zip(from.chunks(sizes[0])) {
            for (to, byte) in to.iter_mut().zip(from) {
                *to = (*to).max(*byte);
            }
        }
    }
}

compiled! {
    fn add(reader: ByteReader, from: &[u8], sums: &mut [i32]) {
        for pixel in from.chunks_exact(sums.len()) {
            for (sum, byte) in sums.iter_mut().zip(pixel) {
                *sum = sum.wrapping_add(reader.read(*byte));
            }
        }
    }
}

compiled! {
    fn means(factor: f32, writer: ByteWriter, sums: &[i32], to: &mut [u8]) {
        for (to, sum) in to.iter_mut().zip(sums) {
            #[expect(clippy::cast_precision_loss, reason = "rounds on purpose")]
            let sum = *sum as f32;
            *to = writer.write_after_zero_point(sum * factor);
        }
    }
}

compiled! {
    fn real_means(of: [f32; 3], writer: ByteWriter, sums: &[i32], to: &mut [u8]) {
        let [scale, count, to_scale] = of;
        for (to, sum) in to.iter_mut().zip(sums) {
            #[expect(clippy::cast_precision_loss, reason = "rounds on purpose")]
            let sum = *sum as f32;
            *to = writer.write(sum * scale / count / to_scale);
        }
    }
}

/// Conversion of a sum to the byte of a mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeanRounding {
    /// XNNPACK's method: multiply by one factor and add the zero point before rounding.
    Fused,
    /// A float32 mean between two quantisations: divide by the count, then round.
    Real,
}

/// The taps of a window that count for its mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedTaps {
    /// Only taps on the image.
    Pixels,
    /// Also taps on its padding, which is zeros.
    ///
    /// The padding before the image is that of the windows. The numbers are the rows below and the
    /// columns on the right.
    Padded([usize; 2]),
}

/// Maximum number of taps of a window. Sums of that many bytes are exact in float32.
pub const MAX_TAPS: usize = 1 << 16;

/// Grids and rounding of a mean.
#[derive(Debug, Clone, Copy)]
pub struct Mean {
    /// Grid of the input.
    pub from: Grid,
    /// Grid of the output.
    pub to: Grid,
    /// Range of the output.
    pub range: IntegerRange,
    /// Conversion of sums to bytes.
    pub rounding: MeanRounding,
}

impl Mean {
    /// Computes the mean of each channel of images `[n, pixels, channels]`.
    pub fn of_images(
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

    /// Computes the mean of each channel over the pixels of each window within the image.
    pub fn of_windows(
        &self,
        cpu: Cpu,
        (window, placed): (&Window, &WindowPositions),
        (channels, counted): (usize, CountedTaps),
        input: &[u8],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        window.check()?;
        if window.taps() > MAX_TAPS {
            let kernel = window.kernel;
            return Err(format!(
                "window {kernel:?} of a mean is too large: at most {MAX_TAPS} taps are supported"
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

    /// Writes the means of sums over `count` pixels.
    fn write(&self, cpu: Cpu, writer: ByteWriter, (sums, count): (&[i32], usize), to: &mut [u8]) {
        match self.rounding {
            MeanRounding::Fused => means(cpu, self.factor(count), writer, sums, to),
            MeanRounding::Real => {
                #[expect(clippy::cast_precision_loss, reason = "number of pixels")]
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

    /// Returns the factor for a sum over this number of pixels.
    #[expect(clippy::cast_precision_loss, reason = "number of pixels")]
    fn factor(&self, pixels: usize) -> f32 {
        self.from.scale / (self.to.scale * pixels.max(1) as f32)
    }
}

/// Computes the maximum of each channel over the pixels of each window within the image.
///
/// Windows without any pixels give the minimum of the range.
pub fn max_pool(
    cpu: Cpu,
    sign: Sign,
    (window, placed): (&Window, &WindowPositions),
    channels: usize,
    input: &[u8],
    output: &mut [u8],
    split: Split,
) -> Result<(), String> {
    window.check()?;
    placed.check([channels; 2], input.len(), output.len())?;
    let flip = sign.flip();
    let maximum = WindowMaximum {
        least: 0,
        raise: |from: &[u8], to: &mut [u8]| raise(cpu, flip, from, to),
        raise_pixels: |sizes: [usize; 2], from: &[u8], to: &mut [u8]| {
            if sizes[0] == sizes[1] {
                raise(cpu, 0, from, to);
            } else {
                raise_pixels(cpu, sizes, from, to);
            }
        },
    };
    largest(&maximum, (window, placed), channels, input, output, split);
    if flip != 0 {
        split.rows(output, 1, 1, |_, output| {
            for byte in output {
                *byte ^= flip;
            }
        });
    }
    Ok(())
}

impl CountedTaps {
    /// Returns the number of taps that count for the window of an output pixel.
    fn of(self, (window, placed): (&Window, &WindowPositions), pixel: usize) -> usize {
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
