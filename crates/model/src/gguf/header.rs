//! Reads the header of a GGUF file and describes the file as a [`ModelInfo`].

use std::collections::{BTreeMap, HashSet};

use super::MAGIC;
use super::element::{element_of, ggml_type};
use super::reader::GgufReader;
use crate::{
    Dim, Dynamism, FieldPosition, FormatError, ModelFormat, ModelInfo, NamedData, Segment,
    TensorInfo,
};
use pkgtool_base::source::Pages;

/// Maximum number of dimensions of a tensor (`GGML_MAX_DIMS`).
const MAX_RANK: u32 = 4;
/// Default alignment of the data section, in bytes; the file may override it.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Minimum size of a metadata entry in bytes: key length, value type, one byte.
const MIN_ENTRY_BYTES: u64 = 13;
/// Minimum size of a tensor description in bytes: name length, rank, type and offset.
const MIN_TENSOR_BYTES: u64 = 24;

/// Description of a tensor in the header.
struct GgufTensor {
    place: String,
    name: String,
    dims: Vec<u64>,
    kind: u32,
    elements: u64,
    offset: u64,
    /// Size of its data in bytes; `None` for an unknown type.
    size: Option<u64>,
}

pub(super) fn read(pages: &Pages<'_>) -> Result<ModelInfo, FormatError> {
    let mut reader = GgufReader::new(pages);
    let version = version(&mut reader)?;
    // Both counts precede the items that they count.
    let tensor_count = reader.count(&"tensor_count", MIN_TENSOR_BYTES)?;
    let entry_count = reader.count(&"metadata_kv_count", MIN_ENTRY_BYTES)?;
    let mut metadata = Vec::new();
    let mut keys = HashSet::new();
    let mut alignment = DEFAULT_ALIGNMENT;
    for index in 0..entry_count {
        let place = format!("metadata[{index}]");
        let offset = reader.at;
        let key = reader.name(&format_args!("{place}.key"))?;
        if !keys.insert(key.clone()) {
            return Err(
                FieldPosition::new(place, offset).violates(format_args!("duplicate name {key:?}"))
            );
        }
        let offset = reader.at;
        let value = reader.value(&format_args!("{place} ({key})"))?;
        if key == "general.alignment" {
            alignment = value.number.unwrap_or(0);
            if !alignment.is_power_of_two() || alignment < 8 {
                return Err(FieldPosition::new(format_args!("{place} ({key})"), offset)
                    .expected("a power of two of at least 8", alignment));
            }
        }
        metadata.push((key, value.shown));
    }
    let mut tensors = Vec::new();
    let mut names = HashSet::new();
    for index in 0..tensor_count {
        let offset = reader.at;
        let tensor = read_tensor(&mut reader, index, alignment)?;
        if !names.insert(tensor.name.clone()) {
            return Err(FieldPosition::new(tensor.place, offset)
                .violates(format_args!("duplicate name {:?}", tensor.name)));
        }
        tensors.push(tensor);
    }
    let header = reader.at;
    // In a file without tensors, the padding may reach or exceed the end of the file.
    let data = header.checked_next_multiple_of(alignment);
    let data = data.unwrap_or(u64::MAX).min(reader.len());
    check_data_ranges(&mut tensors, data, reader.len())?;
    Ok(describe(
        version,
        metadata,
        tensors,
        (header, data, reader.len()),
    ))
}

fn version(reader: &mut GgufReader<'_>) -> Result<u32, FormatError> {
    let magic: [u8; 4] = reader.array(&"magic")?;
    if magic != *MAGIC {
        let found = format!("\"{}\"", magic.escape_ascii());
        return Err(FieldPosition::new("magic", 0).expected("\"GGUF\"", found));
    }
    let version = reader.u32(&"version")?;
    match version {
        2 | 3 => Ok(version),
        _ => {
            let found = match version.swap_bytes() {
                swapped @ 1..=9 => format!("{swapped} in big-endian"),
                _ => version.to_string(),
            };
            Err(FieldPosition::new("version", 4).expected("2 or 3, little-endian", found))
        }
    }
}

fn read_tensor(
    reader: &mut GgufReader<'_>,
    index: u64,
    alignment: u64,
) -> Result<GgufTensor, FormatError> {
    let place = format!("tensors[{index}]");
    let name = reader.name(&format_args!("{place}.name"))?;
    let value = |field: &str, offset, expected: String, found| {
        FieldPosition::new(format_args!("{place}.{field}"), offset).expected(expected, found)
    };
    let at = reader.at;
    let rank = reader.u32(&format_args!("{place}.n_dims"))?;
    if rank > MAX_RANK {
        let expected = format!("at most {MAX_RANK} dimensions");
        return Err(value("n_dims", at, expected, rank.into()));
    }
    let mut dims = Vec::new();
    let mut elements = 1_u64;
    for dim in 0..rank {
        let at = reader.at;
        let size = reader.u64(&format_args!("{place}.dims[{dim}]"))?;
        elements = elements
            .checked_mul(size)
            .filter(|count| i64::try_from(*count).is_ok())
            .ok_or_else(|| {
                let expected = "a number of elements that fits 63 bits".to_owned();
                value("dims", at, expected, size)
            })?;
        dims.push(size);
    }
    let at = reader.at;
    let kind = reader.u32(&format_args!("{place}.type"))?;
    let size = match ggml_type(kind) {
        Some(known) => {
            let row = dims.first().copied().unwrap_or(1);
            if row % known.block_elements != 0 {
                let expected = format!(
                    "rows of a multiple of {} elements for {}",
                    known.block_elements, known.name
                );
                return Err(value("dims[0]", at, expected, row));
            }
            let bytes = (elements / known.block_elements).checked_mul(known.bytes);
            Some(bytes.ok_or_else(|| {
                let expected = "a size that fits 64 bits".to_owned();
                value("dims", at, expected, elements)
            })?)
        }
        None => None,
    };
    let at = reader.at;
    let offset = reader.u64(&format_args!("{place}.offset"))?;
    if offset % alignment != 0 {
        let expected = format!("a multiple of {alignment}");
        return Err(value("offset", at, expected, offset));
    }
    // `ModelInfo` lists dimensions outermost first; GGUF stores them innermost first.
    dims.reverse();
    Ok(GgufTensor {
        place,
        name,
        dims,
        kind,
        elements,
        offset,
        size,
    })
}

/// Sorts tensors by data offset and checks that their data lies inside the file without overlap.
fn check_data_ranges(tensors: &mut [GgufTensor], data: u64, len: u64) -> Result<(), FormatError> {
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.size));
    let mut before: Option<(&str, u64)> = None;
    for tensor in &*tensors {
        let offset = data.saturating_add(tensor.offset);
        let size = tensor.size.unwrap_or(0);
        if offset.checked_add(size).is_none_or(|end| end > len) {
            return Err(FormatError::at(
                offset,
                format_args!(
                    "{} ({}): its data, {size} bytes at offset {offset}, extends past the end of the file, which has {len} bytes",
                    tensor.place, tensor.name
                ),
            ));
        }
        if let Some((other, end)) = before.filter(|(_, end)| tensor.offset < *end) {
            return Err(FieldPosition::new(
                format_args!("{} ({})", tensor.place, tensor.name),
                offset,
            )
            .violates(format_args!(
                "its data begins at {}, inside that of {other:?}, which ends at {end}",
                tensor.offset
            )));
        }
        before = Some((&tensor.name, tensor.offset + size));
    }
    Ok(())
}

fn describe(
    version: u32,
    metadata: Vec<(String, String)>,
    tensors: Vec<GgufTensor>,
    (header, data, len): (u64, u64, u64),
) -> ModelInfo {
    let mut types: BTreeMap<String, u64> = BTreeMap::new();
    let mut named = Vec::new();
    let mut weight_bytes = 0_u64;
    let count = tensors.len();
    for tensor in tensors {
        let element = element_of(tensor.kind);
        let known = types.entry(element.name().to_owned()).or_default();
        *known = known.saturating_add(tensor.elements);
        weight_bytes = weight_bytes.saturating_add(tensor.size.unwrap_or(0));
        named.push(NamedData {
            name: tensor.name,
            tensor: Some(TensorInfo {
                element,
                dims: Some(tensor.dims.into_iter().map(Dim::Fixed).collect()),
                dynamism: Dynamism::Static,
            }),
        });
    }
    let mut facts = vec![("tensors".to_owned(), count.to_string())];
    let counts = types.iter();
    facts.extend(counts.map(|(name, count)| (format!("{name} elements"), count.to_string())));
    facts.extend(metadata);
    let segment = |name: &str, offset, size| Segment {
        name: name.to_owned(),
        offset,
        size,
    };
    ModelInfo {
        format: super::Gguf.name(),
        format_by_name: None,
        format_version: format!("version {version}"),
        segments: vec![
            segment("header", 0, header),
            segment("data", data, len - data),
        ],
        weight_bytes,
        weight_types: types,
        named,
        metadata: facts,
        ..ModelInfo::default()
    }
}
