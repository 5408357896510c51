//! The types of values, as the table of operators names them.

use super::operators::{Operators, Types};
use crate::model::onnx::wire::Field;
use crate::model::onnx::{Error, schema};

/// Most types within each other: an optional sequence of tensors has three.
const MAX_DEPTH: u32 = 4;

/// Names by `TensorProto.DataType`; the first is no type.
const ELEMENTS: [&str; 27] = [
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
];

/// Returns the type of tensors with elements of this number; 0 if no operator has it.
pub(super) fn tensor(number: i64) -> Types {
    let name = tensor_name(number);
    name.and_then(|name| Operators::get().type_of(&name))
        .unwrap_or(0)
}

fn tensor_name(number: i64) -> Option<String> {
    let name = ELEMENTS.get(usize::try_from(number).ok()?)?;
    (!name.is_empty()).then(|| format!("tensor({name})"))
}

/// Reads the name and the type of a `ValueInfoProto`; the type is 0 where it is missing or no operator has it.
pub(super) fn named(field: &Field<'_>) -> Result<(Vec<u8>, Types), Error> {
    let mut found = (Vec::new(), 0);
    let mut message = field.message(schema::VALUE_INFO)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "name" => found.0 = field.identifier()?,
            "type" => {
                let name = type_name(&field, MAX_DEPTH)?;
                found.1 = name
                    .and_then(|name| Operators::get().type_of(&name))
                    .unwrap_or(0);
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The name of a `TypeProto`: `seq(tensor(float))`.
fn type_name(field: &Field<'_>, depth: u32) -> Result<Option<String>, Error> {
    let mut name = None;
    let mut message = field.message(schema::TYPE)?;
    while let Some(field) = message.next()? {
        let outer = match field.name() {
            "tensor_type" => {
                name = element(&field)?;
                continue;
            }
            "sequence_type" => "seq",
            "optional_type" => "optional",
            _ => continue,
        };
        name = None;
        let mut message = field.message(schema::ELEMENT_TYPE)?;
        while let Some(field) = message.next()? {
            if field.name() == "elem_type" && depth > 0 {
                let inner = type_name(&field, depth - 1)?;
                name = inner.map(|inner| format!("{outer}({inner})"));
            }
        }
    }
    Ok(name)
}

fn element(field: &Field<'_>) -> Result<Option<String>, Error> {
    let mut number = 0;
    let mut message = field.message(schema::TENSOR_TYPE)?;
    while let Some(field) = message.next()? {
        if field.name() == "elem_type" {
            number = field.int()?;
        }
    }
    Ok(tensor_name(number))
}
