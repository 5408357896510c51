//! Max pooling of float32 images `[n, h, w, c]`.

use crate::simd::compiled;
use crate::window::{Window, WindowPositions, each_run};
use crate::{Cpu, Split};

compiled! {
    fn raise(from: &[f32], to: &mut [f32]) {
        for pixel in from.chunks_exact(to.len()) {
            for (to, number) in to.iter_mut().zip(pixel) {
                *to = if *number > *to || number.is_nan() { *number } else { *to };
            }
        }
    }
}

/// Computes the maximum of each channel over the pixels of each window within the image. It is not a number if one of them
/// is none.
///
/// Windows without any pixels give minus infinity.
pub fn largest_of_windows(
    cpu: Cpu,
    (window, placed): (&Window, &WindowPositions),
    channels: usize,
    input: &[f32],
    output: &mut [f32],
    split: Split,
) -> Result<(), String> {
    window.check()?;
    placed.check([channels; 2], input.len(), output.len())?;
    let cost = window.taps() * channels;
    split.rows(output, channels, cost, |first, output| {
        for (pixel, to) in output.chunks_exact_mut(channels).enumerate() {
            to.fill(f32::NEG_INFINITY);
            each_run((window, placed), first + pixel, |run| {
                raise(cpu, &input[run.start * channels..run.end * channels], to);
            });
        }
    });
    Ok(())
}
