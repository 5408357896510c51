//! Summary of a delegate payload: its operators, weight types, computation types and states.
//!
//! All payload readers return this type; `contents.rs` lists the readers. Invariant: it holds
//! types, sizes and counts only; weights are never read.

use std::collections::BTreeMap;
use std::fmt;

use super::flatbuffer::{Buffer, Field};
use super::storage::ByteRange;
use crate::{Dim, FormatError, TensorInfo};
use pkgtool_base::source::{Pages, ReadAt};

/// Maximum number of reads to locate a graph.
const MAX_LOCATE_READS: u64 = 1000;
/// Maximum number of reads for the header of a graph.
const MAX_READS: u64 = 10_000;

/// Contents of a payload, limited to the function that the delegate calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PayloadSummary {
    /// General facts about the payload, in order (`specification version`, `9`).
    pub facts: Vec<(&'static str, String)>,
    /// The called function, if the payload has functions and identifies the called one.
    pub function: Option<String>,
    /// Names of all functions; empty if there are fewer than two.
    pub functions: Vec<String>,
    /// Number of occurrences of each operator.
    pub operators: BTreeMap<String, u64>,
    /// Number of computed values by type: floats, and integers that represent quantised floats.
    pub computation_types: BTreeMap<String, u64>,
    /// Weights by storage form.
    pub weights: BTreeMap<WeightStorage, WeightCount>,
    /// True if the payload has weights and operators in a form that cannot be read.
    pub is_opaque: bool,
    /// Tensors that persist from run to run.
    pub states: Vec<StateTensor>,
    /// Inputs in call order, if the payload names them.
    pub inputs: Vec<Port>,
    /// Outputs in call order, if the payload names them.
    pub outputs: Vec<Port>,
}

/// Storage form of weights.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeightStorage {
    /// Element type (`int4`, `float16`).
    pub element: String,
    /// Bits per element.
    pub bits: u32,
    /// How elements map to values.
    pub scheme: QuantizationScheme,
}

/// How stored elements map to weight values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuantizationScheme {
    /// The elements are the values.
    Plain,
    /// Quantised with a single scale.
    Tensor,
    /// Quantised with one scale per index of a dimension.
    Channel,
    /// Quantised with one scale per group of this many neighbouring elements.
    Groups(u64),
    /// Indices into a table of values.
    Palette,
    /// Quantised; the payload does not record which elements share a scale.
    UnknownGrouping,
}

/// A number of weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WeightCount {
    /// Number of tensors.
    pub tensors: u64,
    /// Total number of elements.
    pub elements: u64,
}

/// A tensor that persists from run to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateTensor {
    /// Its name, if the payload stores one.
    pub name: Option<String>,
    /// Its element type.
    pub element: String,
    /// Its sizes.
    pub dims: Vec<Dim>,
}

/// An input or an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name, if the payload stores one.
    pub name: Option<String>,
    /// Its type and shape, if it is a tensor and the payload records them.
    pub tensor: Option<TensorInfo>,
}

/// A precision below float32, ordered from most to least precise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoweredPrecision {
    /// 16-bit floats with 11 bits of precision.
    Float16,
    /// 16-bit floats with 8 bits of precision.
    Bfloat16,
    /// Five to eight bits.
    EightBits,
    /// At most four bits.
    FourBits,
}

impl PayloadSummary {
    /// Begins the summary of a payload with the version in its graph, which `find` locates.
    pub(super) fn begin(
        source: &dyn ReadAt,
        find: impl FnOnce(&Pages<'_>) -> Result<Option<ByteRange>, FormatError>,
    ) -> Result<Self, FormatError> {
        let mut summary = Self::default();
        let pages = Pages::with_budget(source, MAX_LOCATE_READS);
        summary.version(source, find(&pages)?)?;
        Ok(summary)
    }

    /// Returns the precisions below float32: the lowest of its computations and the lowest of its
    /// weights. Each has a text that follows the delegate's name (`computes in float16`).
    pub fn lowered(&self) -> Vec<(LoweredPrecision, String)> {
        let computes = self
            .computation_types
            .keys()
            .filter_map(|name| match name.as_str() {
                "float16" => Some((LoweredPrecision::Float16, "computes in float16".to_owned())),
                "bfloat16" => Some((
                    LoweredPrecision::Bfloat16,
                    "computes in bfloat16".to_owned(),
                )),
                name if name.contains("int8") => Some((
                    LoweredPrecision::EightBits,
                    "computes with 8-bit values".to_owned(),
                )),
                _ => None,
            });
        let weights = self.weights.keys().filter_map(|stored| {
            let lowered = stored.lowered()?;
            Some((lowered, format!("holds {} weights", stored.precision())))
        });
        let lowest = |found: Option<(LoweredPrecision, String)>| found.into_iter();
        let computes = computes.max_by_key(|(lowered, _)| *lowered);
        let weights = weights.max_by_key(|(lowered, _)| *lowered);
        lowest(computes).chain(lowest(weights)).collect()
    }

    /// Adds the contents of another payload of the same backend; common facts count once.
    pub fn add(&mut self, other: &Self) {
        for fact in &other.facts {
            if !self.facts.contains(fact) {
                self.facts.push(fact.clone());
            }
        }
        for (counts, others) in [
            (&mut self.operators, &other.operators),
            (&mut self.computation_types, &other.computation_types),
        ] {
            for (name, count) in others {
                *counts.entry(name.clone()).or_default() += count;
            }
        }
        for (stored, count) in &other.weights {
            let known = self.weights.entry(stored.clone()).or_default();
            known.tensors += count.tensors;
            known.elements = known.elements.saturating_add(count.elements);
        }
        self.is_opaque |= other.is_opaque;
        self.states.extend_from_slice(&other.states);
        self.inputs.extend_from_slice(&other.inputs);
        self.outputs.extend_from_slice(&other.outputs);
    }

    /// Records the version in a graph's first field, which all backends have.
    pub(super) fn version(
        &mut self,
        source: &dyn ReadAt,
        graph: Option<ByteRange>,
    ) -> Result<(), FormatError> {
        let Some(ByteRange { offset, size }) = graph else {
            return Ok(());
        };
        let pages = Pages::with_budget(source, MAX_READS);
        let buffer = Buffer::new(&pages, offset, offset.saturating_add(size));
        let version = buffer.root("payload")?.name(Field(0, "version"))?;
        let version = version.filter(|version| !version.is_empty());
        self.facts
            .extend(version.map(|version| ("version", version)));
        Ok(())
    }

    /// Counts an operator.
    pub(super) fn operator(&mut self, name: impl Into<String>) {
        *self.operators.entry(name.into()).or_default() += 1;
    }

    /// Counts a computed value, if its type is a float.
    pub(super) fn computed(&mut self, element: &str) {
        if element.contains("float") {
            self.quantised(element);
        }
    }

    /// Counts a computed value of quantised integers.
    pub(super) fn quantised(&mut self, element: &str) {
        *self
            .computation_types
            .entry(element.to_owned())
            .or_default() += 1;
    }

    /// Counts a weight tensor. A single number is a constant and does not count as a weight.
    pub(super) fn weight(&mut self, stored: WeightStorage, elements: u64) {
        if elements > 1 {
            let count = self.weights.entry(stored).or_default();
            count.tensors += 1;
            count.elements = count.elements.saturating_add(elements);
        }
    }
}

impl WeightStorage {
    /// Returns the storage form of unquantised elements.
    pub(super) fn plain(element: &str) -> Self {
        Self {
            element: element.to_owned(),
            bits: bits(element),
            scheme: QuantizationScheme::Plain,
        }
    }

    /// Returns the storage form of quantised integers.
    pub(super) fn new_quantised(element: &str, scheme: QuantizationScheme) -> Self {
        Self {
            scheme,
            ..Self::plain(element)
        }
    }

    fn lowered(&self) -> Option<LoweredPrecision> {
        match (self.scheme, self.element.as_str()) {
            (QuantizationScheme::Plain, "float16") => Some(LoweredPrecision::Float16),
            (QuantizationScheme::Plain, "bfloat16") => Some(LoweredPrecision::Bfloat16),
            (QuantizationScheme::Plain, _) => None,
            _ if self.bits <= 4 => Some(LoweredPrecision::FourBits),
            _ if self.bits <= 8 => Some(LoweredPrecision::EightBits),
            _ => None,
        }
    }

    fn precision(&self) -> String {
        match self.scheme {
            QuantizationScheme::Plain => self.element.clone(),
            _ => format!("{}-bit", self.bits),
        }
    }
}

/// Returns the bits per element, from the number at the end of the type's name.
fn bits(element: &str) -> u32 {
    let digits = element.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    digits.parse().unwrap_or(8)
}

impl QuantizationScheme {
    /// Returns its display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tensor => "per tensor",
            Self::Channel => "per channel",
            Self::Groups(_) => "groups",
            Self::Palette => "palette",
            Self::UnknownGrouping => "quantised",
        }
    }
}

/// Formats as `int4 in groups of 32` or `float16`.
impl fmt::Display for WeightStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.element)?;
        match self.scheme {
            QuantizationScheme::Plain => Ok(()),
            QuantizationScheme::Groups(size) => write!(f, " in groups of {size}"),
            scheme => write!(f, " {}", scheme.name()),
        }
    }
}

/// Formats as `keys float16[1, 2, 8, 4]`.
impl fmt::Display for StateTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        let dims: Vec<String> = self.dims.iter().map(Dim::to_string).collect();
        write!(f, "{}[{}]", self.element, dims.join(", "))
    }
}

/// Formats as `picture float32[1, 3, 8, 8]`.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, &self.tensor) {
            (Some(name), Some(tensor)) => write!(f, "{name} {tensor}"),
            (Some(name), None) => f.write_str(name),
            (None, Some(tensor)) => tensor.fmt(f),
            (None, None) => f.write_str("unnamed"),
        }
    }
}
