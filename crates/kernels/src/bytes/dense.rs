//! Packed weights and inputs of dense convolutions, in which each output channel reads all channels
//! of its group.

use std::ops::Range;

use super::tiles::{CHANNELS, Line};
use super::words::WordForm;
use super::{ByteLimits, Sign};
use crate::Cpu;
use crate::cpu::Level;
use crate::window::tiles;

/// Packed weights, ordered by groups, panels, taps, inputs and lines.
#[derive(Debug)]
pub(super) struct Dense {
    /// Instruction set that the weights are packed for.
    pub(super) cpu: Cpu,
    /// Number of output channels of a group.
    pub(super) outputs: usize,
    /// Number of taps of a window.
    pub(super) taps: usize,
    /// Number of words in a tap.
    pub(super) steps: usize,
    /// Whether inputs have another sign than the instructions expect.
    pub(super) flip: bool,
    /// Range of output bytes.
    pub(super) limits: ByteLimits,
    lines: Vec<Line>,
    bias: Vec<[i32; CHANNELS]>,
    factors: Vec<[f32; CHANNELS]>,
}

/// Parameters for packing [`Dense`].
pub(super) struct DenseParams<'a> {
    /// Number of groups, and output channels, taps and inputs of each.
    pub(super) sizes: [usize; 4],
    /// Weights, ordered by output channels, taps and inputs.
    pub(super) weights: &'a [i8],
    /// Initial values of the sums, which include the inputs' zero point.
    pub(super) bias: &'a [i32],
    /// Scales of all output channels.
    pub(super) factors: &'a [f32],
    /// Range of output bytes.
    pub(super) limits: ByteLimits,
    /// Whether inputs have another sign than the instructions expect.
    pub(super) flip: bool,
}

/// The part of the output that is computed at once.
pub(super) struct Part {
    /// The group.
    pub(super) group: usize,
    /// Lines of the group, starting at the first line of a panel.
    pub(super) lines: Range<usize>,
    /// Number of elements from one row to the next.
    pub(super) stride: usize,
    /// Column of the first line.
    pub(super) column: usize,
    /// Number of words before those that the group reads.
    pub(super) offset: usize,
}

/// Weights of neighbouring lines.
pub(super) struct BytePanel<'a> {
    /// Number of lines.
    pub(super) lines: usize,
    /// Number of output channels in the lines.
    pub(super) width: usize,
    /// Their column in a row of the output.
    pub(super) column: usize,
    /// Number of words before those that they read.
    pub(super) offset: usize,
    /// Weights, ordered by taps, inputs and lines.
    pub(super) weights: &'a [Line],
    /// Bias of each line.
    pub(super) bias: &'a [[i32; CHANNELS]],
    /// Scales of each line.
    pub(super) factors: &'a [[f32; CHANNELS]],
}

/// Inputs for the rows of a block, ordered by tiles, taps and rows.
pub(super) struct DenseRows<'a> {
    /// Number of rows.
    count: usize,
    /// Maximum number of rows in a tile.
    most: usize,
    taps: usize,
    slices: Vec<&'a [[u8; 4]]>,
}

impl<'a> DenseRows<'a> {
    /// Prepares room for so many rows.
    pub(super) fn new(dense: &Dense, count: usize) -> Self {
        Self {
            count,
            most: most_rows(dense.cpu),
            taps: dense.taps,
            slices: Vec::with_capacity(count * dense.taps),
        }
    }

    /// Locates rows whose taps all read the same inputs.
    pub(super) fn of_rows(
        dense: &Dense,
        count: usize,
        mut slice: impl FnMut(usize) -> &'a [[u8; 4]],
    ) -> Self {
        let mut rows = Self::new(dense, count);
        rows.each_tile(|slices, first, size| {
            for _ in 0..dense.taps {
                slices.extend((first..first + size).map(&mut slice));
            }
        });
        rows
    }

    /// Calls `locate` for each tile, with its first row and number of rows. It adds the slices of all taps.
    pub(super) fn each_tile(
        &mut self,
        mut locate: impl FnMut(&mut Vec<&'a [[u8; 4]]>, usize, usize),
    ) {
        let mut first = 0;
        for size in tiles(self.count, self.most) {
            locate(&mut self.slices, first, size);
            first += size;
        }
    }

    /// Returns the rows and slices of each tile.
    pub(super) fn tiles(&self) -> impl Iterator<Item = (usize, &[&'a [[u8; 4]]])> {
        let mut rest = self.slices.as_slice();
        tiles(self.count, self.most).map_while(move |size| {
            let (slices, after) = rest.split_at_checked(size * self.taps)?;
            rest = after;
            Some((size, slices))
        })
    }
}

/// Returns whether bytes of this sign must be flipped before the instructions multiply them.
pub(super) fn flips(cpu: Cpu, sign: Sign) -> bool {
    WordForm::of(cpu) == WordForm::Bytes && flips_bytes(cpu, sign)
}

/// Like [`flips`], for bytes of different taps that the instructions interleave.
pub(super) fn flips_bytes(cpu: Cpu, sign: Sign) -> bool {
    let is_signed = matches!(
        cpu.level(),
        Level::Neon | Level::NeonDot | Level::NeonMatrix
    );
    is_signed != (sign == Sign::Signed)
}

/// Returns the maximum number of lines in a panel.
const fn most_lines(cpu: Cpu) -> usize {
    match cpu.level() {
        Level::Avx512 | Level::Avx512Vnni => 2,
        _ => 1,
    }
}

/// Returns the maximum number of rows in a tile.
const fn most_rows(cpu: Cpu) -> usize {
    match cpu.level() {
        Level::Plain => 2,
        Level::Neon => 4,
        Level::Avx2 | Level::Avx2Vnni | Level::NeonDot | Level::NeonMatrix => 6,
        Level::Avx512 | Level::Avx512Vnni => 10,
    }
}

impl Dense {
    /// Packs weights.
    pub(super) fn new(cpu: Cpu, parts: &DenseParams<'_>) -> Self {
        let [groups, outputs, taps, inputs] = parts.sizes;
        let form = WordForm::of(cpu);
        let steps = inputs.div_ceil(form.inputs());
        let lines = outputs.div_ceil(CHANNELS);
        let mut dense = Self {
            cpu,
            outputs,
            taps,
            steps,
            flip: parts.flip,
            limits: parts.limits,
            lines: vec![Line([0; 64]); groups * lines * taps * steps],
            bias: vec![[0; CHANNELS]; groups * lines],
            factors: vec![[0.0; CHANNELS]; groups * lines],
        };
        let together = most_lines(cpu);
        for (channel, weights) in parts.weights.chunks_exact(taps * inputs).enumerate() {
            let (group, output) = (channel / outputs, channel % outputs);
            let (line, within) = (output / CHANNELS, output % CHANNELS);
            dense.bias[group * lines + line][within] = parts.bias[channel];
            dense.factors[group * lines + line][within] = parts.factors[channel];
            let panel = line - line % together;
            let width = together.min(lines - panel);
            let first = (group * lines + panel) * taps * steps + line - panel;
            for (tap, weights) in weights.chunks_exact(inputs).enumerate() {
                for (input, weight) in weights.iter().enumerate() {
                    let step = tap * steps + input / form.inputs();
                    let line = &mut dense.lines[first + step * width];
                    form.put(line, within, input % form.inputs(), *weight);
                }
            }
        }
        dense
    }

    /// Returns the form of the inputs.
    pub(super) const fn form(&self) -> WordForm {
        WordForm::of(self.cpu)
    }

    /// Returns the number of inputs that are summed for an output.
    pub(super) const fn inputs(&self) -> usize {
        self.taps * self.steps * self.form().inputs()
    }

    /// Returns the number of lines of a group.
    pub(super) const fn group_lines(&self) -> usize {
        self.outputs.div_ceil(CHANNELS)
    }

    /// Returns the best number of lines to compute together.
    pub(super) const fn panel_lines(&self) -> usize {
        most_lines(self.cpu)
    }

    /// Returns the panels of a part of the output.
    pub(super) fn panels(&self, part: &Part) -> impl Iterator<Item = BytePanel<'_>> {
        let (all, together) = (self.group_lines(), most_lines(self.cpu));
        let (group, first, end) = (part.group, part.lines.start, part.lines.end.min(all));
        let (column, offset) = (part.column, part.offset);
        (first..end).step_by(together).map(move |line| {
            let lines = together.min(all - line);
            let size = self.taps * self.steps;
            let of_lines = group * all + line..group * all + line + lines;
            BytePanel {
                lines,
                width: (self.outputs - line * CHANNELS).min(lines * CHANNELS),
                column: column + (line - first) * CHANNELS,
                offset,
                weights: &self.lines[of_lines.start * size..of_lines.end * size],
                bias: &self.bias[of_lines.clone()],
                factors: &self.factors[of_lines],
            }
        })
    }

    /// Returns the size of the packed weights, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
            + size_of_val(self.bias.as_slice())
            + size_of_val(self.factors.as_slice())
    }
}
