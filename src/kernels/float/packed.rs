//! Weights in the order in which kernels read them, aligned for the widest registers.

/// Bytes of a cache line, and of the widest register.
const LINE: usize = 64;

/// Numbers whose first one lies at the start of a cache line.
pub(super) struct Packed {
    values: Vec<f32>,
    start: usize,
}

impl Packed {
    /// Zeros.
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

    /// The numbers.
    pub(super) fn values(&self) -> &[f32] {
        &self.values[self.start..]
    }

    /// The numbers, to be written. Their number does not change.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.start..]
    }

    /// Memory held, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<f32>()
    }
}

/// Weights of a product in panels, each as wide as two registers of output channels; the last one of a group may be
/// of one. A panel is the bias of its channels and then, for each input, their weights. Channels that fill
/// up the last register are zeros.
pub(super) struct Panels {
    packed: Packed,
    /// Numbers in a register.
    lanes: usize,
    /// Inputs of each output.
    pub(super) depth: usize,
    /// Output channels of a group.
    outer: usize,
    /// Elements of the panels of a group.
    group: usize,
}

/// A panel, or several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panel<'a> {
    /// Its bias and weights.
    pub(super) values: &'a [f32],
    /// Its first output channel, among all.
    pub(super) column: usize,
    /// Its output channels.
    pub(super) columns: usize,
}

impl Panels {
    /// Packs weights `[out][depth]`.
    pub(super) fn new(
        lanes: usize,
        groups: usize,
        weights: &[f32],
        depth: usize,
        bias: Option<&[f32]>,
    ) -> Self {
        let outputs = weights.len() / depth;
        let outer = outputs / groups;
        let group = outer.next_multiple_of(lanes) * (depth + 1);
        let mut panels = Self {
            packed: Packed::zeros(groups * group),
            lanes,
            depth,
            outer,
            group,
        };
        let width = panels.width();
        for channel in 0..outputs {
            let (number, within) = (channel / outer, channel % outer);
            let start = within / width * width;
            let wide = (outer - start).next_multiple_of(lanes).min(width);
            let first = number * group + start * (depth + 1);
            let panel = &mut panels.packed.values_mut()[first..];
            panel[within - start] = bias.map_or(0.0, |bias| bias[channel]);
            let row = &weights[channel * depth..][..depth];
            for (place, weight) in panel[within - start..]
                .iter_mut()
                .step_by(wide)
                .skip(1)
                .zip(row)
            {
                *place = *weight;
            }
        }
        panels
    }

    /// Output channels of a whole panel.
    pub(super) const fn width(&self) -> usize {
        2 * self.lanes
    }

    /// The panels with output channels `from..to` of a group; `from` is the first one of a panel.
    pub(super) fn of(
        &self,
        group: usize,
        from: usize,
        to: usize,
    ) -> impl Iterator<Item = Panel<'_>> {
        let values = &self.packed.values()[group * self.group..][..self.group];
        let width = self.width();
        (from..to).step_by(width).map(move |start| {
            let wide = (self.outer - start).next_multiple_of(self.lanes).min(width);
            Panel {
                values: &values[start * (self.depth + 1)..][..wide * (self.depth + 1)],
                column: group * self.outer + start,
                columns: (self.outer - start).min(width),
            }
        })
    }

    /// Memory held, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.packed.bytes()
    }
}
