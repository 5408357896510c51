//! Strips the weights of an ONNX model: every large tensor becomes a reference to its bytes in the
//! same file.
//!
//! The library decodes the whole model first and then copies each tensor, so weights would be in
//! memory twice. Instead it decodes the stripped model and reads the bytes of a tensor when it
//! builds that tensor ([`super::weights`]). Field numbers:
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.
//!
//! Invariant: only large tensor data differs from the file. Lengths are checked before data is
//! read.

use crate::graph::guard::LibraryFailure;
use pkgtool_base::source::{Pages, ReadAt};
use pkgtool_model::onnx::write::{put_bytes, put_varint};

/// Minimum size of the data of a large tensor, in bytes. Smaller tensors stay in the model.
const MIN_LARGE_BYTES: u64 = 1024;
/// Maximum size of a model without its large tensors, in bytes.
const MAX_SLIM_BYTES: usize = 1 << 30;
/// Maximum depth of nested graphs; the library's decoder has its own limit.
const MAX_DEPTH: u32 = 100;
/// The location that refers to the model file itself. It is a folder, so it differs from all real
/// locations.
pub(crate) const MODEL_FILE: &str = ".";

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Protobuf messages on the path from a model to its tensors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProtobufMessage {
    Model,
    Graph,
    Node,
    Attribute,
    Function,
    Tensor,
}

impl ProtobufMessage {
    fn child(self, field: u64) -> Option<Self> {
        Some(match (self, field) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Node, 5) => Self::Attribute,
            (Self::Graph | Self::Attribute, 5) => Self::Tensor,
            _ => return None,
        })
    }
}

/// A field: the offsets of its tag and of its content.
struct ProtobufField {
    number: u64,
    wire: u64,
    start: u64,
    content: u64,
    end: u64,
}

/// Returns the model in `source` without its large tensors, as a protobuf message.
pub(crate) fn slim(source: &dyn ReadAt) -> Result<Vec<u8>, LibraryFailure> {
    let reader = ProtobufReader {
        pages: Pages::new(source),
        source,
    };
    let mut out = Vec::new();
    reader.message(ProtobufMessage::Model, 0, source.len(), 0, &mut out)?;
    Ok(out)
}

struct ProtobufReader<'a> {
    pages: Pages<'a>,
    source: &'a dyn ReadAt,
}

impl ProtobufReader<'_> {
    fn message(
        &self,
        message: ProtobufMessage,
        start: u64,
        end: u64,
        depth: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), LibraryFailure> {
        if depth > MAX_DEPTH {
            return Err(LibraryFailure::new("graphs are nested too deeply"));
        }
        if message == ProtobufMessage::Tensor {
            return self.tensor(start, end, out);
        }
        let mut at = start;
        while at < end {
            let field = self.field(at, end)?;
            let child = message.child(field.number);
            match child.filter(|_| field.wire == BYTES) {
                Some(child) => {
                    let mut inner = Vec::new();
                    self.message(child, field.content, field.end, depth + 1, &mut inner)?;
                    put_bytes(field.number, &inner, out);
                }
                None => self.copy(field.start, field.end, out)?,
            }
            at = field.end;
        }
        Ok(())
    }

    fn tensor(&self, start: u64, end: u64, out: &mut Vec<u8>) -> Result<(), LibraryFailure> {
        let mut data_type = 0;
        let mut data = Vec::new();
        let mut rest = Vec::new();
        let mut at = start;
        while at < end {
            let field = self.field(at, end)?;
            at = field.end;
            match (field.number, field.wire) {
                (9, BYTES) | (4, BYTES | FIXED32) => data.push(field),
                (2, VARINT) => {
                    data_type = self.varint(field.content)?.0;
                    rest.push(field);
                }
                _ => rest.push(field),
            }
        }
        for field in rest {
            self.copy(field.start, field.end, out)?;
        }
        match data.as_slice() {
            // The data is `raw_data`, or the only run of `float_data` of a FLOAT tensor, which has
            // the same bytes.
            [field]
                if field.wire == BYTES
                    && field.end - field.content >= MIN_LARGE_BYTES
                    && (field.number == 9 || data_type == 1) =>
            {
                refer(field.content, field.end - field.content, out);
            }
            fields => {
                for field in fields {
                    self.copy(field.start, field.end, out)?;
                }
            }
        }
        Ok(())
    }

    fn field(&self, start: u64, end: u64) -> Result<ProtobufField, LibraryFailure> {
        let (tag, mut at) = self.varint(start)?;
        let content = match tag & 7 {
            VARINT => {
                let content = at;
                at = self.varint(at)?.1;
                content
            }
            FIXED64 | FIXED32 => {
                let content = at;
                at = at.saturating_add(if tag & 7 == FIXED64 { 8 } else { 4 });
                content
            }
            BYTES => {
                let (length, content) = self.varint(at)?;
                at = content.saturating_add(length);
                content
            }
            other => {
                return Err(LibraryFailure::new(format!(
                    "invalid wire type {other} at offset {start}"
                )));
            }
        };
        if at > end {
            return Err(LibraryFailure::new(format!(
                "the field at offset {start} exceeds its message"
            )));
        }
        Ok(ProtobufField {
            number: tag >> 3,
            wire: tag & 7,
            start,
            content,
            end: at,
        })
    }

    /// Reads a number and returns it with the offset after it.
    fn varint(&self, start: u64) -> Result<(u64, u64), LibraryFailure> {
        let mut value = 0;
        for place in 0..10 {
            let [byte] = self
                .pages
                .array(start + place)
                .map_err(|error| LibraryFailure::new(error.to_string()))?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok((value, start + place + 1));
            }
        }
        Err(LibraryFailure::new(format!(
            "the number at offset {start} exceeds 64 bits"
        )))
    }

    fn copy(&self, start: u64, end: u64, out: &mut Vec<u8>) -> Result<(), LibraryFailure> {
        let size = usize::try_from(end - start).unwrap_or(usize::MAX);
        if size > MAX_SLIM_BYTES - out.len().min(MAX_SLIM_BYTES) {
            return Err(LibraryFailure::new(
                "the model without its weights is too large",
            ));
        }
        let old = out.len();
        out.resize(old + size, 0);
        self.source
            .read_exact_at(start, &mut out[old..])
            .map_err(|error| LibraryFailure::new(error.to_string()))
    }
}

/// Writes a reference to these bytes of the model file as a tensor's data.
fn refer(offset: u64, length: u64, out: &mut Vec<u8>) {
    for (key, value) in [
        ("location", MODEL_FILE.to_owned()),
        ("offset", offset.to_string()),
        ("length", length.to_string()),
    ] {
        let mut entry = Vec::new();
        put_bytes(1, key.as_bytes(), &mut entry);
        put_bytes(2, value.as_bytes(), &mut entry);
        put_bytes(13, &entry, out);
    }
    put_varint(14 << 3 | VARINT, out);
    put_varint(1, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model with one initializer of `size` bytes of raw data.
    fn model(size: usize) -> Vec<u8> {
        let mut tensor = Vec::new();
        put_varint(2 << 3, &mut tensor);
        put_varint(3, &mut tensor);
        put_bytes(9, &vec![7; size], &mut tensor);
        let mut graph = Vec::new();
        put_bytes(5, &tensor, &mut graph);
        let mut model = Vec::new();
        put_bytes(7, &graph, &mut model);
        model
    }

    #[test]
    fn large_tensors_stay_in_the_file() {
        let small = model(100);
        assert_eq!(slim(&small), Ok(small));
        let large = model(100_000);
        let slimmed = slim(&large).expect("it is well-formed");
        assert!(slimmed.len() < 100);
        let text = String::from_utf8_lossy(&slimmed);
        assert!(text.contains("offset") && text.contains("100000"), "{text}");
        assert!(slim(&large[..5000].to_vec()).is_err());
    }
}
