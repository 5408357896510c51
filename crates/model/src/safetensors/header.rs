//! Reads the header of a safetensors file and describes the file as a [`ModelInfo`].
//!
//! The JSON header is parsed as a stream, with limits on names, shapes and metadata.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, BufReader, Read};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::element::element_of;
use crate::{
    Dim, Dynamism, ElementType, FieldPosition, FormatError, ModelFormat, ModelInfo, NamedData,
    Segment, TensorInfo,
};
use pkgtool_base::source::ReadAt;

/// Maximum size of a header in bytes, the limit of the reference implementation.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Approximate maximum memory for a header, in bytes.
const MAX_RETAINED_BYTES: usize = 64 << 20;
/// Approximate memory overhead of a tensor beyond its name, in bytes.
const TENSOR_COST: usize = 160;
/// Maximum number of dimensions of a tensor.
const MAX_RANK: usize = 64;
/// Maximum number of metadata entries kept, and characters per metadata text.
const MAX_METADATA_ENTRIES: usize = 256;
const MAX_TEXT_CHARS: usize = 200;
/// Size of a read, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// A tensor entry of the header.
struct TensorEntry {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    begin: u64,
    end: u64,
}

#[derive(Default)]
struct Header {
    entries: Vec<TensorEntry>,
    metadata: Vec<(String, String)>,
}

pub(super) fn read(source: &dyn ReadAt) -> Result<ModelInfo, FormatError> {
    let len = source.len();
    if len < 8 {
        return Err(FormatError::at(
            0,
            format_args!("header length at offset 0: needs 8 bytes, but the file has {len}"),
        ));
    }
    let mut length = [0; 8];
    source.read_exact_at(0, &mut length).map_err(unreadable)?;
    let size = u64::from_le_bytes(length);
    let most = MAX_HEADER_BYTES.min(len - 8);
    if size > most {
        return Err(FieldPosition::new("header length", 0)
            .expected(format_args!("at most {most} bytes"), size));
    }
    let header = parse(source, size)?;
    describe(header, size, len)
}

fn parse(source: &dyn ReadAt, size: u64) -> Result<Header, FormatError> {
    let start = FieldPosition::new("header", 8);
    let mut first = [0; 1];
    if size == 0 {
        return Err(start.expected("`{`", "no header"));
    }
    source.read_exact_at(8, &mut first).map_err(unreadable)?;
    if first != *b"{" {
        return Err(start.expected("`{`", format_args!("byte {:#04x}", first[0])));
    }
    let window = RangeReader {
        source,
        at: 8,
        end: 8 + size,
    };
    let mut json =
        serde_json::Deserializer::from_reader(BufReader::with_capacity(READ_BYTES, window));
    let read = json.deserialize_map(HeaderVisitor).and_then(|header| {
        json.end()?;
        Ok(header)
    });
    read.map_err(|error| {
        if let Some(kind) = error.io_error_kind() {
            return unreadable(kind.into());
        }
        let (line, column) = (error.line(), error.column());
        let message = format!("header, line {line}, column {column}: {}", reason(&error));
        // Writers produce a single line.
        if line == 1 {
            FormatError::at(7 + column as u64, message)
        } else {
            FormatError::new(message)
        }
    })
}

#[expect(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
fn unreadable(error: io::Error) -> FormatError {
    FormatError::new(format_args!("header: {error}"))
}

/// Returns the text of a JSON error without its position, limited to one line.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text
        .rsplit_once(" at line ")
        .map_or(&*text, |(text, _)| text);
    text.chars().take(MAX_TEXT_CHARS).collect()
}

/// A sequential reader over a range of the file.
struct RangeReader<'a> {
    source: &'a dyn ReadAt,
    at: u64,
    end: u64,
}

impl Read for RangeReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let count = left.min(buffer.len());
        self.source.read_exact_at(self.at, &mut buffer[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Deserializes the header's root object.
struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut header = Header::default();
        let mut names: HashSet<String> = HashSet::new();
        let mut kept = 0_usize;
        while let Some(name) = map.next_key::<String>()? {
            kept = kept.saturating_add(2 * name.len() + TENSOR_COST);
            if kept > MAX_RETAINED_BYTES {
                let text = format!("names and shapes take more than {MAX_RETAINED_BYTES} bytes");
                return Err(A::Error::custom(text));
            }
            if !names.insert(name.clone()) {
                let name: String = name.chars().take(MAX_TEXT_CHARS).collect();
                return Err(A::Error::custom(format!("duplicate name {name:?}")));
            }
            if name == "__metadata__" {
                header.metadata = map.next_value_seed(MetadataTexts)?;
                continue;
            }
            let tensor: SafetensorsTensor = map.next_value()?;
            kept = kept.saturating_add(16 * tensor.shape.0.len() + tensor.dtype.len());
            header.entries.push(TensorEntry {
                name,
                dtype: tensor.dtype,
                shape: tensor.shape.0,
                begin: tensor.data_offsets.0,
                end: tensor.data_offsets.1,
            });
        }
        Ok(header)
    }
}

#[derive(Deserialize)]
#[serde(expecting = "struct Tensor")]
struct SafetensorsTensor {
    dtype: String,
    shape: TensorSizes,
    data_offsets: (u64, u64),
}

/// Sizes of a tensor, at most [`MAX_RANK`].
struct TensorSizes(Vec<u64>);

impl<'de> Deserialize<'de> for TensorSizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizesVisitor;
        impl<'de> Visitor<'de> for SizesVisitor {
            type Value = Vec<u64>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of sizes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sizes: A) -> Result<Vec<u64>, A::Error> {
                let mut found = Vec::new();
                while let Some(size) = sizes.next_element()? {
                    if found.len() == MAX_RANK {
                        let text = format!("a tensor has at most {MAX_RANK} dimensions");
                        return Err(A::Error::custom(text));
                    }
                    found.push(size);
                }
                Ok(found)
            }
        }
        Ok(Self(deserializer.deserialize_seq(SizesVisitor)?))
    }
}

/// Deserializes the metadata texts; keeps the first entries, truncated.
struct MetadataTexts;

impl<'de> DeserializeSeed<'de> for MetadataTexts {
    type Value = Vec<(String, String)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetadataTexts {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some((key, text)) = map.next_entry::<String, String>()? {
            if found.len() < MAX_METADATA_ENTRIES {
                let cut = |text: &str| text.chars().take(MAX_TEXT_CHARS).collect::<String>();
                found.push((cut(&key), cut(&text)));
            }
        }
        // Writers do not preserve an order.
        found.sort();
        Ok(found)
    }
}

fn describe(mut header: Header, size: u64, len: u64) -> Result<ModelInfo, FormatError> {
    let data = 8 + size;
    let mut types: BTreeMap<String, u64> = BTreeMap::new();
    header.entries.sort_by_key(|entry| (entry.begin, entry.end));
    let mut end = 0;
    let mut named = Vec::new();
    for entry in header.entries {
        let (element, elements) = check(&entry)?;
        if entry.begin != end {
            return Err(FormatError::at(
                data.saturating_add(entry.begin),
                format_args!(
                    "header.{}.data_offsets at offset {}: expected the data to begin at {end}, where that of the preceding tensor ends, found {}",
                    entry.name,
                    data.saturating_add(entry.begin),
                    entry.begin
                ),
            ));
        }
        end = entry.end;
        let count = types.entry(element.name().to_owned()).or_default();
        *count = count.saturating_add(elements);
        named.push(NamedData {
            name: entry.name,
            tensor: Some(TensorInfo {
                element,
                dims: Some(entry.shape.into_iter().map(Dim::Fixed).collect()),
                dynamism: Dynamism::Static,
            }),
        });
    }
    let has = len - data;
    if end != has {
        return Err(FormatError::at(
            data.saturating_add(end),
            format_args!("the tensors need {end} bytes after the header, but the file has {has}"),
        ));
    }
    let mut metadata = vec![("tensors".to_owned(), named.len().to_string())];
    metadata.extend(types.iter().map(|(name, count)| {
        let key = format!("{name} elements");
        (key, count.to_string())
    }));
    let stated = header.metadata.into_iter();
    metadata.extend(stated.map(|(key, text)| (format!("property {key}"), text)));
    let segment = |name: &str, offset, size| Segment {
        name: name.to_owned(),
        offset,
        size,
    };
    Ok(ModelInfo {
        format: super::Safetensors.name(),
        format_by_name: None,
        format_version: "unversioned".to_owned(),
        segments: vec![segment("header", 0, data), segment("data", data, has)],
        weight_bytes: has,
        weight_types: types,
        named,
        metadata,
        ..ModelInfo::default()
    })
}

/// Returns type and number of elements of a tensor after checking that its data range has the right
/// size.
fn check(entry: &TensorEntry) -> Result<(ElementType, u64), FormatError> {
    let cut = |text: &str| text.chars().take(MAX_TEXT_CHARS).collect::<String>();
    let (element, bits) = element_of(&entry.dtype).ok_or_else(|| {
        FormatError::new(format_args!(
            "header.{}.dtype: expected a safetensors dtype, found {}",
            cut(&entry.name),
            format_args!("{:?}", cut(&entry.dtype))
        ))
    })?;
    let product = |first: u64| {
        let mut sizes = entry.shape.iter().copied();
        sizes.try_fold(first, u64::checked_mul)
    };
    let (Some(elements), Some(bits)) = (product(1), product(bits).filter(|bits| bits % 8 == 0))
    else {
        return Err(FormatError::new(format_args!(
            "header.{}.shape: expected a whole number of bytes that fits 64 bits, found {}{:?}",
            cut(&entry.name),
            entry.dtype.clone(),
            entry.shape.clone()
        )));
    };
    let expected = bits / 8;
    if entry.end.checked_sub(entry.begin) != Some(expected) {
        return Err(FormatError::new(format_args!(
            "header.{}.data_offsets: expected {expected} bytes for {}{:?}, found {} to {}",
            cut(&entry.name),
            entry.dtype.clone(),
            entry.shape.clone(),
            entry.begin,
            entry.end
        )));
    }
    Ok((element, elements))
}
