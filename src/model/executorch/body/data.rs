//! Data files (`.ptd`): tensors and other bytes by name, for programs that do not hold them.
//!
//! `flat_tensor.fbs` (identifier `FT01`, extended header `FH01`) of ExecuTorch 1.5. Invariant: every
//! range of a [`DataFile`] lies inside its file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::element::element_of;
use super::super::error::{Error, Place};
use super::super::flatbuffer::{Buffer, Field, Table};
use super::super::program::BASE_BUDGET;
use super::ByteRange;
use crate::model::ElementType;
use crate::source::{Pages, ReadAt};

const IDENTIFIER: &str = "FT01";
const EXTENDED: &str = "FH01";
/// Bytes of the extended header up to the segment base.
const HEADER: u64 = 40;
/// Bytes an entry takes in memory, about.
const ENTRY_COST: u64 = 160;

const SEGMENTS: Field = Field(1, "segments");
const NAMED: Field = Field(2, "named_data");
const OFFSET: Field = Field(0, "offset");
const SIZE: Field = Field(1, "size");
const KEY: Field = Field(0, "key");
const SEGMENT: Field = Field(1, "segment_index");
const LAYOUT: Field = Field(2, "tensor_layout");
const SCALAR_TYPE: Field = Field(0, "scalar_type");
const SIZES: Field = Field(1, "sizes");

/// What a data file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataFile {
    /// By name.
    pub named: BTreeMap<String, NamedTensor>,
}

/// Named bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTensor {
    /// Where they are.
    pub bytes: ByteRange,
    /// dtype and sizes, where they are a tensor.
    pub layout: Option<(ElementType, Vec<u64>)>,
}

impl DataFile {
    /// Reads a data file's header.
    pub fn read(source: &dyn ReadAt) -> Result<Self, Error> {
        let pages = Pages::with_budget(source, BASE_BUDGET);
        let header = Header { pages: &pages };
        if pages.len() < 8 || header.text(4)? != IDENTIFIER {
            return Err(Error::DataIdentifier {
                found: if pages.len() < 8 {
                    format!("a file of {} bytes", pages.len())
                } else {
                    header.text(4)?
                },
            });
        }
        let (end, base) = header.extent()?;
        let buffer = Buffer::new(&pages, 0, end);
        let root = buffer.root("FlatTensor")?;
        let segments = read_segments(&root, base, pages.len())?;
        let mut named = BTreeMap::new();
        for entry in root.tables(NAMED)?.iter_tables() {
            let entry = entry?;
            buffer.keep(ENTRY_COST, || entry.here())?;
            let index = entry.u32(SEGMENT)?;
            let bytes = segments.get(index as usize).copied();
            let bytes = bytes.ok_or_else(|| Error::Index {
                place: entry.place(SEGMENT),
                what: "segments",
                count: segments.len() as u64,
                found: index.into(),
            })?;
            let layout = entry.table(LAYOUT)?.map(|layout| read_layout(&layout));
            let layout = layout.transpose()?;
            let key = entry.name(KEY)?.unwrap_or_default();
            named.insert(key, NamedTensor { bytes, layout });
        }
        Ok(Self { named })
    }
}

struct Header<'a> {
    pages: &'a Pages<'a>,
}

impl Header<'_> {
    fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], Error> {
        self.pages.array(at).map_err(|error| Error::Read {
            place: place("header", at),
            error,
        })
    }

    fn text(&self, at: u64) -> Result<String, Error> {
        let bytes: [u8; 4] = self.array(at)?;
        Ok(bytes.escape_ascii().to_string())
    }

    /// Where the FlatBuffer ends, and where segments begin.
    fn extent(&self) -> Result<(u64, u64), Error> {
        let len = self.pages.len();
        if len < HEADER || self.text(8)? != EXTENDED {
            return Ok((len, 0));
        }
        let number = |at| self.array(at).map(u64::from_le_bytes);
        let (start, size, base) = (number(16)?, number(24)?, number(32)?);
        match start.checked_add(size) {
            Some(end) if end <= len && base <= len => Ok((end, base)),
            _ => Err(Error::ProgramSize {
                place: place("header.flatbuffer_size", 24),
                found: size,
                least: 8,
                most: len,
            }),
        }
    }
}

fn place(field: &str, offset: u64) -> Place {
    Place {
        path: format!("FlatTensor {field}"),
        offset,
    }
}

fn read_segments(root: &Table<'_>, base: u64, len: u64) -> Result<Vec<ByteRange>, Error> {
    let mut segments = Vec::new();
    for segment in root.tables(SEGMENTS)?.iter_tables() {
        let segment = segment?;
        root.buffer().keep(ENTRY_COST, || segment.here())?;
        let (offset, size) = (segment.u64(OFFSET)?, segment.u64(SIZE)?);
        let end = u128::from(base) + u128::from(offset) + u128::from(size);
        if end > u128::from(len) {
            return Err(Error::SegmentRange {
                place: segment.here(),
                offset,
                size,
                base,
                len,
            });
        }
        segments.push(ByteRange {
            offset: base + offset,
            size,
        });
    }
    Ok(segments)
}

fn read_layout(layout: &Table<'_>) -> Result<(ElementType, Vec<u64>), Error> {
    let (element, _) = element_of(layout.i8(SCALAR_TYPE)?);
    let sizes = layout.vector(SIZES, 4)?;
    sizes.keep(8)?;
    let sizes = (0..sizes.len()).map(|at| {
        let found = sizes.i32(at)?;
        u64::try_from(found).map_err(|_| Error::NegativeSize {
            place: sizes.place(at),
            found: found.into(),
        })
    });
    Ok((element, sizes.collect::<Result<_, _>>()?))
}

/// The data files beside a program, sorted by name. The format does not tell which ones a program
/// needs; a name it looks for is found in at most one of them.
pub fn data_files(program: &Path) -> Vec<PathBuf> {
    let folder = match program.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = paths
        .filter(|path| {
            let extension = path.extension().and_then(|extension| extension.to_str());
            extension.is_some_and(|extension| extension.eq_ignore_ascii_case("ptd"))
        })
        .collect();
    files.sort();
    files
}
