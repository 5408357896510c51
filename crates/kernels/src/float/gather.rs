//! Locates the inputs of a convolution's windows: slices of the input, and zeros outside of it.

use std::borrow::Cow;

use super::Channels;
use crate::window::{Window, WindowPositions};

/// Number of input channels below which the taps of a window's row are read as one: locating a tap takes as long as
/// multiplying some dozens of channels.
const MERGE_BELOW_CHANNELS: usize = 256;

/// Minimum number of windows in a row for each column of a window. If there are fewer, so many reach over the border that
/// copying the image takes less time than assembling them.
const MIN_WINDOWS_PER_TAP: usize = 4;

/// Maximum width of a copied image, in widths of the image.
const MAX_PADDED_WIDTHS: usize = 4;

/// How the taps of a convolution's windows are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowTaps {
    window: Window,
    /// Number of channels of an image.
    channels: usize,
    /// Whether a tap is a whole row of a window, whose pixels are adjacent.
    merged: bool,
    /// Number of elements of a tap.
    run: usize,
}

/// An input, with zeros for its padding.
pub(super) struct GatherSource<'a> {
    placed: WindowPositions,
    input: Cow<'a, [f32]>,
    /// As many zeros as a tap has elements.
    zeros: Vec<f32>,
}

impl<'a> GatherSource<'a> {
    /// Prepares an input, whose length was checked.
    pub(super) fn new(taps: &WindowTaps, placed: &WindowPositions, input: &'a [f32]) -> Self {
        let zeros = vec![0.0; taps.run];
        let (placed, input) = match taps.padded(placed, input) {
            Some((placed, padded)) => (placed, Cow::Owned(padded)),
            None => (*placed, Cow::Borrowed(input)),
        };
        Self {
            placed,
            input,
            zeros,
        }
    }
}

impl WindowTaps {
    /// Returns the taps of a convolution.
    pub(super) fn new(window: Window, channels: Channels) -> Self {
        let rows = channels.groups == 1
            && channels.input < MERGE_BELOW_CHANNELS
            && window.kernel[1] > 1
            && window.dilation[1] == 1;
        let run = channels.inner() * if rows { window.kernel[1] } else { 1 };
        Self {
            window,
            channels: channels.input,
            merged: rows,
            run,
        }
    }

    /// Returns the number of taps of a pixel.
    pub(super) const fn count(&self) -> usize {
        self.read().taps()
    }

    /// Returns the window with the taps that are read as one.
    const fn read(&self) -> Window {
        let mut window = self.window;
        if self.merged {
            window.kernel[1] = 1;
        }
        window
    }

    /// Copies images into columns of zeros, if many of their merged windows reach over the border.
    fn padded(
        &self,
        placed: &WindowPositions,
        input: &[f32],
    ) -> Option<(WindowPositions, Vec<f32>)> {
        let ([height, width], left) = (placed.input, placed.before[1]);
        let (columns, kernel) = (placed.output[1], self.window.kernel[1]);
        let padded = (columns.saturating_sub(1)).saturating_mul(self.window.stride[1]) + kernel;
        let is_narrow = columns < MIN_WINDOWS_PER_TAP * kernel && padded > width;
        let is_small = left <= padded && padded <= width.saturating_mul(MAX_PADDED_WIDTHS);
        if !self.merged || !is_narrow || !is_small {
            return None;
        }
        let mut all = vec![0.0; placed.batch * height * padded * self.channels];
        let place = ([height, padded], [0, left]);
        let placed = placed.pad(input, self.channels, place, &mut all);
        Some((placed, all))
    }

    /// Writes the input slices for output pixels starting at `first` into `slices`, in the order of
    /// [`super::tile::Strip`].
    ///
    /// Tiles have at most `most` pixels; slices start at input channel `channel`. Window rows
    /// across the border are assembled in `scratch`.
    pub(super) fn gather<'a>(
        &self,
        source: &'a GatherSource<'_>,
        [first, pixels, most]: [usize; 3],
        channel: usize,
        scratch: &'a mut Vec<f32>,
        slices: &mut Vec<&'a [f32]>,
    ) {
        let placed = &source.placed;
        let [height, width] = placed.input;
        if placed.is_pixelwise(self.window) {
            let from = &source.input[first * self.channels + channel..];
            let from = from.chunks(self.channels).take(pixels);
            slices.extend(from.map(|pixel| &pixel[..self.run]));
            return;
        }
        scratch.clear();
        if self.merged {
            placed.each_tap(self.read(), [first, pixels, most], |corner, pixels| {
                self.put_together(source, corner, pixels, scratch);
            });
        }
        let mut borders = scratch.chunks_exact(self.run);
        let step = self.window.stride[1];
        let reach = if self.merged {
            self.window.kernel[1]
        } else {
            1
        };
        placed.each_tap(
            self.read(),
            [first, pixels, most],
            |[image, y, x], pixels| {
                if y >= height {
                    slices.extend(std::iter::repeat_n(&*source.zeros, pixels));
                    return;
                }
                let line = (image * height + y) * width * self.channels;
                let line = &source.input[line..][..width * self.channels];
                if x < width && (pixels - 1) * step + reach <= width - x {
                    let from = &line[x * self.channels + channel..];
                    let from = from.windows(self.run).step_by(step * self.channels);
                    slices.extend(from.take(pixels));
                    return;
                }
                slices.extend((0..pixels).map(|pixel| {
                    let x = x.wrapping_add(pixel * step);
                    if self.merged && !self.is_inside(x, width) {
                        borders.next().unwrap_or_default()
                    } else if x >= width {
                        &source.zeros
                    } else {
                        &line[x * self.channels + channel..][..self.run]
                    }
                }));
            },
        );
    }

    /// Returns whether all pixels of a window's row that starts at this column are inside the
    /// image.
    const fn is_inside(&self, x: usize, width: usize) -> bool {
        x < width && self.window.kernel[1] <= width - x
    }

    /// Assembles the window rows of adjacent pixels that are partly outside of the image.
    fn put_together(
        &self,
        source: &GatherSource<'_>,
        [image, y, x]: [usize; 3],
        pixels: usize,
        scratch: &mut Vec<f32>,
    ) {
        let [height, width] = source.placed.input;
        let step = self.window.stride[1];
        let is_inside =
            self.is_inside(x, width) && (pixels - 1) * step + self.window.kernel[1] <= width - x;
        if y >= height || is_inside {
            return;
        }
        let line = (image * height + y) * width * self.channels;
        let line = &source.input[line..][..width * self.channels];
        for pixel in 0..pixels {
            let x = x.wrapping_add(pixel * step);
            if self.is_inside(x, width) {
                continue;
            }
            for right in 0..self.window.kernel[1] {
                let x = x.wrapping_add(right);
                if x < width {
                    scratch.extend_from_slice(&line[x * self.channels..][..self.channels]);
                } else {
                    scratch.resize(scratch.len() + self.channels, 0.0);
                }
            }
        }
    }
}
