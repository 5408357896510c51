//! Reads data files (`.ptd`): named tensors and other bytes that programs store outside their own
//! file.
//!
//! Source: `flat_tensor.fbs` (identifier `FT01`, extended header `FH01`) of ExecuTorch 1.5.
//! Invariant: every range of a [`DataFile`] lies inside its file, and every tensor has the size
//! that its shape requires. The runtime does not check these files, so this reader checks
//! everything that the runtime relies on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::element::{LAST_CODE, element_of};
use super::super::flatbuffer::{Buffer, Field, Table};
use super::super::shape::FLAT_TENSOR;
use super::super::verify::verify;
use super::ByteRange;
use crate::{ElementType, FieldPosition, FormatError};
use pkgtool_base::source::pages::DEFAULT_BUDGET;
use pkgtool_base::source::{Pages, ReadAt};

const IDENTIFIER: &str = "FT01";
const EXTENDED_HEADER_MAGIC: &str = "FH01";
/// Size of the file's head that the runtime reads as the header, in bytes.
const HEADER_BYTES: u64 = 48;
/// Minimum length that the extended header states, in bytes.
const MIN_HEADER_LENGTH: u32 = 40;
/// Maximum number of dimensions of a tensor.
const MAX_RANK: u64 = 16;
/// Approximate memory per entry, in bytes.
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
const DIM_ORDER: Field = Field(2, "dim_order");

/// The contents of a data file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataFile {
    /// Entries by name.
    pub named: BTreeMap<String, NamedTensor>,
    /// The FlatBuffer, then the segments.
    pub(in super::super) areas: Vec<ByteRange>,
}

/// A named entry.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTensor {
    /// Position of its bytes in the file.
    pub bytes: ByteRange,
    /// dtype and sizes, if the entry is a tensor.
    pub layout: Option<(ElementType, Vec<u64>)>,
}

impl DataFile {
    /// Reads a data file's header.
    pub fn read(source: &dyn ReadAt) -> Result<Self, FormatError> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let header = DataHeader { pages: &pages };
        if pages.len() < 8 || header.text(4)? != IDENTIFIER {
            let found = if pages.len() < 8 {
                format!("a file of {} bytes", pages.len())
            } else {
                header.text(4)?
            };
            let message = format_args!(
                "not an ExecuTorch data file: expected identifier FT01 at offset 4, found {found}"
            );
            return Err(FormatError::at(4, message));
        }
        let extent = header.extent()?;
        let buffer = Buffer::new(&pages, 0, extent.flatbuffer);
        let root = buffer.root("FlatTensor")?;
        verify(&pages, (0, extent.flatbuffer), "FlatTensor", &FLAT_TENSOR)?;
        check_present(&root, SEGMENTS)?;
        check_present(&root, NAMED)?;
        let segments = read_segments(&root, &extent)?;
        let mut named = BTreeMap::new();
        for entry in root.tables(NAMED)?.iter_tables() {
            let entry = entry?;
            buffer.keep(ENTRY_COST, || entry.here())?;
            let index = entry.u32(SEGMENT)?;
            let bytes = segments.get(index as usize).copied();
            let bytes = bytes.ok_or_else(|| {
                entry
                    .place(SEGMENT)
                    .index("segments", segments.len(), index)
            })?;
            let layout = entry.table(LAYOUT)?;
            let layout = layout
                .map(|layout| read_layout(&layout, bytes))
                .transpose()?;
            check_present(&entry, KEY)?;
            let key = entry.name(KEY)?.unwrap_or_default();
            named.insert(key, NamedTensor { bytes, layout });
        }
        let start = ByteRange {
            offset: 0,
            size: extent.flatbuffer,
        };
        Ok(Self {
            named,
            areas: std::iter::once(start).chain(segments).collect(),
        })
    }
}

fn check_present(table: &Table<'_>, field: Field) -> Result<(), FormatError> {
    if table.has(field)? {
        return Ok(());
    }
    Err(table.place(field).missing())
}

struct DataHeader<'a> {
    pages: &'a Pages<'a>,
}

/// The positions of a data file's parts.
struct DataExtent {
    /// End of the FlatBuffer.
    flatbuffer: u64,
    /// Start of the segments.
    base: u64,
    /// Maximum end of the last segment.
    end: u64,
}

impl DataHeader<'_> {
    fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], FormatError> {
        self.pages
            .array(at)
            .map_err(|error| place("header", at).unreadable(&error))
    }

    fn text(&self, at: u64) -> Result<String, FormatError> {
        let bytes: [u8; 4] = self.array(at)?;
        Ok(bytes.escape_ascii().to_string())
    }

    fn extent(&self) -> Result<DataExtent, FormatError> {
        let len = self.pages.len();
        if len < HEADER_BYTES || self.text(8)? != EXTENDED_HEADER_MAGIC {
            return Err(place("header.magic", 8).expected(
                "an extended header FH01 in the first 48 bytes",
                format_args!("none in a file of {len}"),
            ));
        }
        let length = u32::from_le_bytes(self.array(12)?);
        if length < MIN_HEADER_LENGTH {
            return Err(place("header.length", 12).expected(
                format_args!("an extended header of at least {MIN_HEADER_LENGTH} bytes"),
                length,
            ));
        }
        let number = |at| self.array(at).map(u64::from_le_bytes);
        let (start, size, base, data) = (number(16)?, number(24)?, number(32)?, number(40)?);
        let flatbuffer = start.checked_add(size).filter(|end| *end <= len);
        let Some(flatbuffer) = flatbuffer else {
            return Err(place("header.flatbuffer_size", 24).flatbuffer_size(
                8,
                len.saturating_sub(start),
                size,
            ));
        };
        match base.checked_add(data).filter(|end| *end <= len) {
            Some(end) => Ok(DataExtent {
                flatbuffer,
                base,
                end,
            }),
            None => Err(place("header.segment_data_size", 40).truncated(base, data, len)),
        }
    }
}

fn place(field: &str, offset: u64) -> FieldPosition {
    FieldPosition::new(format_args!("FlatTensor {field}"), offset)
}

fn read_segments(root: &Table<'_>, extent: &DataExtent) -> Result<Vec<ByteRange>, FormatError> {
    let (base, len) = (extent.base, extent.end);
    let mut segments = Vec::new();
    for segment in root.tables(SEGMENTS)?.iter_tables() {
        let segment = segment?;
        root.buffer().keep(ENTRY_COST, || segment.here())?;
        let (offset, size) = (segment.u64(OFFSET)?, segment.u64(SIZE)?);
        let end = u128::from(base) + u128::from(offset) + u128::from(size);
        if end > u128::from(len) {
            return Err(segment.here().violates(format_args!("expected the segment to end inside the program's {len} bytes, found {size} bytes at {offset} from base {base}")));
        }
        segments.push(ByteRange {
            offset: base + offset,
            size,
        });
    }
    Ok(segments)
}

/// Reads a tensor's dtype and sizes, and checks its size and its dimension order.
fn read_layout(
    layout: &Table<'_>,
    bytes: ByteRange,
) -> Result<(ElementType, Vec<u64>), FormatError> {
    check_present(layout, SIZES)?;
    check_present(layout, DIM_ORDER)?;
    let code = layout.i8(SCALAR_TYPE)?;
    if !(0..=LAST_CODE).contains(&code) {
        return Err(layout.place(SCALAR_TYPE).enum_value(LAST_CODE, code));
    }
    let (element, width) = element_of(code);
    let vector = layout.vector(SIZES, 4)?;
    if vector.len() > MAX_RANK {
        return Err(vector.here().rank(MAX_RANK, vector.len()));
    }
    let sizes = (0..vector.len()).map(|at| {
        let found = vector.i32(at)?;
        u64::try_from(found).map_err(|_| vector.place(at).negative_size(found))
    });
    let sizes: Vec<u64> = sizes.collect::<Result<_, _>>()?;
    let order = layout.vector(DIM_ORDER, 1)?;
    let found = (0..order.len()).map(|at| order.u8(at).map(u64::from));
    let mut found: Vec<u64> = found.take(17).collect::<Result<_, _>>()?;
    found.sort_unstable();
    if !found.into_iter().eq(0..vector.len()) {
        return Err(layout.place(DIM_ORDER).layout(0));
    }
    let mut factors = sizes.iter().copied().chain([width.unwrap_or(1)]);
    let size = factors.try_fold(1_u64, u64::checked_mul);
    let size = size.ok_or_else(|| {
        layout.place(SIZES).expected(
            "a tensor whose size fits 64 bits",
            format_args!("{:?}", sizes.clone()),
        )
    })?;
    if size > bytes.size {
        return Err(layout.here().expected(
            format_args!("{size} bytes of tensor data at {}", bytes.offset),
            format_args!("{} there", bytes.size),
        ));
    }
    Ok((element, sizes))
}

/// Returns the data files beside a program, sorted by name. The format does not record the needed
/// files; a name occurs in at most one of them.
pub fn data_files(program: &Path) -> Vec<PathBuf> {
    data_files_in(program.parent().unwrap_or(Path::new("")))
}

/// Returns the data files in a directory, sorted by name.
pub fn data_files_in(directory: &Path) -> Vec<PathBuf> {
    let folder = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
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
