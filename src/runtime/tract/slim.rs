//! An ONNX file without its weights: large initializers become references into the file itself.
//!
//! Decoding the whole protobuf would hold every weight twice while tract builds its graph. So the
//! file is rewritten on the way in: where an initializer of the top-level graph has its data inline
//! (`raw_data`), the copy says that its data is external, in this very file, at this offset. ONNX
//! has that form for data in other files, and tract reads it through a memory map. Field numbers:
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.
//!
//! Invariant: lengths are held against the file's before anything is read; what is not an inline
//! weight is copied as it is, so a broken file stays as broken as it was.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Initializers with less inline data stay as they are, in bytes.
const SMALL: u64 = 1 << 10;
/// Most bytes that may remain of a model, 2 GiB, the most a protobuf may have.
const MAX_SLIM: usize = 2 << 30;

const MODEL_GRAPH: u64 = 7;
const GRAPH_INITIALIZER: u64 = 5;
const TENSOR_RAW_DATA: u64 = 9;
const TENSOR_EXTERNAL_DATA: u64 = 13;
const TENSOR_DATA_LOCATION: u64 = 14;
/// `TensorProto.DataLocation.EXTERNAL`.
const EXTERNAL: u64 = 1;

const VARINT: u64 = 0;
const BYTES: u64 = 2;

/// The file at `path` with large inline weights replaced by references to where they stand.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    // tract reads no data through a link out of the model's folder, and protobuf holds no name that
    // is not UTF-8: then nothing is replaced.
    let is_link = path.symlink_metadata()?.is_symlink();
    let name = path.file_name().and_then(|name| name.to_str());
    let mut reader = Slimmer {
        file: BufReader::new(file),
        at: 0,
        name: name.filter(|_| !is_link).map(str::to_owned),
    };
    let mut slim = Vec::new();
    reader.message(end, Level::Model, &mut slim)?;
    Ok(slim)
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Model,
    Graph,
    Tensor,
}

struct Slimmer {
    file: BufReader<File>,
    /// Offset of the next byte.
    at: u64,
    name: Option<String>,
}

impl Slimmer {
    /// Copies a message that ends at `end`.
    fn message(&mut self, end: u64, level: Level, out: &mut Vec<u8>) -> io::Result<()> {
        while self.at < end {
            let key = self.varint(end)?;
            let (field, wire) = (key >> 3, key & 7);
            match wire {
                VARINT => {
                    let value = self.varint(end)?;
                    put_varint(out, key);
                    put_varint(out, value);
                }
                1 | 5 => {
                    put_varint(out, key);
                    self.copy(if wire == 1 { 8 } else { 4 }, end, out)?;
                }
                BYTES => {
                    let length = self.varint(end)?;
                    let stop = self.at.checked_add(length).filter(|stop| *stop <= end);
                    let stop =
                        stop.ok_or_else(|| broken("a field is longer than what holds it"))?;
                    self.bytes(key, field, stop, level, out)?;
                }
                _ => return Err(broken("a field has a wire type that does not exist")),
            }
            if out.len() > MAX_SLIM {
                return Err(broken("its graph has more than 2 GiB beside the weights"));
            }
        }
        Ok(())
    }

    fn bytes(
        &mut self,
        key: u64,
        field: u64,
        stop: u64,
        level: Level,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let below = match (level, field) {
            (Level::Model, MODEL_GRAPH) => Some(Level::Graph),
            (Level::Graph, GRAPH_INITIALIZER) => Some(Level::Tensor),
            _ => None,
        };
        let length = stop - self.at;
        if let Some(below) = below {
            let mut inner = Vec::new();
            self.message(stop, below, &mut inner)?;
            put_bytes(out, key, &inner);
            return Ok(());
        }
        if (level, field) == (Level::Tensor, TENSOR_RAW_DATA)
            && length >= SMALL
            && let Some(name) = self.name.clone()
        {
            put_reference(out, &name, self.at, length);
            // A seek within the buffer keeps it.
            self.file
                .seek_relative(i64::try_from(length).map_err(io::Error::other)?)?;
            self.at = stop;
            return Ok(());
        }
        put_varint(out, key);
        put_varint(out, length);
        self.copy(length, stop, out)
    }

    fn varint(&mut self, end: u64) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            if self.at >= end {
                return Err(broken("it ends within a number"));
            }
            let mut byte = [0];
            self.file.read_exact(&mut byte)?;
            self.at += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(broken("a number has more than 64 bits"))
    }

    fn copy(&mut self, length: u64, end: u64, out: &mut Vec<u8>) -> io::Result<()> {
        if self.at.checked_add(length).is_none_or(|stop| stop > end) {
            return Err(broken("it ends within a field"));
        }
        if (out.len() as u64).saturating_add(length) > MAX_SLIM as u64 {
            return Err(broken("its graph has more than 2 GiB beside the weights"));
        }
        let copied = self.file.by_ref().take(length).read_to_end(out)?;
        self.at += copied as u64;
        if copied as u64 == length {
            Ok(())
        } else {
            Err(broken("it became shorter while it was read"))
        }
    }
}

/// `data_location: EXTERNAL` and where: three entries of `external_data`.
fn put_reference(out: &mut Vec<u8>, name: &str, offset: u64, length: u64) {
    put_varint(out, TENSOR_DATA_LOCATION << 3 | VARINT);
    put_varint(out, EXTERNAL);
    for (key, value) in [
        ("location", name.to_owned()),
        ("offset", offset.to_string()),
        ("length", length.to_string()),
    ] {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1 << 3 | BYTES, key.as_bytes());
        put_bytes(&mut entry, 2 << 3 | BYTES, value.as_bytes());
        put_bytes(out, TENSOR_EXTERNAL_DATA << 3 | BYTES, &entry);
    }
}

fn put_bytes(out: &mut Vec<u8>, key: u64, bytes: &[u8]) {
    put_varint(out, key);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn broken(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
