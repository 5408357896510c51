//! Weights packed in the order in which kernels read them, aligned for the widest registers.

use super::shape::TileShape;

/// Size of a cache line and of the widest register, in bytes.
const LINE: usize = 64;

/// Numbers aligned to the start of a cache line.
pub(super) struct AlignedNumbers {
    values: Vec<f32>,
    start: usize,
}

impl AlignedNumbers {
    /// Allocates zeros.
    pub(super) fn zeros(length: usize) -> Self {
        let values = vec![0.0; length + LINE / size_of::<f32>()];
        let start = values
            .as_ptr()
            .align_offset(LINE)
            .min(LINE / size_of::<f32>());
        let mut packed = Self { values, start };
        packed.values.truncate(start + length);
        packed
    }

    /// Returns the numbers.
    pub(super) fn values(&self) -> &[f32] {
        &self.values[self.start..]
    }

    /// Returns the numbers for writing; their count stays the same.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.start..]
    }

    /// Returns the memory used, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<f32>()
    }
}

/// Weights of a product in panels, each two registers of output channels wide.
///
/// The last panel of a group may be one register wide, or half of one. A panel has the biases of
/// its channels, followed by their weights for each input. Channels that fill up the last register
/// are zeros.
pub(super) struct FloatPanels {
    packed: AlignedNumbers,
    shape: TileShape,
    /// Number of inputs of each output.
    pub(super) depth: usize,
    /// Number of output channels of a group.
    outer: usize,
    /// Number of elements in the panels of a group.
    group: usize,
}

/// A panel.
#[derive(Debug, Clone, Copy)]
pub(super) struct FloatPanel<'a> {
    /// Biases and weights.
    pub(super) values: &'a [f32],
    /// Number of its first output channel, among all.
    pub(super) column: usize,
    /// Number of output channels.
    pub(super) columns: usize,
    /// Number of channels, including the zeros that fill it up.
    pub(super) wide: usize,
}

impl FloatPanels {
    /// Packs weights `[out][depth]`.
    pub(super) fn new(
        shape: TileShape,
        groups: usize,
        weights: &[f32],
        depth: usize,
        bias: Option<&[f32]>,
    ) -> Self {
        let outputs = weights.len() / depth;
        let outer = outputs / groups;
        let columns: usize = shape.panels(0, outer).map(|[_, wide]| wide).sum();
        let group = columns * (depth + 1);
        let mut packed = AlignedNumbers::zeros(groups * group);
        let channels = weights.chunks_exact(depth).enumerate();
        let rest = packed.values_mut().chunks_exact_mut(group.max(1));
        for (number, values) in rest.enumerate() {
            for [start, wide] in shape.panels(0, outer) {
                let first = number * outer + start;
                let panel = &mut values[start * (depth + 1)..][..wide * (depth + 1)];
                let channels = channels.clone().skip(first).take(wide.min(outer - start));
                for (column, (channel, row)) in channels.enumerate() {
                    panel[column] = bias.map_or(0.0, |bias| bias[channel]);
                    let places = panel[column..].iter_mut().step_by(wide).skip(1);
                    places.zip(row).for_each(|(place, weight)| *place = *weight);
                }
            }
        }
        Self {
            packed,
            shape,
            depth,
            outer,
            group,
        }
    }

    /// Returns the number of output channels of a whole panel.
    pub(super) const fn width(&self) -> usize {
        2 * self.shape.lanes
    }

    /// Returns the panels with output channels `from..to` of a group; a panel must start at `from`.
    pub(super) fn of(
        &self,
        group: usize,
        from: usize,
        to: usize,
    ) -> impl Iterator<Item = FloatPanel<'_>> {
        let values = &self.packed.values()[group * self.group..][..self.group];
        let of_channel = self.depth + 1;
        self.shape
            .panels(from, self.outer)
            .take_while(move |[start, _]| *start < to)
            .map(move |[start, wide]| FloatPanel {
                values: &values[start * of_channel..][..wide * of_channel],
                column: group * self.outer + start,
                columns: (self.outer - start).min(wide),
                wide,
            })
    }

    /// Returns the memory used, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.packed.bytes()
    }
}
