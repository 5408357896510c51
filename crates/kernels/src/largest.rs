//! Maxima over windows of images `[n, h, w, c]`: over rows first, then over columns, in long runs of elements.

use crate::Split;
use crate::window::{Window, WindowPositions, taps_within};

/// The result without elements, and how a maximum is raised by more.
pub(crate) struct WindowMaximum<T, R, P> {
    /// The result of a window without pixels.
    pub(crate) least: T,
    /// Raises elements to those of an input row: `(from, to)`.
    pub(crate) raise: R,
    /// Raises pixels of so many channels to others that are so many elements apart: `([stride, channels], from, to)`.
    pub(crate) raise_pixels: P,
}

/// Computes the maximum of each channel over the pixels of each window within the image. Lengths must be checked before.
pub(crate) fn largest<T, R, P>(
    maximum: &WindowMaximum<T, R, P>,
    (window, placed): (&Window, &WindowPositions),
    channels: usize,
    input: &[T],
    output: &mut [T],
    split: Split,
) where
    T: Copy + Send + Sync,
    R: Fn(&[T], &mut [T]) + Sync,
    P: Fn([usize; 2], &[T], &mut [T]) + Sync,
{
    let ([height, width], [rows, columns]) = (placed.input, placed.output);
    let (line_length, row) = (width * channels, columns * channels);
    let within = |axis: usize, place: usize| {
        let before = placed.before[axis];
        taps_within(window, axis, place, &(before..before + placed.input[axis]))
    };
    split.rows(output, row, row * window.taps(), |first, output| {
        let mut line = vec![maximum.least; line_length];
        for (number, to) in (first..).zip(output.chunks_exact_mut(row)) {
            line.fill(maximum.least);
            for tap in within(0, number % rows) {
                let y =
                    number % rows * window.stride[0] + tap * window.dilation[0] - placed.before[0];
                let start = (number / rows * height + y) * line_length;
                (maximum.raise)(&input[start..start + line_length], &mut line);
            }
            to.fill(maximum.least);
            for tap in 0..window.kernel[1] {
                let (tap, stride) = (tap * window.dilation[1], window.stride[1]);
                // The first output pixel whose tap lies on the image, and the one after the last.
                let first = placed.before[1].saturating_sub(tap).div_ceil(stride);
                let end = (width + placed.before[1])
                    .saturating_sub(tap)
                    .div_ceil(stride)
                    .min(columns);
                if first < end {
                    let from = first * stride + tap - placed.before[1];
                    let to = &mut to[first * channels..end * channels];
                    (maximum.raise_pixels)(
                        [stride * channels, channels],
                        &line[from * channels..],
                        to,
                    );
                }
            }
        }
    });
}
