//! Where a program keeps its bytes: segments, inline buffers, named data.
//!
//! Invariant: every segment lies inside the file, so whatever refers to one may be believed. Bytes
//! of weights are counted here: see [`Storage::weight_bytes`].

use std::collections::{BTreeMap, BTreeSet};

use super::container::Container;
use super::error::{Error, Place};
use super::flatbuffer::{Table, Vector};
use super::schema::{inline, program, segment};
use crate::model::{Segment, TensorInfo};

/// Characters of a named data's key that a segment's name shows.
const SHORT_KEY: usize = 12;

/// Tensors in other files, by name.
pub(super) type Externals = BTreeMap<String, Option<TensorInfo>>;

/// The stored bytes of a program.
pub(super) struct Storage<'a> {
    segments: Vec<Area>,
    constants: Option<Offsets<'a>>,
    inline_constants: Vector<'a>,
    inline_delegates: Vector<'a>,
    mutable: Vec<Offsets<'a>>,
    keys: BTreeMap<String, usize>,
    weights: BTreeSet<usize>,
}

/// Bytes of the file, and in a word or two what they hold.
struct Area {
    offset: u64,
    size: u64,
    name: Option<String>,
}

/// `SubsegmentOffsets`: where tensors lie in a segment.
struct Offsets<'a> {
    segment: usize,
    offsets: Vector<'a>,
}

/// Stored bytes of a tensor or of a delegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    /// File offset.
    pub(super) offset: u64,
    /// Bytes from there to the end of what it is stored in.
    pub(super) available: u64,
}

/// Bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// File offset of the first.
    pub offset: u64,
    /// How many.
    pub size: u64,
}

impl From<Stored> for ByteRange {
    fn from(stored: Stored) -> Self {
        Self {
            offset: stored.offset,
            size: stored.available,
        }
    }
}

impl<'a> Storage<'a> {
    /// Reads the root table's storage fields.
    pub(super) fn read(root: &Table<'a>, container: &Container) -> Result<Self, Error> {
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

    fn read_constants(&mut self, root: &Table<'a>) -> Result<(), Error> {
        let Some(table) = root.table(program::CONSTANT_SEGMENT)? else {
            return Ok(());
        };
        let offsets = table.vector(segment::SUB_OFFSETS, 8)?;
        // The first offset is reserved and alone says nothing: constants are inside the FlatBuffer.
        if offsets.len() < 2 {
            return Ok(());
        }
        let index = table.u32(segment::SUB_INDEX)?;
        let place = || table.place(segment::SUB_INDEX);
        self.use_segment(index, place, || "constants".to_owned())?;
        self.weights.insert(index as usize);
        self.constants = Some(Offsets {
            segment: index as usize,
            offsets,
        });
        Ok(())
    }

    fn read_mutable(&mut self, root: &Table<'a>) -> Result<(), Error> {
        for table in root.tables(program::MUTABLE_DATA)?.iter_tables() {
            let table = table?;
            let index = table.u32(segment::SUB_INDEX)?;
            let place = || table.place(segment::SUB_INDEX);
            let index = self.use_segment(index, place, || "mutable data".to_owned())?;
            self.weights.insert(index);
            self.mutable.push(Offsets {
                segment: index,
                offsets: table.vector(segment::SUB_OFFSETS, 8)?,
            });
        }
        Ok(())
    }

    fn read_named(&mut self, root: &Table<'a>) -> Result<(), Error> {
        for table in root.tables(program::NAMED_DATA)?.iter_tables() {
            let table = table?;
            let key = table.name(segment::KEY)?.unwrap_or_default();
            let index = table.u32(segment::NAMED_INDEX)?;
            let place = || table.place(segment::NAMED_INDEX);
            let name = || format!("named data {}", short(&key));
            let index = self.use_segment(index, place, name)?;
            self.weights.insert(index);
            self.keys.insert(key, index);
        }
        Ok(())
    }

    /// Checks a segment's index and names the segment, if it has no name yet.
    fn use_segment(
        &mut self,
        index: u32,
        place: impl FnOnce() -> Place,
        name: impl FnOnce() -> String,
    ) -> Result<usize, Error> {
        let count = self.segments.len() as u64;
        let Some(area) = self.segments.get_mut(index as usize) else {
            return Err(Error::Index {
                place: place(),
                what: "segments",
                count,
                found: index.into(),
            });
        };
        area.name.get_or_insert_with(name);
        Ok(index as usize)
    }

    /// The delegate payload stored inline at `index`.
    pub(super) fn inline_payload(
        &self,
        index: u32,
        place: impl FnOnce() -> Place,
    ) -> Result<Stored, Error> {
        let count = self.inline_delegates.len();
        if u64::from(index) >= count {
            return Err(Error::Index {
                place: place(),
                what: "inline delegate payloads",
                count,
                found: index.into(),
            });
        }
        let table = self.inline_delegates.table(index.into())?;
        let bytes = table.vector(inline::DATA, 1)?;
        Ok(Stored {
            offset: bytes.first(),
            available: bytes.len(),
        })
    }

    /// The delegate payload in segment `index`, which is named after its backend.
    pub(super) fn segment_payload(
        &mut self,
        index: u32,
        id: &str,
        place: impl FnOnce() -> Place,
    ) -> Result<Stored, Error> {
        let index = self.use_segment(index, place, || format!("delegate {id}"))?;
        let area = &self.segments[index];
        Ok(Stored {
            offset: area.offset,
            available: area.size,
        })
    }

    /// The stored bytes of constant `index`.
    pub(super) fn constant(
        &self,
        index: u32,
        place: impl FnOnce() -> Place,
    ) -> Result<Stored, Error> {
        if let Some(constants) = &self.constants {
            return self.stored(constants, index, "constants", place);
        }
        let count = self.inline_constants.len();
        if u64::from(index) >= count {
            return Err(Error::Index {
                place: place(),
                what: "constants",
                count,
                found: index.into(),
            });
        }
        let table = self.inline_constants.table(index.into())?;
        let bytes = table.vector(inline::STORAGE, 1)?;
        Ok(Stored {
            offset: bytes.first(),
            available: bytes.len(),
        })
    }

    /// The stored initial state `index` of a mutable tensor, in the list `which`.
    pub(super) fn mutable(
        &self,
        which: u64,
        index: u32,
        place: impl FnOnce() -> Place,
    ) -> Result<Stored, Error> {
        let list = usize::try_from(which)
            .ok()
            .and_then(|which| self.mutable.get(which));
        let Some(list) = list else {
            return Err(Error::Index {
                place: place(),
                what: "mutable data segments",
                count: self.mutable.len() as u64,
                found: i64::try_from(which).unwrap_or(i64::MAX),
            });
        };
        self.stored(list, index, "mutable tensors", place)
    }

    fn stored(
        &self,
        list: &Offsets<'_>,
        index: u32,
        what: &'static str,
        place: impl FnOnce() -> Place,
    ) -> Result<Stored, Error> {
        let count = list.offsets.len();
        let area = self.segments.get(list.segment);
        let (Some(area), true) = (area, u64::from(index) < count) else {
            return Err(Error::Index {
                place: place(),
                what,
                count,
                found: index.into(),
            });
        };
        let offset = list.offsets.u64(index.into())?;
        match area.size.checked_sub(offset) {
            Some(available) => Ok(Stored {
                offset: area.offset + offset,
                available,
            }),
            None => Err(Error::DataOffset {
                place: list.offsets.place(index.into()),
                found: offset,
                most: area.size,
            }),
        }
    }

    /// Whether the program itself holds data under `key`.
    pub(super) fn has_named(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// The bytes that the program holds under each key.
    pub(super) fn named(&self) -> impl Iterator<Item = (&str, Stored)> {
        let keys = self.keys.iter();
        keys.map(|(key, &index)| (key.as_str(), self.whole(index)))
    }

    /// The bytes that the program holds under `key`.
    pub(super) fn find_named(&self, key: &str) -> Option<Stored> {
        self.keys.get(key).map(|&index| self.whole(index))
    }

    fn whole(&self, segment: usize) -> Stored {
        let area = &self.segments[segment];
        Stored {
            offset: area.offset,
            available: area.size,
        }
    }

    /// Bytes of weights in the file: the segments of constants, of mutable initial data and of
    /// named data (each once, whole), plus constants stored inline. Weights inside a delegate's own
    /// payload are not told apart from its code and do not count.
    pub(super) fn weight_bytes(&self) -> Result<u64, Error> {
        let mut sum = 0u64;
        for &index in &self.weights {
            sum = sum.saturating_add(self.segments[index].size);
        }
        for table in self.inline_constants.iter_tables() {
            sum = sum.saturating_add(table?.vector(inline::STORAGE, 1)?.len());
        }
        Ok(sum)
    }

    /// The areas of the file in order: the program's FlatBuffer, then its non-empty segments.
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

fn read_segments(root: &Table<'_>, container: &Container) -> Result<Vec<Area>, Error> {
    let mut segments = Vec::new();
    let mut previous = 0;
    for table in root.tables(program::SEGMENTS)?.iter_tables() {
        let table = table?;
        root.buffer().keep(96, || table.here())?;
        let offset = table.u64(segment::OFFSET)?;
        let size = table.u64(segment::SIZE)?;
        if offset < previous {
            return Err(Error::SegmentOrder {
                place: table.place(segment::OFFSET),
                found: offset,
                previous,
            });
        }
        previous = offset;
        let base = container.segment_base;
        let end = u128::from(base) + u128::from(offset) + u128::from(size);
        // Without a header there is nowhere for a segment to be; an empty one needs no place.
        let homeless = base == 0 && size > 0;
        if homeless || end > u128::from(container.len) {
            return Err(Error::SegmentRange {
                place: table.here(),
                offset,
                size,
                base,
                len: container.len,
            });
        }
        segments.push(Area {
            offset: container.start + base + offset,
            size,
            name: None,
        });
    }
    Ok(segments)
}

fn short(key: &str) -> String {
    match key.char_indices().nth(SHORT_KEY) {
        Some((end, _)) if key.len() > 2 * SHORT_KEY => format!("{}…", &key[..end]),
        _ => key.to_owned(),
    }
}
