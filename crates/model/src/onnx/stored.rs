//! Reads stored tensors: shapes, and the values of small ones such as targets, axes, sizes and
//! scales.
//!
//! The data of larger tensors is skipped. Memory does not grow with the number of tensors.

use super::place::FieldPath;
use super::schema;
use super::wire::{WireField, WireMessage, WireReader};
use crate::FormatError;
use pkgtool_base::source::Pages;

/// `TensorProto.DataType.FLOAT` and `INT64`.
const FLOAT: i64 = 1;
const INT64: i64 = 7;
/// Maximum number of dimensions, and of values, that are read.
const MAX_VALUES: usize = 64;

/// A stored tensor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredTensor {
    /// Its element type number in `TensorProto.DataType`.
    pub dtype: i64,
    /// Its shape; a negative size becomes 0.
    pub dims: Vec<u64>,
    /// Its values, if it has at most 64 elements of int64 inside the file.
    pub ints: Option<Vec<i64>>,
    /// Its values, if it has at most 64 elements of float32 inside the file.
    pub floats: Option<Vec<f32>>,
}

/// Calls `visit` for every initializer of the main graph in `pages`, with its name.
pub fn each_initializer(
    pages: &Pages<'_>,
    visit: &mut dyn FnMut(String, StoredTensor),
) -> Result<(), FormatError> {
    let reader = WireReader::new(pages);
    let root = FieldPath::root("ModelProto");
    let mut message = WireMessage::whole_file(&reader, &root, schema::MODEL);
    while let Some(field) = message.next()? {
        if field.name() != "graph" {
            continue;
        }
        let mut graph = field.message(schema::GRAPH)?;
        while let Some(field) = graph.next()? {
            if field.name() == "initializer" {
                let (name, stored) = read(&field)?;
                visit(name, stored);
            }
        }
    }
    Ok(())
}

/// Reads name and content of a `TensorProto`.
pub(super) fn read(field: &WireField<'_>) -> Result<(String, StoredTensor), FormatError> {
    let mut name = String::new();
    let mut stored = StoredTensor::default();
    let mut ints: Vec<i64> = Vec::new();
    let mut floats: Vec<u8> = Vec::new();
    let mut message = field.message(schema::TENSOR)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "name" => {
                let bytes = field.name_bytes()?.unwrap_or_default();
                name = String::from_utf8_lossy(&bytes).into_owned();
            }
            "dims" => field.each_int(|dim| {
                if stored.dims.len() < MAX_VALUES {
                    stored.dims.push(u64::try_from(dim).unwrap_or(0));
                }
            })?,
            "data_type" => stored.dtype = field.int()?,
            "int64_data" => field.each_int(|value| {
                if ints.len() <= MAX_VALUES {
                    ints.push(value);
                }
            })?,
            // Packed numbers have the same bytes as raw data.
            "float_data" if field.size() <= 4 * MAX_VALUES as u64 => {
                floats.extend(field.name_bytes()?.unwrap_or_default());
            }
            "raw_data" if field.size() <= 8 * MAX_VALUES as u64 => {
                let bytes = field.name_bytes()?.unwrap_or_default();
                floats.extend(&bytes);
                let values = bytes.chunks_exact(8).map(|chunk| {
                    i64::from_le_bytes(chunk.try_into().expect("it is a chunk of eight"))
                });
                ints.extend(values);
            }
            _ => {}
        }
    }
    let elements = stored.dims.iter().copied().fold(1, u64::saturating_mul);
    if stored.dtype == INT64 && ints.len() as u64 == elements && ints.len() <= MAX_VALUES {
        stored.ints = Some(ints);
    }
    if stored.dtype == FLOAT && floats.len() as u64 == elements.saturating_mul(4) {
        let (chunks, _) = floats.as_chunks::<4>();
        let values = chunks.iter().map(|bytes| f32::from_le_bytes(*bytes));
        stored.floats = Some(values.take(MAX_VALUES).collect());
    }
    Ok((name, stored))
}
