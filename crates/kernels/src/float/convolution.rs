//! Convolutions of float32 images `[n, h, w, c]`.

use std::fmt;

use super::depthwise::FloatDepthwise;
use super::gather::{GatherSource, WindowTaps};
use super::packed::{FloatPanels, StoredPanel};
use super::{Activation, Channels, check_count, shape, single, tile};
use crate::window::{Window, WindowPositions, tiles};
use crate::{Cpu, Split};

/// Number of tiles whose inputs are located at once, and for which a panel is reused.
const TILES_PER_BLOCK: usize = 10;

/// Number of taps above which fewer tiles are processed at once, to keep the located slices small.
const MAX_TAPS_FOR_ALL_TILES: usize = 100;

/// Number of pixels that are multiplied one by one with weights of 16 bits, which takes less time than widening them.
const MAX_PIXELS_ALONE: usize = 3;

/// A convolution with weights packed for its instruction set.
pub struct FloatConvolution {
    cpu: Cpu,
    window: Window,
    channels: Channels,
    /// Range to which the kernels clamp results.
    range: [f32; 2],
    /// Activation applied afterwards.
    rest: Activation,
    /// Factors of each channel's negative results.
    slopes: Option<Vec<f32>>,
    kernel: ConvolutionKernel,
}

/// The kernel that computes a convolution.
enum ConvolutionKernel {
    /// A matrix product for each group.
    Product(WindowTaps, FloatPanels),
    /// Each channel separately.
    Depthwise(FloatDepthwise),
}

/// One run of a product.
struct ProductRun<'a> {
    taps: &'a WindowTaps,
    source: GatherSource<'a>,
    added: Option<&'a [f32]>,
}

impl FloatConvolution {
    /// Creates a convolution from `weights` `[out][kh][kw][in / groups]` and `bias` `[out]`.
    ///
    /// Fails if they do not match the channels and the window.
    pub fn new(
        cpu: Cpu,
        window: Window,
        channels: Channels,
        weights: &[f32],
        bias: Option<&[f32]>,
        activation: Activation,
    ) -> Result<Self, String> {
        window.check()?;
        channels.check()?;
        let depth = window.taps().checked_mul(channels.inner());
        let wanted = depth.and_then(|depth| depth.checked_mul(channels.output));
        check_count("weights", weights.len(), wanted.unwrap_or(usize::MAX))?;
        if let Some(bias) = bias {
            check_count("biases", bias.len(), channels.output)?;
        }
        let (range, rest) = activation.parts();
        let kernel = if let Some(cpu) = depthwise_with(cpu, channels) {
            ConvolutionKernel::Depthwise(FloatDepthwise::new(
                cpu,
                window,
                channels.input,
                weights,
                bias,
            ))
        } else {
            let depth = window.taps() * channels.inner();
            let panels = FloatPanels::new(cpu, channels.groups, weights, depth, bias);
            ConvolutionKernel::Product(WindowTaps::new(window, channels), panels)
        };
        Ok(Self {
            cpu,
            window,
            channels,
            range,
            rest,
            slopes: None,
            kernel,
        })
    }

    /// Multiplies negative results by a slope, or by one for each output channel. Fails if there is another number of
    /// them.
    pub fn with_slopes(mut self, slopes: Option<&[f32]>) -> Result<Self, String> {
        let outputs = self.channels.output;
        self.slopes = match slopes {
            Some([slope]) => Some(vec![*slope; outputs]),
            Some(slopes) => {
                check_count("slopes", slopes.len(), outputs)?;
                Some(slopes.to_vec())
            }
            None => None,
        };
        Ok(self)
    }

    /// Applies what follows the sums to pixels, or to columns from `first` on of one pixel.
    fn finish(&self, first: usize, values: &mut [f32]) {
        super::activate(self.cpu, self.rest, values);
        if let Some(slopes) = &self.slopes {
            super::activate::by_slopes(self.cpu, &slopes[first..], values);
        }
    }

    /// Computes `output` `[n, oh, ow, out]` from `input` `[n, h, w, in]`.
    ///
    /// `added` has the size of the output and is added before the activation. Fails if a length
    /// does not match.
    pub fn run(
        &self,
        placed: &WindowPositions,
        input: &[f32],
        added: Option<&[f32]>,
        output: &mut [f32],
        split: Split,
    ) -> Result<(), String> {
        let Channels {
            input: inputs,
            output: outputs,
            ..
        } = self.channels;
        placed.check([inputs, outputs], input.len(), output.len())?;
        if let Some(added) = added {
            check_count("elements to add", added.len(), output.len())?;
        }
        match &self.kernel {
            ConvolutionKernel::Depthwise(depthwise) => {
                let row = placed.output[1] * outputs;
                // A multiplication here takes about four times as long as in a matrix product.
                let cost = row * self.window.taps() * 4;
                split.rows(output, row, cost, |first, rows| {
                    depthwise.rows(placed, input, self.range, [first, row], added, rows);
                    self.finish(0, rows);
                });
            }
            ConvolutionKernel::Product(taps, panels) => {
                let width = panels.width();
                let source = GatherSource::new(taps, placed, input);
                let run = ProductRun {
                    taps,
                    source,
                    added,
                };
                if self.channels.groups == 1 && output.len() == outputs && outputs > width {
                    // The weights are read for one pixel, which takes longer than the
                    // multiplication.
                    let cost = panels.depth * width * 4;
                    split.rows(output, width, cost, |first, columns| {
                        let from = first * width;
                        let chosen = panels.of(0, from, from + columns.len());
                        self.block(&run, 0, [0, 1], chosen, from, columns);
                        self.finish(from, columns);
                    });
                } else {
                    // A thread with fewer pixels than a tile reads all weights for them.
                    let pixels = split.share(output.len() / outputs.max(1));
                    let least = pixels.clamp(1, shape::of(self.cpu).most);
                    let cost = panels.depth * outputs;
                    split.runs(output, [outputs, least], cost, |first, pixels| {
                        self.pixels(&run, panels, first, pixels);
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the memory used, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.kernel {
            ConvolutionKernel::Product(_, panels) => panels.bytes(),
            ConvolutionKernel::Depthwise(depthwise) => depthwise.bytes(),
        }
    }

    /// Computes the output pixels starting at `first`.
    fn pixels(&self, run: &ProductRun<'_>, panels: &FloatPanels, first: usize, output: &mut [f32]) {
        let Channels {
            output: outputs,
            groups,
            ..
        } = self.channels;
        let most = shape::of(self.cpu).most;
        let (mut first, mut output) = (first, output);
        let together =
            (TILES_PER_BLOCK * MAX_TAPS_FOR_ALL_TILES / run.taps.count()).clamp(1, TILES_PER_BLOCK);
        let count = output.len() / outputs;
        let each = if count <= MAX_PIXELS_ALONE && panels.are_halves() {
            1
        } else {
            together * most
        };
        for pixels in tiles(count, each) {
            let (block, after) = output.split_at_mut(pixels * outputs);
            for group in 0..groups {
                let chosen = panels.of(group, 0, self.channels.outer());
                self.block(run, group, [first, pixels], chosen, 0, block);
            }
            self.finish(0, block);
            (first, output) = (first + pixels, after);
        }
    }

    /// Computes pixels starting at `first` for some panels of a group. `output` starts at channel
    /// `from` of the first pixel.
    fn block<'a>(
        &self,
        run: &ProductRun<'_>,
        group: usize,
        [first, pixels]: [usize; 2],
        panels: impl Iterator<Item = StoredPanel<'a>>,
        from: usize,
        output: &mut [f32],
    ) {
        let most = shape::of(self.cpu).most;
        let (mut scratch, count) = (Vec::new(), run.taps.count());
        let mut slices = Vec::with_capacity(pixels * count);
        let channel = group * self.channels.inner();
        let chosen = [first, pixels, most];
        run.taps
            .gather(&run.source, chosen, channel, &mut scratch, &mut slices);
        let outputs = self.channels.output;
        let added = run.added.map(|added| &added[first * outputs + from..]);
        let strip = |column| tile::Strip {
            taps: &slices,
            count,
            pixels,
            range: self.range,
            stride: outputs,
            column,
        };
        let mut widened = Vec::new();
        if pixels == 1 {
            let width = 2 * shape::of(self.cpu).lanes;
            let (whole, rest): (Vec<_>, Vec<_>) = panels.partition(|panel| panel.columns == width);
            single::single(self.cpu, &strip(from), &whole, added, output);
            for panel in rest {
                let panel = panel.widened(self.cpu, &mut widened);
                tile::strip(self.cpu, &strip(panel.column - from), panel, added, output);
            }
            return;
        }
        for panel in panels {
            let panel = panel.widened(self.cpu, &mut widened);
            tile::strip(self.cpu, &strip(panel.column - from), panel, added, output);
        }
    }
}

impl fmt::Debug for FloatConvolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            window, channels, ..
        } = self;
        write!(
            f,
            "Convolution({:?} {window:?} {channels:?})",
            self.cpu.level()
        )
    }
}

/// Returns the instruction set for a depthwise convolution whose channels fill a register, or
/// `None` for others.
fn depthwise_with(cpu: Cpu, channels: Channels) -> Option<Cpu> {
    let each = channels.groups == channels.input && channels.groups == channels.output;
    if !each {
        return None;
    }
    let no_more = Cpu::all().filter(|other| other.level() <= cpu.level());
    no_more
        .filter(|cpu| shape::of(*cpu).lanes <= channels.input)
        .max_by_key(|cpu| cpu.level())
}
