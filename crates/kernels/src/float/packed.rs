//! Weights packed in the order in which kernels read them.

use super::aligned::AlignedNumbers;
use super::half::{self, HalfKind};
use super::shape::{self, TileShape};
use crate::Cpu;
use crate::cpu::Level;

/// Weights of a product in panels, each two registers of output channels wide.
///
/// The last panel of a group may be one register wide, or half of one. A panel has the biases of
/// its channels, followed by their weights for each input. Channels that fill up the last register
/// are zeros.
pub(super) struct FloatPanels {
    packed: PanelStore,
    shape: TileShape,
    /// Number of inputs of each output.
    pub(super) depth: usize,
    /// Number of output channels of a group.
    outer: usize,
    /// Number of elements in the panels of a group.
    group: usize,
}

/// The numbers of all panels.
enum PanelStore {
    Singles(AlignedNumbers),
    Halves(HalfKind, AlignedNumbers<u16>),
}

/// Numbers of a panel, as they are stored.
#[derive(Debug, Clone, Copy)]
pub(super) enum PanelValues<'a> {
    /// Float32.
    Singles(&'a [f32]),
    /// Numbers of 16 bits.
    Halves(HalfKind, &'a [u16]),
}

impl<'a> PanelValues<'a> {
    /// Returns numbers in float32.
    pub(super) const fn singles(self) -> &'a [f32] {
        match self {
            Self::Singles(values) => values,
            Self::Halves(..) => &[],
        }
    }

    /// Returns numbers of 16 bits.
    pub(super) const fn halves(self) -> &'a [u16] {
        match self {
            Self::Singles(_) => &[],
            Self::Halves(_, values) => values,
        }
    }
}

/// A panel.
#[derive(Debug, Clone, Copy)]
pub(super) struct FloatPanel<V> {
    /// Biases and weights.
    pub(super) values: V,
    /// Number of its first output channel, among all.
    pub(super) column: usize,
    /// Number of output channels.
    pub(super) columns: usize,
    /// Number of channels, including the zeros that fill it up.
    pub(super) wide: usize,
}

/// A panel as it is stored.
pub(super) type StoredPanel<'a> = FloatPanel<PanelValues<'a>>;

impl<'a> StoredPanel<'a> {
    /// Returns the panel in float32; `scratch` keeps its numbers if they are stored otherwise.
    pub(super) fn widened<'s>(self, cpu: Cpu, scratch: &'s mut Vec<f32>) -> FloatPanel<&'s [f32]>
    where
        'a: 's,
    {
        let values = match self.values {
            PanelValues::Singles(values) => values,
            PanelValues::Halves(kind, halves) => {
                scratch.resize(halves.len(), 0.0);
                half::widen(cpu, kind, halves, scratch);
                scratch
            }
        };
        FloatPanel {
            values,
            column: self.column,
            columns: self.columns,
            wide: self.wide,
        }
    }
}

/// Minimum size of panels that are kept as halves where these are exact, in bytes. Smaller ones are read from a cache.
const MIN_BYTES_OF_HALVES: usize = 1 << 18;

impl FloatPanels {
    /// Packs weights `[out][depth]`.
    pub(super) fn new(
        cpu: Cpu,
        groups: usize,
        weights: &[f32],
        depth: usize,
        bias: Option<&[f32]>,
    ) -> Self {
        let shape = shape::of(cpu);
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
        let is_large = size_of_val(packed.values()) >= MIN_BYTES_OF_HALVES;
        // Without instructions for them, halves would take longer.
        let may_be_halves = is_large && cpu.level() != Level::Plain;
        let halves = may_be_halves.then(|| packed.values());
        let packed = match halves.and_then(half::exact) {
            Some((kind, halves)) => PanelStore::Halves(kind, halves),
            None => PanelStore::Singles(packed),
        };
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
    ) -> impl Iterator<Item = StoredPanel<'_>> {
        let first = group * self.group;
        let of_channel = self.depth + 1;
        self.shape
            .panels(from, self.outer)
            .take_while(move |[start, _]| *start < to)
            .map(move |[start, wide]| FloatPanel {
                values: self.values(first + start * of_channel, wide * of_channel),
                column: group * self.outer + start,
                columns: (self.outer - start).min(wide),
                wide,
            })
    }

    /// Returns whether the numbers have 16 bits.
    pub(super) const fn are_halves(&self) -> bool {
        matches!(self.packed, PanelStore::Halves(..))
    }

    fn values(&self, first: usize, count: usize) -> PanelValues<'_> {
        match &self.packed {
            PanelStore::Singles(all) => PanelValues::Singles(&all.values()[first..][..count]),
            PanelStore::Halves(kind, all) => {
                PanelValues::Halves(*kind, &all.values()[first..][..count])
            }
        }
    }

    /// Returns the memory used, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        match &self.packed {
            PanelStore::Singles(values) => values.bytes(),
            PanelStore::Halves(_, values) => values.bytes(),
        }
    }
}
