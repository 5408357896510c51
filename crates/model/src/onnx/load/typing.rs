//! Reads the types of values from `TypeProto` messages, in the notation of the operator table.

use super::operators::{Operators, TypeSet};
use crate::FormatError;
use crate::onnx::schema;
use crate::onnx::wire::WireField;

/// Maximum nesting depth of types; an optional sequence of tensors has three.
const MAX_DEPTH: u32 = 4;

/// Names by `TensorProto.DataType`; number 0 is undefined.
const ELEMENT_NAMES: [&str; 29] = [
    "",
    "float",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "string",
    "bool",
    "float16",
    "double",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
    "bfloat16",
    "float8e4m3fn",
    "float8e4m3fnuz",
    "float8e5m2",
    "float8e5m2fnuz",
    "uint4",
    "int4",
    "float4e2m1",
    "float8e8m0",
    "uint2",
    "int2",
    "float6e2m3",
    "float6e3m2",
];

/// Returns the type of tensors with this element type number; 0 if operators never use it.
pub(super) fn tensor(number: i64) -> TypeSet {
    let name = tensor_name(number);
    name.and_then(|name| Operators::get().type_of(&name))
        .unwrap_or(0)
}

fn tensor_name(number: i64) -> Option<String> {
    let name = ELEMENT_NAMES.get(usize::try_from(number).ok()?)?;
    (!name.is_empty()).then(|| format!("tensor({name})"))
}

/// A parsed `ValueInfoProto`.
pub(super) struct ValueDeclaration {
    pub(super) name: Vec<u8>,
    /// Its type; 0 if it is missing or unused by operators.
    pub(super) types: TypeSet,
    /// True if it declares a type.
    pub(super) has_type: bool,
    /// The element type number, if it is invalid.
    pub(super) invalid: Option<i64>,
}

/// Reads a `ValueInfoProto`.
pub(super) fn declared(field: &WireField<'_>) -> Result<ValueDeclaration, FormatError> {
    let mut found = ValueDeclaration {
        name: Vec::new(),
        types: 0,
        has_type: false,
        invalid: None,
    };
    let mut message = field.message(schema::VALUE_INFO)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "name" => found.name = field.identifier()?,
            "type" => {
                let read = ParsedType::read(&field, MAX_DEPTH)?;
                let name = read.name;
                found.types = name
                    .and_then(|name| Operators::get().type_of(&name))
                    .unwrap_or(0);
                found.has_type = read.has_kind;
                found.invalid = read.invalid;
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Returns whether a number is a valid element type.
pub(super) fn is_element(number: i64) -> bool {
    tensor_name(number).is_some()
}

/// A parsed `TypeProto`.
#[derive(Default)]
struct ParsedType {
    /// Its name, such as `seq(tensor(float))`, if known.
    name: Option<String>,
    /// True if the kind of type is set.
    has_kind: bool,
    /// The element type number, if it is invalid.
    invalid: Option<i64>,
}

impl ParsedType {
    fn read(field: &WireField<'_>, depth: u32) -> Result<Self, FormatError> {
        let mut found = Self::default();
        let mut message = field.message(schema::TYPE)?;
        while let Some(field) = message.next()? {
            let outer = match field.name() {
                "tensor_type" => {
                    let number = element(&field)?;
                    found.has_kind = true;
                    found.name = tensor_name(number);
                    found.invalid = Some(number).filter(|_| found.name.is_none());
                    continue;
                }
                "sequence_type" => "seq",
                "optional_type" => "optional",
                "denotation" => continue,
                _ => {
                    found.has_kind = true;
                    continue;
                }
            };
            let inner = Self::inner(&field, depth)?;
            found.has_kind = true;
            found.name = inner.name.map(|inner| format!("{outer}({inner})"));
            found.invalid = inner.invalid.or((!inner.has_kind).then_some(0));
        }
        Ok(found)
    }

    /// Reads the element type of a sequence or optional.
    fn inner(field: &WireField<'_>, depth: u32) -> Result<Self, FormatError> {
        let mut found = Self::default();
        let mut message = field.message(schema::ELEMENT_TYPE)?;
        while let Some(field) = message.next()? {
            if field.name() != "elem_type" {
                continue;
            }
            found = match depth.checked_sub(1) {
                Some(depth) => Self::read(&field, depth)?,
                None => Self {
                    has_kind: true,
                    ..Self::default()
                },
            };
        }
        Ok(found)
    }
}

/// Returns the element type number of a tensor; 0 if it is missing.
fn element(field: &WireField<'_>) -> Result<i64, FormatError> {
    let mut number = 0;
    let mut message = field.message(schema::TENSOR_TYPE)?;
    while let Some(field) = message.next()? {
        if field.name() == "elem_type" {
            number = field.int()?;
        }
    }
    Ok(number)
}
