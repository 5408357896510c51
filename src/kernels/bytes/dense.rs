//! Convolutions in which each output channel reads all channels of its group: packed weights, and the
//! inputs that rows of them are multiplied with.

use std::ops::Range;

use super::Limits;
use super::tiles::{CHANNELS, INPUTS, Line};
use crate::kernels::Cpu;
use crate::kernels::cpu::Level;

/// Weights by groups, panels, taps, inputs and lines.
#[derive(Debug)]
pub(super) struct Dense {
    /// What it is packed for.
    pub(super) cpu: Cpu,
    /// Output channels of a group.
    pub(super) outputs: usize,
    /// Taps of a window.
    pub(super) taps: usize,
    /// Groups of four inputs of a tap.
    pub(super) steps: usize,
    /// Inputs have another sign than the instructions want.
    pub(super) flip: bool,
    /// What bytes are held to.
    pub(super) limits: Limits,
    lines: Vec<Line>,
    bias: Vec<[i32; CHANNELS]>,
    factors: Vec<[f32; CHANNELS]>,
}

/// What [`Dense`] is made of.
pub(super) struct Parts<'a> {
    /// Groups, and output channels, taps and inputs of each.
    pub(super) sizes: [usize; 4],
    /// Weights by all output channels, taps and inputs.
    pub(super) weights: &'a [i8],
    /// What sums begin with, the inputs' zero point accounted for.
    pub(super) bias: &'a [i32],
    /// Scales of all output channels.
    pub(super) factors: &'a [f32],
    /// What bytes are held to.
    pub(super) limits: Limits,
    /// Inputs have another sign than the instructions want.
    pub(super) flip: bool,
}

/// What of the output is computed at once.
pub(super) struct Part {
    /// The group.
    pub(super) group: usize,
    /// Its lines; the first is the first of a panel.
    pub(super) lines: Range<usize>,
    /// Elements from a row to the next.
    pub(super) stride: usize,
    /// The first line's column.
    pub(super) column: usize,
}

/// Weights of neighbouring lines.
pub(super) struct Panel<'a> {
    /// How many lines.
    pub(super) lines: usize,
    /// Output channels there are in them.
    pub(super) width: usize,
    /// Where they are in a row of the output.
    pub(super) column: usize,
    /// By taps, inputs and lines.
    pub(super) weights: &'a [Line],
    /// Of each line.
    pub(super) bias: &'a [[i32; CHANNELS]],
    /// Of each line.
    pub(super) factors: &'a [[f32; CHANNELS]],
}

/// Inputs of the rows of a block, by tiles, taps and rows.
pub(super) struct Rows<'a> {
    /// Rows.
    count: usize,
    /// Rows of the smallest tile, and how many tiles have one more.
    least: (usize, usize),
    taps: usize,
    slices: Vec<&'a [[u8; 4]]>,
}

impl<'a> Rows<'a> {
    /// As many rows, whose slices `slice` finds by row and tap.
    pub(super) fn new(
        dense: &Dense,
        count: usize,
        mut slice: impl FnMut(usize, usize) -> &'a [[u8; 4]],
    ) -> Self {
        let tiles = count.div_ceil(most_rows(dense.cpu)).max(1);
        let mut rows = Self {
            count,
            least: (count / tiles, count % tiles),
            taps: dense.taps,
            slices: Vec::with_capacity(count * dense.taps),
        };
        let mut first = 0;
        while first < count {
            let size = rows.tile(first);
            for tap in 0..dense.taps {
                rows.slices
                    .extend((first..first + size).map(|row| slice(row, tap)));
            }
            first += size;
        }
        rows
    }

    /// Rows of the tile that begins with this one.
    const fn tile(&self, first: usize) -> usize {
        let (least, larger) = self.least;
        if first < larger * (least + 1) {
            least + 1
        } else {
            least
        }
    }

    /// Tiles: their rows and slices.
    pub(super) fn tiles(&self) -> impl Iterator<Item = (usize, &[&'a [[u8; 4]]])> {
        let mut first = 0;
        std::iter::from_fn(move || {
            if first >= self.count {
                return None;
            }
            let size = self.tile(first);
            let slices = self
                .slices
                .get(first * self.taps..(first + size) * self.taps)?;
            first += size;
            Some((size, slices))
        })
    }
}

/// Whether the instructions want inputs with a sign.
pub(super) const fn wants_sign(cpu: Cpu) -> bool {
    matches!(cpu.level(), Level::Neon | Level::NeonDot)
}

/// Lines of a panel.
const fn most_lines(cpu: Cpu) -> usize {
    match cpu.level() {
        Level::Avx512 | Level::Avx512Vnni => 2,
        _ => 1,
    }
}

/// Rows of the largest tile.
const fn most_rows(cpu: Cpu) -> usize {
    match cpu.level() {
        Level::Plain => 2,
        Level::Avx2 | Level::Neon => 4,
        Level::Avx2Vnni | Level::NeonDot => 6,
        Level::Avx512 | Level::Avx512Vnni => 10,
    }
}

impl Dense {
    /// Packs weights.
    pub(super) fn new(cpu: Cpu, parts: &Parts<'_>) -> Self {
        let [groups, outputs, taps, inputs] = parts.sizes;
        let steps = inputs.div_ceil(INPUTS);
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
                    let step = tap * steps + input / INPUTS;
                    let place = within * INPUTS + input % INPUTS;
                    dense.lines[first + step * width].0[place] = weight.cast_unsigned();
                }
            }
        }
        dense
    }

    /// Inputs that an output is the sum of.
    pub(super) const fn inputs(&self) -> usize {
        self.taps * self.steps * INPUTS
    }

    /// Lines of a group.
    pub(super) const fn group_lines(&self) -> usize {
        self.outputs.div_ceil(CHANNELS)
    }

    /// Lines that are best computed together.
    pub(super) const fn panel_lines(&self) -> usize {
        most_lines(self.cpu)
    }

    /// The panels of a part.
    pub(super) fn panels(&self, part: &Part) -> impl Iterator<Item = Panel<'_>> {
        let (all, together) = (self.group_lines(), most_lines(self.cpu));
        let (group, first, end) = (part.group, part.lines.start, part.lines.end.min(all));
        let column = part.column;
        (first..end).step_by(together).map(move |line| {
            let lines = together.min(all - line);
            let size = self.taps * self.steps;
            let of_lines = group * all + line..group * all + line + lines;
            Panel {
                lines,
                width: (self.outputs - line * CHANNELS).min(lines * CHANNELS),
                column: column + (line - first) * CHANNELS,
                weights: &self.lines[of_lines.start * size..of_lines.end * size],
                bias: &self.bias[of_lines.clone()],
                factors: &self.factors[of_lines],
            }
        })
    }

    /// Bytes of the packed weights.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
            + size_of_val(self.bias.as_slice())
            + size_of_val(self.factors.as_slice())
    }
}
