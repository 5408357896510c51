//! Reads inputs and outputs of an ONNX graph: `ValueInfoProto`, its type and its shape.
//!
//! Element types are numbers of `TensorProto.DataType`. Only tensors are described in full;
//! sequences, maps and other types are described by name.

use super::schema;
use super::wire::WireField;
use crate::{Dim, Dynamism, ElementType, FormatError, ModelValue, TensorInfo, ValueKind};
use pkgtool_base::package::DType;

/// Approximate memory of a value and of a dimension, in bytes.
const VALUE_COST: u64 = 256;
const DIM_COST: u64 = 64;

/// Reads a `ValueInfoProto`.
pub(super) fn read(field: &WireField<'_>) -> Result<ModelValue, FormatError> {
    field.keep(VALUE_COST)?;
    let mut name = None;
    let mut kind = ValueKind::Other("untyped".to_owned());
    let mut message = field.message(schema::VALUE_INFO)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "name" => name = Some(field.kept_text()?).filter(|name| !name.is_empty()),
            "type" => kind = read_type(&field)?,
            _ => {}
        }
    }
    Ok(ModelValue { name, kind })
}

/// Reads a `TypeProto`, a union; if a file sets several members, the last one wins.
fn read_type(field: &WireField<'_>) -> Result<ValueKind, FormatError> {
    let mut kind = "untyped";
    let mut tensor = None;
    let mut message = field.message(schema::TYPE)?;
    while let Some(field) = message.next()? {
        let found = match field.name() {
            "tensor_type" => "tensor",
            "sequence_type" => "sequence",
            "map_type" => "map",
            "opaque_type" => "opaque",
            "sparse_tensor_type" => "sparse_tensor",
            "optional_type" => "optional",
            _ => continue,
        };
        kind = found;
        tensor = match kind {
            "tensor" => Some(read_tensor_type(&field)?),
            _ => None,
        };
    }
    Ok(match tensor {
        Some(info) => ValueKind::Tensor { info, data: None },
        None => ValueKind::Other(kind.to_owned()),
    })
}

fn read_tensor_type(field: &WireField<'_>) -> Result<TensorInfo, FormatError> {
    let mut elem_type = 0;
    let mut dims = None;
    let mut message = field.message(schema::TENSOR_TYPE)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "elem_type" => elem_type = field.int()?,
            "shape" => dims = Some(read_shape(&field)?),
            _ => {}
        }
    }
    Ok(TensorInfo {
        element: element_type(elem_type),
        dynamism: dynamism(dims.as_deref()),
        dims,
    })
}

fn read_shape(field: &WireField<'_>) -> Result<Vec<Dim>, FormatError> {
    let mut dims = Vec::new();
    let mut message = field.message(schema::SHAPE)?;
    while let Some(field) = message.next()? {
        if field.name() == "dim" {
            field.keep(DIM_COST)?;
            dims.push(read_dimension(&field)?);
        }
    }
    Ok(dims)
}

/// Reads a dimension: a number or a symbol; the last one wins. Some exporters write -1 for a
/// dynamic dimension.
fn read_dimension(field: &WireField<'_>) -> Result<Dim, FormatError> {
    let mut dim = Dim::ANY;
    let mut message = field.message(schema::DIMENSION)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "dim_value" => {
                dim = match u64::try_from(field.int()?) {
                    Ok(size) => Dim::Fixed(size),
                    Err(_) => Dim::ANY,
                };
            }
            "dim_param" => {
                dim = Dim::Dynamic {
                    bound: None,
                    name: Some(field.kept_text()?).filter(|name| !name.is_empty()),
                    allowed: None,
                };
            }
            _ => {}
        }
    }
    Ok(dim)
}

fn dynamism(dims: Option<&[Dim]>) -> Dynamism {
    match dims {
        None => Dynamism::Unbounded,
        Some(dims) if dims.iter().all(|dim| matches!(dim, Dim::Fixed(_))) => Dynamism::Static,
        Some(_) => Dynamism::Symbolic,
    }
}

/// Returns the element type for a number of `TensorProto.DataType`.
pub(super) fn element_type(number: i64) -> ElementType {
    if let Some(dtype) = dtype(number) {
        return ElementType::Known(dtype);
    }
    ElementType::Other(match other(number) {
        Some((name, _)) => name.to_owned(),
        None => format!("elem_type {number}"),
    })
}

/// Returns the bits per element in external data, if they are known and fixed.
pub(super) fn element_bits(number: i64) -> Option<u64> {
    match dtype(number) {
        Some(dtype) => Some(dtype.size() * 8),
        None => other(number).and_then(|(_, bits)| bits),
    }
}

fn dtype(number: i64) -> Option<DType> {
    Some(match number {
        1 => DType::Float32,
        2 => DType::Uint8,
        3 => DType::Int8,
        5 => DType::Int16,
        6 => DType::Int32,
        7 => DType::Int64,
        9 => DType::Bool,
        10 => DType::Float16,
        11 => DType::Float64,
        16 => DType::Bfloat16,
        _ => return None,
    })
}

/// Returns name and bits of types that a config cannot express.
fn other(number: i64) -> Option<(&'static str, Option<u64>)> {
    Some(match number {
        0 => ("undefined", None),
        4 => ("uint16", Some(16)),
        8 => ("string", None),
        12 => ("uint32", Some(32)),
        13 => ("uint64", Some(64)),
        14 => ("complex64", Some(64)),
        15 => ("complex128", Some(128)),
        17 => ("float8e4m3fn", Some(8)),
        18 => ("float8e4m3fnuz", Some(8)),
        19 => ("float8e5m2", Some(8)),
        20 => ("float8e5m2fnuz", Some(8)),
        21 => ("uint4", Some(4)),
        22 => ("int4", Some(4)),
        23 => ("float4e2m1", Some(4)),
        24 => ("float8e8m0", Some(8)),
        25 => ("uint2", Some(2)),
        26 => ("int2", Some(2)),
        27 => ("float6e2m3", None),
        28 => ("float6e3m2", None),
        _ => return None,
    })
}
