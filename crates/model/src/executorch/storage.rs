//! Locates the stored bytes of a program: segments, inline buffers and named data.
//!
//! Invariant: every segment lies inside the file, so users of a segment need no further check. The
//! size of the weights is computed here: see [`Storage::weight_bytes`].

use std::collections::{BTreeMap, BTreeSet};

use super::container::Container;
use super::flatbuffer::{Table, Vector};
use super::schema::{inline, program, segment};
use crate::{FieldPosition, FormatError, Segment, TensorInfo};

/// Maximum length of a key in a segment's name, in characters.
const MAX_KEY_CHARS: usize = 12;

/// Tensors in other files, by name.
pub(super) type Externals = BTreeMap<String, Option<TensorInfo>>;

/// The stored bytes of a program.
pub(super) struct Storage<'a> {
    segments: Vec<NamedRange>,
    constants: Option<SegmentOffsets<'a>>,
    inline_constants: Vector<'a>,
    inline_delegates: Vector<'a>,
    mutable: Vec<SegmentOffsets<'a>>,
    keys: BTreeMap<String, usize>,
    weights: BTreeSet<usize>,
}

/// A byte range of the file, with its content in a word or two.
struct NamedRange {
    offset: u64,
    size: u64,
    name: Option<String>,
}

/// `SubsegmentOffsets`: the positions of tensors in a segment.
struct SegmentOffsets<'a> {
    segment: usize,
    offsets: Vector<'a>,
}

/// Stored bytes of a tensor or of a delegate payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredRange {
    /// File offset.
    pub(super) offset: u64,
    /// Number of bytes up to the end of the containing segment or buffer.
    pub(super) available: u64,
}

/// A range of bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// File offset of the first byte.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

impl From<StoredRange> for ByteRange {
    fn from(stored: StoredRange) -> Self {
        Self {
            offset: stored.offset,
            size: stored.available,
        }
    }
}

impl<'a> Storage<'a> {
    /// Reads the root table's storage fields.
    pub(super) fn read(root: &Table<'a>, container: &Container) -> Result<Self, FormatError> {
        let mut storage = Self {
            segments: read_segments(root, container)?,
            constants: None,
            inline_constants: root.tables(program::CONSTANT_BUFFER)?,
            inline_delegates: root.tables(program::DELEGATE_DATA)?,
            mutable: Vec::new(),
            keys: BTreeMap::new(),
            weights: BTreeSet::new(),
        };
        storage.read_constants(root)?;
        storage.read_mutable(root)?;
        storage.read_named(root)?;
        Ok(storage)
    }

    fn read_constants(&mut self, root: &Table<'a>) -> Result<(), FormatError> {
        let Some(table) = root.table(program::CONSTANT_SEGMENT)? else {
            return Ok(());
        };
        let offsets = table.vector(segment::SUB_OFFSETS, 8)?;
        // The first offset is reserved; a list of length 1 means that constants are inside the
        // FlatBuffer.
        if offsets.len() < 2 {
            return Ok(());
        }
        let index = table.u32(segment::SUB_INDEX)?;
        let place = || table.place(segment::SUB_INDEX);
        self.use_segment(index, place, || "constants".to_owned())?;
        self.weights.insert(index as usize);
        self.constants = Some(SegmentOffsets {
            segment: index as usize,
            offsets,
        });
        Ok(())
    }

    fn read_mutable(&mut self, root: &Table<'a>) -> Result<(), FormatError> {
        for table in root.tables(program::MUTABLE_DATA)?.iter_tables() {
            let table = table?;
            let index = table.u32(segment::SUB_INDEX)?;
            let place = || table.place(segment::SUB_INDEX);
            let index = self.use_segment(index, place, || "mutable data".to_owned())?;
            self.weights.insert(index);
            self.mutable.push(SegmentOffsets {
                segment: index,
                offsets: table.vector(segment::SUB_OFFSETS, 8)?,
            });
        }
        Ok(())
    }

    fn read_named(&mut self, root: &Table<'a>) -> Result<(), FormatError> {
        for table in root.tables(program::NAMED_DATA)?.iter_tables() {
            let table = table?;
            let key = table.name(segment::KEY)?.unwrap_or_default();
            let index = table.u32(segment::NAMED_INDEX)?;
            let place = || table.place(segment::NAMED_INDEX);
            let name = || format!("named data {}", short_key(&key));
            let index = self.use_segment(index, place, name)?;
            self.weights.insert(index);
            self.keys.insert(key, index);
        }
        Ok(())
    }

    /// Checks a segment's index and names the segment if it lacks a name.
    fn use_segment(
        &mut self,
        index: u32,
        place: impl FnOnce() -> FieldPosition,
        name: impl FnOnce() -> String,
    ) -> Result<usize, FormatError> {
        let count = self.segments.len() as u64;
        let Some(area) = self.segments.get_mut(index as usize) else {
            return Err(place().index("segments", count, index));
        };
        area.name.get_or_insert_with(name);
        Ok(index as usize)
    }

    /// Returns the delegate payload stored inline at `index`.
    pub(super) fn inline_payload(
        &self,
        index: u32,
        place: impl FnOnce() -> FieldPosition,
    ) -> Result<StoredRange, FormatError> {
        let count = self.inline_delegates.len();
        if u64::from(index) >= count {
            return Err(place().index("inline delegate payloads", count, index));
        }
        let table = self.inline_delegates.table(index.into())?;
        let bytes = table.vector(inline::DATA, 1)?;
        Ok(StoredRange {
            offset: bytes.first(),
            available: bytes.len(),
        })
    }

    /// Returns the delegate payload in segment `index`, and names the segment after its backend.
    pub(super) fn segment_payload(
        &mut self,
        index: u32,
        id: &str,
        place: impl FnOnce() -> FieldPosition,
    ) -> Result<StoredRange, FormatError> {
        let index = self.use_segment(index, place, || format!("delegate {id}"))?;
        let area = &self.segments[index];
        Ok(StoredRange {
            offset: area.offset,
            available: area.size,
        })
    }

    /// Returns the stored bytes of constant `index`.
    pub(super) fn constant(
        &self,
        index: u32,
        place: impl FnOnce() -> FieldPosition,
    ) -> Result<StoredRange, FormatError> {
        if let Some(constants) = &self.constants {
            return self.stored(constants, index, "constants", place);
        }
        let count = self.inline_constants.len();
        if u64::from(index) >= count {
            return Err(place().index("constants", count, index));
        }
        let table = self.inline_constants.table(index.into())?;
        let bytes = table.vector(inline::STORAGE, 1)?;
        Ok(StoredRange {
            offset: bytes.first(),
            available: bytes.len(),
        })
    }

    /// Returns the stored initial state `index` of a mutable tensor, in the list `which`.
    pub(super) fn mutable(
        &self,
        which: u64,
        index: u32,
        place: impl FnOnce() -> FieldPosition,
    ) -> Result<StoredRange, FormatError> {
        let list = usize::try_from(which)
            .ok()
            .and_then(|which| self.mutable.get(which));
        let Some(list) = list else {
            return Err(place().index("mutable data segments", self.mutable.len(), which));
        };
        self.stored(list, index, "mutable tensors", place)
    }

    fn stored(
        &self,
        list: &SegmentOffsets<'_>,
        index: u32,
        what: &'static str,
        place: impl FnOnce() -> FieldPosition,
    ) -> Result<StoredRange, FormatError> {
        let count = list.offsets.len();
        let area = self.segments.get(list.segment);
        let (Some(area), true) = (area, u64::from(index) < count) else {
            return Err(place().index(what, count, index));
        };
        let offset = list.offsets.u64(index.into())?;
        match area.size.checked_sub(offset) {
            Some(available) => Ok(StoredRange {
                offset: area.offset + offset,
                available,
            }),
            None => Err(list
                .offsets
                .place(index.into())
                .data_offset(area.size, offset)),
        }
    }

    /// Returns whether the program itself holds data under `key`.
    pub(super) fn has_named(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Returns the bytes that the program holds under each key.
    pub(super) fn named(&self) -> impl Iterator<Item = (&str, StoredRange)> {
        let keys = self.keys.iter();
        keys.map(|(key, &index)| (key.as_str(), self.whole(index)))
    }

    /// Returns the bytes that the program holds under `key`.
    pub(super) fn find_named(&self, key: &str) -> Option<StoredRange> {
        self.keys.get(key).map(|&index| self.whole(index))
    }

    fn whole(&self, segment: usize) -> StoredRange {
        let area = &self.segments[segment];
        StoredRange {
            offset: area.offset,
            available: area.size,
        }
    }

    /// Returns the size of the weights in the file, in bytes: the segments of constants, of mutable
    /// initial data and of named data (each once, whole), plus inline constants. Weights inside
    /// delegate payloads are excluded, because they cannot be separated from code.
    pub(super) fn weight_bytes(&self) -> Result<u64, FormatError> {
        let mut sum = 0u64;
        for &index in &self.weights {
            sum = sum.saturating_add(self.segments[index].size);
        }
        for table in self.inline_constants.iter_tables() {
            sum = sum.saturating_add(table?.vector(inline::STORAGE, 1)?.len());
        }
        Ok(sum)
    }

    /// Returns the areas of the file in order: the program's FlatBuffer, then its non-empty
    /// segments.
    pub(super) fn into_segments(self, container: &Container) -> Vec<Segment> {
        let program = Segment {
            name: "program".to_owned(),
            offset: container.start,
            size: container.flatbuffer,
        };
        let stored = self.segments.into_iter().filter(|area| area.size > 0);
        std::iter::once(program)
            .chain(stored.map(|area| Segment {
                name: area.name.unwrap_or_else(|| "unreferenced".to_owned()),
                offset: area.offset,
                size: area.size,
            }))
            .collect()
    }
}

fn read_segments(root: &Table<'_>, container: &Container) -> Result<Vec<NamedRange>, FormatError> {
    let mut segments = Vec::new();
    let mut previous = 0;
    for table in root.tables(program::SEGMENTS)?.iter_tables() {
        let table = table?;
        root.buffer().keep(96, || table.here())?;
        let offset = table.u64(segment::OFFSET)?;
        let size = table.u64(segment::SIZE)?;
        if offset < previous {
            return Err(table.place(segment::OFFSET).expected(
                "segments sorted by offset",
                format_args!("{offset} after {previous}"),
            ));
        }
        previous = offset;
        let base = container.segment_base;
        let end = u128::from(base) + u128::from(offset) + u128::from(size);
        // Without a header, a non-empty segment lacks a base; an empty segment needs none.
        let homeless = base == 0 && size > 0;
        if homeless || end > u128::from(container.len) {
            return Err(table.here().violates(format_args!("expected the segment to end inside the program's {} bytes, found {size} bytes at {offset} from base {base}", container.len)));
        }
        segments.push(NamedRange {
            offset: container.start + base + offset,
            size,
            name: None,
        });
    }
    Ok(segments)
}

fn short_key(key: &str) -> String {
    match key.char_indices().nth(MAX_KEY_CHARS) {
        Some((end, _)) if key.len() > 2 * MAX_KEY_CHARS => format!("{}…", &key[..end]),
        _ => key.to_owned(),
    }
}
