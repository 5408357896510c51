//! Windows that move over images, and where they lie.

/// Windows over images `[n, h, w, c]`: rows and columns of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Taps.
    pub(crate) kernel: [usize; 2],
    /// Pixels from a window to the next.
    pub(crate) stride: [usize; 2],
    /// Pixels from a tap to the next.
    pub(crate) dilation: [usize; 2],
}

/// Where windows lie in one run: sizes that only a run knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Images.
    pub(crate) batch: usize,
    /// Height and width of an image.
    pub(crate) input: [usize; 2],
    /// Height and width of a result.
    pub(crate) output: [usize; 2],
    /// Rows of zeros above an image and columns to its left. Below and to its right are as many as windows reach.
    pub(crate) before: [usize; 2],
}

/// The largest step, and the most padding.
const MOST: usize = 1 << 20;

impl Window {
    /// One pixel, each.
    pub(crate) const PIXEL: Self = Self {
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
    };

    /// Taps of a window.
    pub(crate) const fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Fails if a size is 0 or larger than sums of them can be counted with.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sizes = [self.kernel, self.stride, self.dilation];
        if sizes.iter().flatten().all(|size| (1..=MOST).contains(size)) {
            return Ok(());
        }
        let [kernel, stride, dilation] = sizes;
        Err(format!(
            "a window of {kernel:?}, strides {stride:?} and dilations {dilation:?}; sizes from 1 to {MOST} are wanted"
        ))
    }
}

impl Placed {
    /// Fails unless `input` and `output` have as many elements as images of so many channels.
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
                    "the {side} has {found} elements; {shape:?} were wanted"
                ));
            }
        }
        if self.before.iter().any(|before| *before > MOST) {
            return Err(format!(
                "padding is {:?}; at most {MOST} is wanted",
                self.before
            ));
        }
        Ok(())
    }

    /// Whether each pixel of the output sees the one at its place and no other.
    pub(crate) fn is_pixelwise(&self, window: Window) -> bool {
        window == Window::PIXEL && self.before == [0; 2] && self.output == self.input
    }

    /// Images, rows and columns of the output's pixel number `pixel`.
    pub(crate) const fn pixel(&self, pixel: usize) -> [usize; 3] {
        let [height, width] = self.output;
        [
            pixel / width / height,
            pixel / width % height,
            pixel % width,
        ]
    }
}

/// Channels of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Channels {
    /// Channels of its input.
    pub(crate) input: usize,
    /// Channels of its output.
    pub(crate) output: usize,
    /// Groups that both are divided into; an output sees only the inputs of its group.
    pub(crate) groups: usize,
}
