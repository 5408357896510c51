//! Sliding windows over images, and their positions.

use std::ops::Range as Places;

/// Windows over images `[n, h, w, c]`, with rows and columns of each size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Number of taps.
    pub kernel: [usize; 2],
    /// Number of pixels from one window to the next.
    pub stride: [usize; 2],
    /// Number of pixels from one tap to the next.
    pub dilation: [usize; 2],
}

/// Positions of windows in one run, from sizes known only at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowPositions {
    /// Number of images.
    pub batch: usize,
    /// Height and width of an image.
    pub input: [usize; 2],
    /// Height and width of a result.
    pub output: [usize; 2],
    /// Rows of zeros above an image and columns on its left. Below and on the right there are as
    /// many as windows reach.
    pub before: [usize; 2],
}

/// Maximum stride, dilation, kernel size and padding.
const MAX_WINDOW_SIZE: usize = 1 << 20;

impl Window {
    /// A window of one pixel.
    pub const PIXEL: Self = Self {
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
    };

    /// Returns the window with rows and columns exchanged.
    #[must_use]
    pub fn turned(mut self) -> Self {
        self.kernel.reverse();
        self.stride.reverse();
        self.dilation.reverse();
        self
    }

    /// Returns the number of taps of a window.
    pub(crate) const fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Fails if a size is 0 or too large for safe arithmetic.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sizes = [self.kernel, self.stride, self.dilation];
        if sizes
            .iter()
            .flatten()
            .all(|size| (1..=MAX_WINDOW_SIZE).contains(size))
        {
            return Ok(());
        }
        let [kernel, stride, dilation] = sizes;
        Err(format!(
            "invalid window: kernel {kernel:?}, strides {stride:?}, dilations {dilation:?}; expected sizes from 1 to {MAX_WINDOW_SIZE}"
        ))
    }
}

impl WindowPositions {
    /// Fails unless `input` and `output` have the number of elements of images with these channels.
    pub(crate) fn check(
        &self,
        channels: [usize; 2],
        input: usize,
        output: usize,
    ) -> Result<(), String> {
        let sides = [
            ("input", self.input, channels[0], input),
            ("output", self.output, channels[1], output),
        ];
        for (side, [height, width], channels, found) in sides {
            let shape = [self.batch, height, width, channels];
            let elements = shape
                .iter()
                .try_fold(1_usize, |all, size| all.checked_mul(*size));
            if elements != Some(found) {
                return Err(format!(
                    "the {side} has {found} elements: expected shape {shape:?}"
                ));
            }
        }
        if self.before.iter().any(|before| *before > MAX_WINDOW_SIZE) {
            return Err(format!(
                "padding {:?} is too large: at most {MAX_WINDOW_SIZE} is supported",
                self.before
            ));
        }
        Ok(())
    }

    /// Returns the positions in images whose rows and columns are exchanged.
    #[must_use]
    pub fn turned(mut self) -> Self {
        self.input.reverse();
        self.output.reverse();
        self.before.reverse();
        self
    }

    /// Copies images into larger ones that begin `before` rows and columns earlier.
    /// Rows and columns that do not fit are left out. `to` holds the larger images, filled, and may
    /// be longer.
    pub(crate) fn pad<T: Copy>(
        &self,
        images: &[T],
        channels: usize,
        ([height, width], before): ([usize; 2], [usize; 2]),
        to: &mut [T],
    ) -> Self {
        let [top, left] = before;
        let [from_height, from_width] = self.input;
        let read = from_width.min(width.saturating_sub(left)) * channels;
        if read > 0 && from_height > 0 {
            let lines = images.chunks_exact(from_width * channels).enumerate();
            for (from, line) in lines {
                let (image, y) = (from / from_height, from % from_height + top);
                if y < height {
                    let start = ((image * height + y) * width + left) * channels;
                    to[start..start + read].copy_from_slice(&line[..read]);
                }
            }
        }
        Self {
            input: [height, width],
            before: [self.before[0] - top, self.before[1] - left],
            ..*self
        }
    }

    /// Returns whether each output pixel depends only on the input pixel at the same position.
    pub(crate) fn is_pixelwise(&self, window: Window) -> bool {
        window == Window::PIXEL && self.before == [0; 2] && self.output == self.input
    }

    /// Calls `found` for each tap of each tile of at most `most` pixels, with the image, row and column of the first
    /// pixel's tap.
    ///
    /// It also passes the number of pixels that follow in the same output row. Rows and columns
    /// before the first one are numbers outside of any image.
    pub(crate) fn each_tap(
        &self,
        Window {
            kernel,
            stride,
            dilation,
        }: Window,
        [first, pixels, most]: [usize; 3],
        mut found: impl FnMut([usize; 3], usize),
    ) {
        let mut first = self.pixel(first);
        for rows in tiles(pixels, most) {
            let mut after = first;
            for down in 0..kernel[0] {
                for right in 0..kernel[1] {
                    let [mut image, mut y, mut x] = first;
                    let mut rest = rows;
                    while rest > 0 {
                        let here = rest.min(self.output[1] - x);
                        let down = y * stride[0] + down * dilation[0];
                        let right = x * stride[1] + right * dilation[1];
                        let corner = [
                            image,
                            down.wrapping_sub(self.before[0]),
                            right.wrapping_sub(self.before[1]),
                        ];
                        found(corner, here);
                        rest -= here;
                        x += here;
                        if x == self.output[1] {
                            (x, y) = (0, y + 1);
                        }
                        if y == self.output[0] {
                            (y, image) = (0, image + 1);
                        }
                    }
                    after = [image, y, x];
                }
            }
            first = after;
        }
    }

    /// Returns the image, row and column of the output pixel number `pixel`.
    pub(crate) const fn pixel(&self, pixel: usize) -> [usize; 3] {
        let [height, width] = self.output;
        [
            pixel / width / height,
            pixel / width % height,
            pixel % width,
        ]
    }
}

/// Divides pixels into tiles of at most `most` pixels, as evenly as possible.
pub(crate) fn tiles(pixels: usize, most: usize) -> impl Iterator<Item = usize> {
    let tiles = pixels.div_ceil(most);
    (0..tiles).map(move |tile| (pixels + tile) / tiles)
}

/// Returns the taps within these bounds, along one axis, of the window at an output position.
/// Positions start at the padding.
pub(crate) fn taps_within(
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

/// Calls `work` with ranges of adjacent pixels that lie in both the window and the image.
pub(crate) fn each_run(
    (window, placed): (&Window, &WindowPositions),
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

/// Channels of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// Number of input channels.
    pub input: usize,
    /// Number of output channels.
    pub output: usize,
    /// Number of groups that both are divided into. An output channel depends only on the inputs of
    /// its group.
    pub groups: usize,
}
