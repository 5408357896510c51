//! Infers the types of a node's outputs, as the code of its ONNX operator does.
//!
//! Most types follow from the schema: from a type parameter that an input binds, or from a single
//! allowed type. The tables in this file cover the remaining operators. Other types remain unknown
//! and are not checked.

use super::graphs;
use super::node::{AttributeHeader, NodeHeader};
use super::operators::{OperatorSchema, Operators, TypeSet};
use super::typing;

/// Source of an output type if the attribute is absent.
enum FallbackType {
    /// A fixed element type.
    Element(i64),
    /// The type of this input.
    Input(usize),
    /// The schema.
    Schema,
}

/// Operators whose attribute determines the type of the first output: operator, attribute,
/// fallback.
const ATTRIBUTE_TYPED_OPERATORS: [(&str, &str, FallbackType); 14] = [
    ("Bernoulli", "dtype", FallbackType::Input(0)),
    ("Cast", "to", FallbackType::Schema),
    ("ConstantOfShape", "value", FallbackType::Element(FLOAT)),
    ("DequantizeLinear", "output_dtype", FallbackType::Schema),
    ("EyeLike", "dtype", FallbackType::Input(0)),
    (
        "HammingWindow",
        "output_datatype",
        FallbackType::Element(FLOAT),
    ),
    (
        "HannWindow",
        "output_datatype",
        FallbackType::Element(FLOAT),
    ),
    (
        "BlackmanWindow",
        "output_datatype",
        FallbackType::Element(FLOAT),
    ),
    (
        "MelWeightMatrix",
        "output_datatype",
        FallbackType::Element(FLOAT),
    ),
    ("Multinomial", "dtype", FallbackType::Element(INT32)),
    ("RandomNormal", "dtype", FallbackType::Element(FLOAT)),
    ("RandomUniform", "dtype", FallbackType::Element(FLOAT)),
    ("RandomNormalLike", "dtype", FallbackType::Input(0)),
    ("RandomUniformLike", "dtype", FallbackType::Input(0)),
];

/// Operators that wrap or unwrap the type of their first input, such as sequences and optionals.
/// Each row has the prefix removed from the input type and the prefix added to the output type.
const WRAPPING_OPERATORS: [(&str, &str, &str); 5] = [
    ("ConcatFromSequence", "seq(", ""),
    ("SequenceAt", "seq(", ""),
    ("SequenceConstruct", "", "seq("),
    ("SplitToSequence", "", "seq("),
    ("OptionalGetElement", "optional(", ""),
];

/// Types of constants, by the type number of their attribute: a float, an int, a string, or lists
/// of these.
const CONSTANT_TYPES: [(i64, i64); 6] = [
    (1, FLOAT),
    (2, INT64),
    (3, STRING),
    (6, FLOAT),
    (7, INT64),
    (8, STRING),
];

/// Numbers of element types.
const FLOAT: i64 = 1;
const INT32: i64 = 6;
const INT64: i64 = 7;
const STRING: i64 = 8;

/// Numbers of attribute types.
const TENSOR: i64 = 4;
const SPARSE_TENSOR: i64 = 11;

/// Returns the types of a node's outputs, 0 for an unknown type; `bound` are the type parameters
/// bound by inputs.
pub(super) fn outputs(
    node: &NodeHeader,
    schema: &OperatorSchema,
    inputs: &[TypeSet],
    bound: &[TypeSet],
) -> Vec<TypeSet> {
    if let Some(types) = graphs::outputs(node, inputs) {
        return types;
    }
    let mut types = by_schema(node, schema, bound);
    if let (Some(first), Some(special)) = (types.first_mut(), by_operator(node, inputs)) {
        *first = special;
    }
    types
}

/// Returns the types of a node's outputs that follow from the schema, 0 for an unknown type.
pub(super) fn by_schema(
    node: &NodeHeader,
    schema: &OperatorSchema,
    bound: &[TypeSet],
) -> Vec<TypeSet> {
    let positions = 0..node.outputs.len();
    positions
        .map(|position| {
            let Some(formal) = OperatorSchema::formal(&schema.outputs, position) else {
                return 0;
            };
            let parameter = formal.parameter.and_then(|index| bound.get(index));
            match parameter.copied().unwrap_or(0) {
                0 if formal.types.is_power_of_two() => formal.types,
                types => types,
            }
        })
        .collect()
}

/// Returns the type of the first output for operators whose schema does not determine it.
fn by_operator(node: &NodeHeader, inputs: &[TypeSet]) -> Option<TypeSet> {
    let operator = node.operator.as_str();
    if operator == "Constant" {
        return Some(node.attributes.first().map_or(0, of_constant));
    }
    let input = |position: usize| inputs.get(position).copied().unwrap_or(0);
    if let Some((_, attribute, otherwise)) = ATTRIBUTE_TYPED_OPERATORS
        .iter()
        .find(|(known, ..)| *known == operator)
    {
        let mut given = node.attributes.iter();
        if let Some(given) = given.find(|given| given.name == *attribute) {
            return Some(given.tensors);
        }
        return match otherwise {
            FallbackType::Element(number) => Some(typing::tensor(*number)),
            FallbackType::Input(position) => Some(input(*position)),
            FallbackType::Schema => None,
        };
    }
    let (_, outer, around) = WRAPPING_OPERATORS
        .iter()
        .find(|(known, ..)| *known == operator)?;
    Some(wrapped(input(0), outer, around))
}

/// Returns the type after removing the wrapper `outer`, or after adding the wrapper `around`.
fn wrapped(input: TypeSet, outer: &str, around: &str) -> TypeSet {
    if !input.is_power_of_two() {
        return 0;
    }
    let table = Operators::get();
    let name = table.type_name(input);
    let inner = match name.strip_prefix(outer) {
        Some(inner) if !outer.is_empty() => inner.strip_suffix(')').unwrap_or(inner),
        _ => name,
    };
    let name = if around.is_empty() {
        inner.to_owned()
    } else {
        format!("{around}{inner})")
    };
    table.type_of(&name).unwrap_or(0)
}

/// Returns whether an attribute is the value of a constant.
pub(super) fn is_constant(attribute: &AttributeHeader) -> bool {
    let Some(stated) = attribute.stated_type else {
        return false;
    };
    let is_tensor = matches!(stated, TENSOR | SPARSE_TENSOR);
    is_tensor && attribute.has(stated) || CONSTANT_TYPES.iter().any(|(kind, _)| *kind == stated)
}

/// Returns the type of a constant with this attribute; 0 if it is unknown.
fn of_constant(attribute: &AttributeHeader) -> TypeSet {
    let mut known = CONSTANT_TYPES.iter();
    match known.find(|(kind, _)| Some(*kind) == attribute.stated_type) {
        Some((_, number)) => typing::tensor(*number),
        None => attribute.tensors,
    }
}
