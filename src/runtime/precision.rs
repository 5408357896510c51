//! How precisely a model computes: as its package says, or as what its file holds shows.
//!
//! Invariant: nothing is taken to be less precise than something in the file, or its config, says; what
//! was seen is told. Reads headers, operators and the types of stored values, no weights.

use crate::model::executorch::body::{BodyValue, MethodBody, ProgramBody};
use crate::model::executorch::{Lowered, contents};
use crate::model::onnx::each_node;
use crate::model::precision::{self, Kind};
use crate::package::PrecisionList;
use crate::source::{FileSource, Pages};

use super::selection::Selection;
use crate::tensor::agreement::Tolerances;
use crate::tensor::{DType, TensorSpec};

/// A precision, and where it is known from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precision {
    /// Its token: `fp32`, `int8`, ….
    pub token: String,
    /// What says so: `its config says so`, `it holds float16 weights`.
    pub because: String,
    quantized: bool,
}

/// Precisions of what a file holds, the lowest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Float32,
    Float16,
    Bfloat16,
    EightBits,
    FourBits,
}

/// What is seen in a file, and the words for it.
type Seen = (Held, String);

impl Precision {
    /// Of what a package says; of a model file by itself, of what it holds.
    pub fn of(selection: &Selection) -> Self {
        let variant = selection.variant.as_ref();
        if let Some(token) = variant.and_then(|variant| variant.precision.clone()) {
            let quantized = PrecisionList::embedded().is_quantized(&token);
            let said = Self {
                token,
                because: "its config says so".to_owned(),
                quantized: quantized.unwrap_or(false),
            };
            return said.or_computed(selection);
        }
        let mut seen = Vec::new();
        let signature = &selection.signature;
        let values = signature.inputs.iter().chain(&signature.outputs);
        seen.extend(values.filter_map(of_value));
        match selection.info.format {
            "onnx" => seen.extend(of_onnx(selection)),
            "coreml" => seen.extend(of_core_ml(selection)),
            _ => seen.extend(of_program(selection)),
        }
        // Of several the one that was seen first: they are in the order of how much they say.
        let lowest = seen.iter().map(|(held, _)| *held).max();
        let lowest = seen.into_iter().find(|(held, _)| Some(*held) == lowest);
        let nothing = || (Held::Float32, "nothing in it is less precise".to_owned());
        let (held, because) = lowest.unwrap_or_else(nothing);
        Self {
            token: held.token().to_owned(),
            because,
            quantized: held >= Held::EightBits,
        }
    }

    /// This, or the type of floats that the program's delegates compute in, where that is less precise: some
    /// exporters compute in half precision unless they are told otherwise, whatever the package says.
    fn or_computed(self, selection: &Selection) -> Self {
        if self.quantized || selection.info.format != "executorch" {
            return self;
        }
        let Some((source, body)) = read(selection) else {
            return self;
        };
        let Some(method) = body.method(&selection.signature.method) else {
            return self;
        };
        let seen = of_payloads(&source, &body, method).into_iter();
        let floats = seen.filter(|(held, _)| matches!(held, Held::Float16 | Held::Bfloat16));
        // Of several the one that was seen first: what is computed in says more than what is stored.
        let lowest = floats.reduce(|first, other| if other.0 > first.0 { other } else { first });
        match lowest {
            Some((held, because)) if held > self.held() => Self {
                token: held.token().to_owned(),
                because,
                quantized: false,
            },
            _ => self,
        }
    }

    /// That of floats of this token.
    pub fn of_floats(token: &str) -> Self {
        Self {
            token: token.to_owned(),
            because: "its values are".to_owned(),
            quantized: false,
        }
    }

    /// That of a provider that computes in half precision, whatever the model says.
    pub fn half(provider: &str) -> Self {
        Self {
            token: Held::Float16.token().to_owned(),
            because: format!("{provider} computes in half precision"),
            quantized: false,
        }
    }

    /// What a model of this precision is expected to reach.
    pub fn tolerances(&self) -> Tolerances {
        Tolerances::of_precision(&self.token, self.quantized)
    }

    /// What a portable reading of a program of this precision is expected to reach on the engine that runs
    /// the other, too.
    pub fn tolerances_of_reading(&self) -> Tolerances {
        Tolerances::of_reading(&self.token, self.quantized)
    }

    /// Whether less is expected of it than of the other.
    pub fn is_below(&self, other: &Self) -> bool {
        self.held() > other.held()
    }

    fn held(&self) -> Held {
        match (self.token.as_str(), self.quantized) {
            ("fp16", _) => Held::Float16,
            ("bf16", _) => Held::Bfloat16,
            (token, true) if token.contains('4') => Held::FourBits,
            (_, true) => Held::EightBits,
            _ => Held::Float32,
        }
    }
}

impl Held {
    fn token(self) -> &'static str {
        match self {
            Self::Float32 => "fp32",
            Self::Float16 => "fp16",
            Self::Bfloat16 => "bf16",
            Self::EightBits => "int8",
            Self::FourBits => "int4",
        }
    }
}

impl From<Lowered> for Held {
    fn from(lowered: Lowered) -> Self {
        match lowered {
            Lowered::Float16 => Self::Float16,
            Lowered::Bfloat16 => Self::Bfloat16,
            Lowered::EightBits => Self::EightBits,
            Lowered::FourBits => Self::FourBits,
        }
    }
}

/// What an input or output shows.
fn of_value(spec: &TensorSpec) -> Option<Seen> {
    let held = match spec.dtype {
        DType::Float16 => Held::Float16,
        DType::Bfloat16 => Held::Bfloat16,
        _ => return None,
    };
    Some((held, format!("`{}` is {}", spec.name, spec.dtype)))
}

/// What the operators and the stored tensors of an ONNX file show.
fn of_onnx(selection: &Selection) -> Vec<Seen> {
    let operators = selection
        .info
        .methods
        .iter()
        .flat_map(|method| &method.operators);
    let mut seen: Vec<Seen> = operators
        .filter_map(|(operator, count)| {
            let held = of_operator(operator)?;
            let held = if held == Held::FourBits && bits(selection, operator) >= 8 {
                Held::EightBits
            } else {
                held
            };
            let s = if *count == 1 { "" } else { "s" };
            Some((held, format!("it holds {count} node{s} `{operator}`")))
        })
        .collect();
    seen.extend(of_weights(selection));
    seen
}

/// What the operations and the weights of an ML Program show.
fn of_core_ml(selection: &Selection) -> Vec<Seen> {
    let mut seen = of_weights(selection);
    let operations = selection
        .info
        .methods
        .iter()
        .flat_map(|method| method.operators.keys());
    let mut packed = operations.filter(|name| name.starts_with("constexpr_"));
    if let Some(operation) = packed.next() {
        let types = selection.info.weight_types.keys();
        let small = |name: &String| ["uint1", "uint2", "uint3"].contains(&name.as_str());
        let is_small = types.into_iter().any(small);
        let held = if is_small {
            Held::FourBits
        } else {
            Held::EightBits
        };
        seen.push((held, format!("it holds weights packed for `{operation}`")));
    }
    seen
}

/// What the types of stored tensors show.
fn of_weights(selection: &Selection) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (element, count) in &selection.info.weight_types {
        let held = match element.as_str() {
            "float16" => Held::Float16,
            "bfloat16" => Held::Bfloat16,
            "int4" | "uint4" | "float4e2m1" => Held::FourBits,
            name if name.starts_with("float8") => Held::EightBits,
            _ => continue,
        };
        // A single number is a constant, not a weight.
        if *count > 1 {
            seen.push((held, format!("it holds {element} weights")));
        }
    }
    seen
}

/// The precision that an operator of ONNX or of ONNX Runtime is for.
fn of_operator(operator: &str) -> Option<Held> {
    match precision::of_operator(operator)? {
        Kind::FourBits => Some(Held::FourBits),
        Kind::EightBits => Some(Held::EightBits),
        _ => None,
    }
}

/// The fewest bits that nodes of an operator store a weight in.
fn bits(selection: &Selection, operator: &str) -> i64 {
    let mut fewest = None;
    let Ok(source) = FileSource::open(&selection.model) else {
        return 4;
    };
    let name = operator.rsplit("::").next().unwrap_or(operator);
    let read = each_node(&Pages::new(&source), &mut |node| {
        if node.operator.rsplit("::").next() == Some(name) {
            let bits = node.attribute("bits").and_then(|attribute| attribute.int);
            let bits = bits.unwrap_or(4);
            fewest = Some(fewest.map_or(bits, |known: i64| known.min(bits)));
        }
    });
    // What cannot be read now was read before: the file is being changed.
    read.ok().and(fewest).unwrap_or(4)
}

/// A program's body, as far as it can be read.
fn read(selection: &Selection) -> Option<(FileSource, ProgramBody)> {
    let source = FileSource::open(&selection.model).ok()?;
    let body = ProgramBody::read(&source).ok()?;
    Some((source, body))
}

/// What the delegates of a program's method show.
fn of_payloads(source: &FileSource, body: &ProgramBody, method: &MethodBody) -> Vec<Seen> {
    let mut seen = Vec::new();
    // A payload that cannot be read runs nowhere; loading it will say why.
    for payload in contents(source, body, method).into_iter().flatten() {
        let name = payload.backend.title();
        let content = payload.content.into_iter();
        let lowered = content.flat_map(|content| content.lowered());
        seen.extend(lowered.map(|(lowered, words)| {
            let held = Held::from(lowered);
            (held, format!("its delegate for {name} {words}"))
        }));
    }
    seen
}

/// What the instructions, values and delegates of a program's method show.
fn of_program(selection: &Selection) -> Vec<Seen> {
    let name = &selection.signature.method;
    let mut seen = Vec::new();
    let operators = selection.info.method(name).map(|method| &method.operators);
    for operator in operators
        .into_iter()
        .flatten()
        .map(|(operator, _)| operator)
    {
        let held = if operator.contains("4bit") || operator.contains("2bit") {
            Held::FourBits
        } else if operator.starts_with("quantized_decomposed::")
            || operator.starts_with("torchao::")
        {
            Held::EightBits
        } else {
            continue;
        };
        seen.push((held, format!("it calls `{operator}`")));
    }
    // A program that cannot be read whole is described without; loading it will say why.
    let Some((source, body)) = read(selection) else {
        return seen;
    };
    let Some(method) = body.method(name) else {
        return seen;
    };
    seen.extend(of_payloads(&source, &body, method));
    for value in &method.values {
        let BodyValue::Tensor(tensor) = value else {
            continue;
        };
        let held = match tensor.element.name() {
            "float16" => Held::Float16,
            "bfloat16" => Held::Bfloat16,
            _ => continue,
        };
        seen.push((held, format!("it computes in {}", tensor.element.name())));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_say_what_they_are_for() {
        for (operator, expected) in [
            ("MatMul", None),
            ("DequantizeLinear", Some(Held::EightBits)),
            ("DynamicQuantizeLinear", Some(Held::EightBits)),
            ("com.microsoft::QLinearAdd", Some(Held::EightBits)),
            ("MatMulInteger", Some(Held::EightBits)),
            ("com.microsoft::MatMulNBits", Some(Held::FourBits)),
            ("Resize", None),
        ] {
            assert_eq!(of_operator(operator), expected, "{operator}");
        }
    }
}
