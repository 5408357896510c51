//! What the payload of a delegate holds: operators, types of weights, what it computes in, states.
//!
//! The common answer of the readers of payloads, which `delegate/contents.rs` lists. Invariant: types, sizes and
//! counts only; weights are never read.

use std::collections::BTreeMap;
use std::fmt;

use super::error::Error;
use super::flatbuffer::{Buffer, Field};
use super::storage::ByteRange;
use crate::model::{Dim, TensorInfo};
use crate::source::{Pages, ReadAt};

/// Reads that a look at a graph's head may take.
const BUDGET: u64 = 10_000;

/// What a payload holds, of the function that the delegate calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// What the payload says of itself, in order (`specification version`, `9`).
    pub facts: Vec<(&'static str, String)>,
    /// The function that is called, where the payload has functions and tells which.
    pub function: Option<String>,
    /// All of its functions by name; fewer than two are not listed.
    pub functions: Vec<String>,
    /// Operators and how often each stands there.
    pub operators: BTreeMap<String, u64>,
    /// Types of what is computed, and how many values are of each: floats, and integers that stand for floats.
    pub computes: BTreeMap<String, u64>,
    /// Weights by how they are stored.
    pub weights: BTreeMap<Stored, Count>,
    /// Whether it has weights and operators that cannot be told.
    pub is_closed: bool,
    /// What is kept from run to run.
    pub states: Vec<State>,
    /// What it takes in the order of a call, where the payload has names for that.
    pub inputs: Vec<Port>,
    /// What it gives in the order of a call, where the payload has names for that.
    pub outputs: Vec<Port>,
}

/// How weights are stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    /// Type of an element (`int4`, `float16`).
    pub element: String,
    /// Bits of an element.
    pub bits: u32,
    /// What elements stand for.
    pub scheme: Scheme,
}

/// What the elements of weights stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// Themselves.
    Plain,
    /// Steps of one size.
    Tensor,
    /// Steps of a size for each place of one dimension.
    Channel,
    /// Steps of a size for each group of so many neighbours.
    Groups(u64),
    /// Places in a table of values.
    Palette,
    /// Steps; the payload does not tell here which share a size.
    Steps,
}

/// How many weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Tensors.
    pub tensors: u64,
    /// Their elements together.
    pub elements: u64,
}

/// A tensor that is kept from run to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its name, where the payload has one.
    pub name: Option<String>,
    /// Type of its elements.
    pub element: String,
    /// Its sizes.
    pub dims: Vec<Dim>,
}

/// An input or an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name, where the payload has one.
    pub name: Option<String>,
    /// What it is, if it is a tensor and the payload says.
    pub tensor: Option<TensorInfo>,
}

/// How much less precise than float32 something is; the least precise last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lowered {
    /// Floats of half the size, eleven bits of precision.
    Float16,
    /// Floats of half the size, eight bits of precision.
    Bfloat16,
    /// Five to eight bits.
    EightBits,
    /// Four bits at most.
    FourBits,
}

impl Content {
    /// What in it is less precise than float32: the lowest type that it computes in, the lowest type of its
    /// weights, each with words that go behind the delegate's name (`computes in float16`).
    pub fn lowered(&self) -> Vec<(Lowered, String)> {
        let computes = self.computes.keys().filter_map(|name| match name.as_str() {
            "float16" => Some((Lowered::Float16, "computes in float16".to_owned())),
            "bfloat16" => Some((Lowered::Bfloat16, "computes in bfloat16".to_owned())),
            name if name.contains("int8") => {
                Some((Lowered::EightBits, "computes with 8-bit values".to_owned()))
            }
            _ => None,
        });
        let weights = self.weights.keys().filter_map(|stored| {
            let lowered = stored.lowered()?;
            Some((lowered, format!("holds {} weights", stored.precision())))
        });
        let lowest = |found: Option<(Lowered, String)>| found.into_iter();
        let computes = computes.max_by_key(|(lowered, _)| *lowered);
        let weights = weights.max_by_key(|(lowered, _)| *lowered);
        lowest(computes).chain(lowest(weights)).collect()
    }

    /// Adds what another payload of the same backend holds; what both say of themselves counts once.
    pub fn add(&mut self, other: &Self) {
        for fact in &other.facts {
            if !self.facts.contains(fact) {
                self.facts.push(fact.clone());
            }
        }
        for (counts, others) in [
            (&mut self.operators, &other.operators),
            (&mut self.computes, &other.computes),
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
        self.is_closed |= other.is_closed;
        self.states.extend_from_slice(&other.states);
        self.inputs.extend_from_slice(&other.inputs);
        self.outputs.extend_from_slice(&other.outputs);
    }

    /// Notes the version that a graph says in its first field, as those of all backends do.
    pub(super) fn version(
        &mut self,
        source: &dyn ReadAt,
        graph: Option<ByteRange>,
    ) -> Result<(), Error> {
        let Some(ByteRange { offset, size }) = graph else {
            return Ok(());
        };
        let pages = Pages::with_budget(source, BUDGET);
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

    /// Counts a value that is computed, if it is of floats.
    pub(super) fn computed(&mut self, element: &str) {
        if element.contains("float") {
            self.quantised(element);
        }
    }

    /// Counts a value of integers that stand for floats.
    pub(super) fn quantised(&mut self, element: &str) {
        *self.computes.entry(element.to_owned()).or_default() += 1;
    }

    /// Counts a tensor of weights. A single number is a constant, no weight.
    pub(super) fn weight(&mut self, stored: Stored, elements: u64) {
        if elements > 1 {
            let count = self.weights.entry(stored).or_default();
            count.tensors += 1;
            count.elements = count.elements.saturating_add(elements);
        }
    }
}

impl Stored {
    /// Elements that stand for themselves.
    pub(super) fn plain(element: &str) -> Self {
        Self {
            element: element.to_owned(),
            bits: bits(element),
            scheme: Scheme::Plain,
        }
    }

    /// Integers of so many bits that stand for floats.
    pub(super) fn steps(element: &str, scheme: Scheme) -> Self {
        Self {
            scheme,
            ..Self::plain(element)
        }
    }

    fn lowered(&self) -> Option<Lowered> {
        match (self.scheme, self.element.as_str()) {
            (Scheme::Plain, "float16") => Some(Lowered::Float16),
            (Scheme::Plain, "bfloat16") => Some(Lowered::Bfloat16),
            (Scheme::Plain, _) => None,
            _ if self.bits <= 4 => Some(Lowered::FourBits),
            _ if self.bits <= 8 => Some(Lowered::EightBits),
            _ => None,
        }
    }

    fn precision(&self) -> String {
        match self.scheme {
            Scheme::Plain => self.element.clone(),
            _ => format!("{}-bit", self.bits),
        }
    }
}

/// Bits of an element, by the number at the end of its type's name.
fn bits(element: &str) -> u32 {
    let digits = element.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    digits.parse().unwrap_or(8)
}

impl Scheme {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tensor => "per tensor",
            Self::Channel => "per channel",
            Self::Groups(_) => "groups",
            Self::Palette => "palette",
            Self::Steps => "quantised",
        }
    }
}

/// `int4 in groups of 32`, `float16`.
impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.element)?;
        match self.scheme {
            Scheme::Plain => Ok(()),
            Scheme::Groups(size) => write!(f, " in groups of {size}"),
            scheme => write!(f, " {}", scheme.name()),
        }
    }
}

/// `keys float16[1, 2, 8, 4]`.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        let dims: Vec<String> = self.dims.iter().map(Dim::to_string).collect();
        write!(f, "{}[{}]", self.element, dims.join(", "))
    }
}

/// `picture float32[1, 3, 8, 8]`.
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
