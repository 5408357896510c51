//! Determines the precision in which a model computes: from its package, or from the contents of
//! its file.
//!
//! The precision selects the tolerances of a comparison. Only headers, operators and types of
//! stored values are read, not weights.
//!
//! Invariant: the result is never lower than the config or something in the file indicates. It
//! names its evidence.

use pkgtool_base::package::PrecisionList;
use pkgtool_base::source::{FileSource, Pages};
use pkgtool_model::executorch::body::{BodyValue, MethodBody, ProgramBody};
use pkgtool_model::executorch::{LoweredPrecision, contents};
use pkgtool_model::onnx::each_node;
use pkgtool_model::precision::{self, NumberPrecision};

use super::selection::Selection;
use crate::tensor::agreement::Tolerances;
use crate::tensor::{DType, TensorSpec};

/// A precision and its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precision {
    /// Precision token: `fp32`, `int8`, ….
    pub token: String,
    /// The evidence: `its config says so`, `it holds float16 weights`.
    pub because: String,
    quantized: bool,
}

/// Precisions of a file's contents, from highest to lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PrecisionClass {
    Float32,
    Float16,
    Bfloat16,
    EightBits,
    FourBits,
}

/// A precision found in a file, and its evidence in words.
type PrecisionEvidence = (PrecisionClass, String);

impl Precision {
    /// Returns the precision of a package's variant from its config, or of a single model file from
    /// its contents.
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
        seen.extend(values.filter_map(from_value));
        match selection.info.format {
            "onnx" => seen.extend(of_onnx(selection)),
            "coreml" => seen.extend(of_core_ml(selection)),
            _ => seen.extend(of_program(selection)),
        }
        // Of equal ones the first counts: they are ordered by how much they prove.
        let lowest = seen.iter().map(|(held, _)| *held).max();
        let lowest = seen.into_iter().find(|(held, _)| Some(*held) == lowest);
        let nothing = || {
            (
                PrecisionClass::Float32,
                "nothing in it is less precise".to_owned(),
            )
        };
        let (held, because) = lowest.unwrap_or_else(nothing);
        Self {
            token: held.token().to_owned(),
            because,
            quantized: held >= PrecisionClass::EightBits,
        }
    }

    /// Lowers the precision to the float type in which the program's delegates compute. Some
    /// exporters compute in half precision by default, whatever the package says.
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
        let floats = seen
            .filter(|(held, _)| matches!(held, PrecisionClass::Float16 | PrecisionClass::Bfloat16));
        // Of equal ones the first counts: the type of computations proves more than the type of
        // storage.
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

    /// Returns the precision of floats with this token.
    pub fn of_floats(token: &str) -> Self {
        Self {
            token: token.to_owned(),
            because: "its values are".to_owned(),
            quantized: false,
        }
    }

    /// Returns the precision of a provider that always computes in half precision.
    pub fn half(provider: &str) -> Self {
        Self {
            token: PrecisionClass::Float16.token().to_owned(),
            because: format!("{provider} computes in half precision"),
            quantized: false,
        }
    }

    /// Returns the tolerances for a model of this precision.
    pub fn tolerances(&self) -> Tolerances {
        Tolerances::of_precision(&self.token, self.quantized)
    }

    /// Returns the tolerances for a portable reading of a program, compared to the program on its
    /// own engine.
    pub fn tolerances_of_reading(&self) -> Tolerances {
        Tolerances::of_reading(&self.token, self.quantized)
    }

    /// Returns `true` if this precision is lower than the other.
    pub fn is_below(&self, other: &Self) -> bool {
        self.held() > other.held()
    }

    fn held(&self) -> PrecisionClass {
        match (self.token.as_str(), self.quantized) {
            ("fp16", _) => PrecisionClass::Float16,
            ("bf16", _) => PrecisionClass::Bfloat16,
            (token, true) if token.contains('4') => PrecisionClass::FourBits,
            (_, true) => PrecisionClass::EightBits,
            _ => PrecisionClass::Float32,
        }
    }
}

impl PrecisionClass {
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

impl From<LoweredPrecision> for PrecisionClass {
    fn from(lowered: LoweredPrecision) -> Self {
        match lowered {
            LoweredPrecision::Float16 => Self::Float16,
            LoweredPrecision::Bfloat16 => Self::Bfloat16,
            LoweredPrecision::EightBits => Self::EightBits,
            LoweredPrecision::FourBits => Self::FourBits,
        }
    }
}

/// Returns the precision of an input or output.
fn from_value(spec: &TensorSpec) -> Option<PrecisionEvidence> {
    let held = match spec.dtype {
        DType::Float16 => PrecisionClass::Float16,
        DType::Bfloat16 => PrecisionClass::Bfloat16,
        _ => return None,
    };
    Some((held, format!("`{}` is {}", spec.name, spec.dtype)))
}

/// Returns the precisions of the operators and stored tensors of an ONNX file.
fn of_onnx(selection: &Selection) -> Vec<PrecisionEvidence> {
    let operators = selection
        .info
        .methods
        .iter()
        .flat_map(|method| &method.operators);
    let mut seen: Vec<PrecisionEvidence> = operators
        .filter_map(|(operator, count)| {
            let held = of_operator(operator)?;
            let held = if held == PrecisionClass::FourBits && bits(selection, operator) >= 8 {
                PrecisionClass::EightBits
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

/// Returns the precisions of the operations and weights of an ML Program.
fn of_core_ml(selection: &Selection) -> Vec<PrecisionEvidence> {
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
            PrecisionClass::FourBits
        } else {
            PrecisionClass::EightBits
        };
        seen.push((held, format!("it holds weights packed for `{operation}`")));
    }
    seen
}

/// Returns the precisions of stored tensors.
fn of_weights(selection: &Selection) -> Vec<PrecisionEvidence> {
    let mut seen = Vec::new();
    for (element, count) in &selection.info.weight_types {
        let held = match element.as_str() {
            "float16" => PrecisionClass::Float16,
            "bfloat16" => PrecisionClass::Bfloat16,
            "int4" | "uint4" | "float4e2m1" => PrecisionClass::FourBits,
            name if name.starts_with("float8") => PrecisionClass::EightBits,
            _ => continue,
        };
        // A single number is a constant, not a weight.
        if *count > 1 {
            seen.push((held, format!("it holds {element} weights")));
        }
    }
    seen
}

/// Returns the precision that an operator of ONNX or ONNX Runtime indicates.
fn of_operator(operator: &str) -> Option<PrecisionClass> {
    match precision::of_operator(operator)? {
        NumberPrecision::FourBits => Some(PrecisionClass::FourBits),
        NumberPrecision::EightBits => Some(PrecisionClass::EightBits),
        _ => None,
    }
}

/// Returns the fewest bits per weight among the nodes of an operator.
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
    // The file was readable before: it is being changed now.
    read.ok().and(fewest).unwrap_or(4)
}

/// Reads a program's body; returns `None` if it is unreadable.
fn read(selection: &Selection) -> Option<(FileSource, ProgramBody)> {
    let source = FileSource::open(&selection.model).ok()?;
    let body = ProgramBody::read(&source).ok()?;
    Some((source, body))
}

/// Returns the precisions of the delegates of a program's method.
fn of_payloads(
    source: &FileSource,
    body: &ProgramBody,
    method: &MethodBody,
) -> Vec<PrecisionEvidence> {
    let mut seen = Vec::new();
    // An unreadable payload cannot run; loading it reports the error.
    for payload in contents(source, body, method).into_iter().flatten() {
        let name = payload.backend.title();
        let content = payload.content.into_iter();
        let lowered = content.flat_map(|content| content.lowered());
        seen.extend(lowered.map(|(lowered, words)| {
            let held = PrecisionClass::from(lowered);
            (held, format!("its delegate for {name} {words}"))
        }));
    }
    seen
}

/// Returns the precisions of the instructions, values and delegates of a program's method.
fn of_program(selection: &Selection) -> Vec<PrecisionEvidence> {
    let name = &selection.signature.method;
    let mut seen = Vec::new();
    let operators = selection.info.method(name).map(|method| &method.operators);
    for operator in operators
        .into_iter()
        .flatten()
        .map(|(operator, _)| operator)
    {
        let held = if operator.contains("4bit") || operator.contains("2bit") {
            PrecisionClass::FourBits
        } else if operator.starts_with("quantized_decomposed::")
            || operator.starts_with("torchao::")
        {
            PrecisionClass::EightBits
        } else {
            continue;
        };
        seen.push((held, format!("it calls `{operator}`")));
    }
    // A partly unreadable program is described by the readable part; loading it reports the error.
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
            "float16" => PrecisionClass::Float16,
            "bfloat16" => PrecisionClass::Bfloat16,
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
            ("DequantizeLinear", Some(PrecisionClass::EightBits)),
            ("DynamicQuantizeLinear", Some(PrecisionClass::EightBits)),
            ("com.microsoft::QLinearAdd", Some(PrecisionClass::EightBits)),
            ("MatMulInteger", Some(PrecisionClass::EightBits)),
            ("com.microsoft::MatMulNBits", Some(PrecisionClass::FourBits)),
            ("Resize", None),
        ] {
            assert_eq!(of_operator(operator), expected, "{operator}");
        }
    }
}
