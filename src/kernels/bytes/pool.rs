//! The largest of windows over images of bytes, and means of whole images.

use super::Sign;
use super::elementwise::{Grid, Range, Reader, Writer};
use crate::kernels::length::check_length;
use crate::kernels::simd::compiled;
use crate::kernels::window::{Placed, Window};
use crate::kernels::{Cpu, Split};

compiled! {
    fn raise(flip: u8, from: &[u8], to: &mut [u8]) {
        for (to, byte) in to.iter_mut().zip(from) {
            *to = (*to).max(byte ^ flip);
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
        let factor = self.factor(pixels);
        #[expect(clippy::cast_precision_loss, reason = "pixels of an image")]
        let real = [self.from.scale, pixels.max(1) as f32, self.to.scale];
        split.rows(output, channels, pixels * channels, |first, output| {
            for (image, to) in output.chunks_exact_mut(channels).enumerate() {
                let mut sums = vec![0; channels];
                let start = (first + image) * pixels * channels;
                add(
                    cpu,
                    reader,
                    &input[start..start + pixels * channels],
                    &mut sums,
                );
                match self.rounding {
                    Rounding::Moved => means(cpu, factor, writer, &sums, to),
                    Rounding::Real => real_means(cpu, real, writer, &sums, to),
                }
            }
        });
        Ok(())
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
                each_pixel((window, placed), first + pixel, |at| {
                    raise(cpu, flip, &input[at * channels..(at + 1) * channels], to);
                });
                for byte in to {
                    *byte ^= flip;
                }
            }
        },
    );
    Ok(())
}

/// Calls `work` with the numbers of the pixels that a window has within the image.
fn each_pixel((window, placed): (&Window, &Placed), pixel: usize, mut work: impl FnMut(usize)) {
    let [image, row, column] = placed.pixel(pixel);
    let [height, width] = placed.input;
    for i in 0..window.kernel[0] {
        let y = row * window.stride[0] + i * window.dilation[0];
        let y = y.wrapping_sub(placed.before[0]);
        for j in 0..window.kernel[1] {
            let x = column * window.stride[1] + j * window.dilation[1];
            let x = x.wrapping_sub(placed.before[1]);
            if y < height && x < width {
                work((image * height + y) * width + x);
            }
        }
    }
}
