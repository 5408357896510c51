//! Max pooling of float32 images `[n, h, w, c]`.

use crate::largest::{WindowMaximum, largest};
use crate::simd::compiled;
use crate::window::{Window, WindowPositions};
use crate::{Cpu, Split};

compiled! {
    fn raise(from: &[f32], to: &mut [f32]) {
        for (to, number) in to.iter_mut().zip(from) {
            *to = if *number > *to || number.is_nan() { *number } else { *to };
        }
    }
}

compiled! {
    fn raise_pixels(sizes: [usize; 2], from: &[f32], to: &mut [f32]) {
        for (to, from) in to.chunks_exact_mut(sizes[1]).zip(from.chunks(sizes[0])) {
            for (to, number) in to.iter_mut().zip(from) {
                *to = if *number > *to || number.is_nan() { *number } else { *to };
            }
        }
    }
}

/// Computes the maximum of each channel over the pixels of each window within the image. It is NaN if one of them is NaN.
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
    let maximum = WindowMaximum {
        least: f32::NEG_INFINITY,
        raise: |from: &[f32], to: &mut [f32]| raise(cpu, from, to),
        raise_pixels: |sizes: [usize; 2], from: &[f32], to: &mut [f32]| {
            if sizes[0] == sizes[1] {
                raise(cpu, from, to);
            } else {
                raise_pixels(cpu, sizes, from, to);
            }
        },
    };
    largest(&maximum, (window, placed), channels, input, output, split);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn maxima_are_those_of_plain_loops(
            kernel in [1_usize..4, 1_usize..4], stride in [1_usize..4, 1_usize..4],
            dilation in [1_usize..3, 1_usize..3], before in [0_usize..3, 0_usize..3],
            sizes in [1_usize..7, 1_usize..7], outputs in [1_usize..6, 1_usize..6],
            channels in 1_usize..40, hole in 0_usize..500,
        ) {
            let window = Window { kernel, stride, dilation };
            let placed = WindowPositions { batch: 2, input: sizes, output: outputs, before };
            let count = 2 * sizes[0] * sizes[1] * channels;
            let mut input: Vec<f32> = (0..count).map(|at| f32::from(u8::try_from(at * 37 % 251).unwrap_or(0)) - 125.0).collect();
            if let Some(number) = input.get_mut(hole) {
                *number = f32::NAN;
            }
            let mut output = vec![0.0; 2 * outputs[0] * outputs[1] * channels];
            for cpu in Cpu::all() {
                let done = largest_of_windows(cpu, (&window, &placed), channels, &input, &mut output, Split::ONE);
                prop_assert_eq!(done, Ok(()));
                for (at, found) in output.iter().enumerate() {
                    let (pixel, channel) = (at / channels, at % channels);
                    let [image, row, column] = placed.pixel(pixel);
                    let mut wanted = f32::NEG_INFINITY;
                    for tap in 0..window.taps() {
                        let y = (row * stride[0] + tap / kernel[1] * dilation[0]).wrapping_sub(before[0]);
                        let x = (column * stride[1] + tap % kernel[1] * dilation[1]).wrapping_sub(before[1]);
                        if y < sizes[0] && x < sizes[1] && !wanted.is_nan() {
                            let number = input[((image * sizes[0] + y) * sizes[1] + x) * channels + channel];
                            wanted = if number.is_nan() { number } else { wanted.max(number) };
                        }
                    }
                    prop_assert!(found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan());
                }
            }
        }
    }
}
