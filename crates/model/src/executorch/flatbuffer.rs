//! A bounds-checked reader for a FlatBuffer at any position in a file.
//!
//! Invariant: only bytes inside the buffer are read, every length is checked against the buffer's
//! end before use, and retained data is counted against [`MAX_RETAINED_BYTES`]. Layout:
//! <https://flatbuffers.dev/internals/>. The reader is independent of schemas and of alignment;
//! `verify.rs` checks alignment.

use std::cell::Cell;

use super::path::{Path, PathStep};
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Maximum length of a string, in bytes; a longer name is an error, a longer text is truncated.
pub(crate) const MAX_STRING_BYTES: u32 = 64 * 1024;
/// Approximate maximum memory for the description of one file, in bytes.
pub(crate) const MAX_RETAINED_BYTES: u64 = 64 * 1024 * 1024;

/// A field of a table: its number in the schema and its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field(pub(crate) u16, pub(crate) &'static str);

/// A FlatBuffer and its position in the file.
pub(crate) struct Buffer<'a> {
    pages: &'a Pages<'a>,
    start: u64,
    end: u64,
    kept: Cell<u64>,
}

impl<'a> Buffer<'a> {
    /// Creates a reader for the FlatBuffer in the bytes `start..end` of the file.
    pub(crate) fn new(pages: &'a Pages<'a>, start: u64, end: u64) -> Self {
        Self {
            pages,
            start,
            end,
            kept: Cell::new(0),
        }
    }

    /// Returns the root table, called `name` in messages.
    pub(crate) fn root(&'a self, name: &'static str) -> Result<Table<'a>, FormatError> {
        let path = Path::root(name);
        let at = self.follow(self.start, &path, PathStep::Here)?;
        Table::read(self, at, path)
    }

    /// Returns the whole file.
    pub(crate) fn pages(&self) -> &'a Pages<'a> {
        self.pages
    }

    /// Counts `size` more bytes that stay in memory.
    pub(crate) fn keep(
        &self,
        size: u64,
        place: impl FnOnce() -> FieldPosition,
    ) -> Result<(), FormatError> {
        self.kept.set(self.kept.get().saturating_add(size));
        if self.kept.get() > MAX_RETAINED_BYTES {
            return Err(place().too_large(MAX_RETAINED_BYTES));
        }
        Ok(())
    }

    fn check(&self, at: u64, size: u64, path: &Path, step: PathStep) -> Result<(), FormatError> {
        match at.checked_add(size) {
            Some(end) if at >= self.start && end <= self.end => Ok(()),
            _ => Err(path.place(step, at).violates(format_args!(
                "expected {size} bytes before the end of the FlatBuffer at {}",
                self.end
            ))),
        }
    }

    fn array<const N: usize>(
        &self,
        at: u64,
        path: &Path,
        step: PathStep,
    ) -> Result<[u8; N], FormatError> {
        self.check(at, N as u64, path, step)?;
        self.pages
            .array(at)
            .map_err(|error| path.place(step, at).unreadable(&error))
    }

    /// Returns the target of the offset at `at`, which has at least four bytes inside the buffer.
    fn follow(&self, at: u64, path: &Path, step: PathStep) -> Result<u64, FormatError> {
        let found = u32::from_le_bytes(self.array(at, path, step)?);
        let target = at + u64::from(found);
        if found == 0 || target + 4 > self.end {
            return Err(path.place(step, at).violates(format_args!("expected an offset to a place inside the FlatBuffer, which ends at {}; found {found}", self.end)));
        }
        Ok(target)
    }

    fn string(
        &self,
        at: u64,
        path: &Path,
        step: PathStep,
        cut: bool,
    ) -> Result<String, FormatError> {
        let place = || path.place(step, at);
        let found = u32::from_le_bytes(self.array(at, path, step)?);
        let room = self.end - (at + 4);
        let most = if cut {
            room
        } else {
            room.min(MAX_STRING_BYTES.into())
        };
        if u64::from(found) > most {
            return Err(place().expected(
                format_args!("a string of at most {most} bytes"),
                format_args!("a length of {found}"),
            ));
        }
        let size = found.min(MAX_STRING_BYTES);
        self.keep(u64::from(size) + 32, place)?;
        let bytes = self
            .pages
            .bytes(at + 4, size as usize)
            .map_err(|error| place().unreadable(&error))?;
        match String::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(error) => {
                let problem = error.utf8_error();
                let valid = problem.valid_up_to();
                // The truncation may split a character.
                if size < found && problem.error_len().is_none() {
                    let mut bytes = error.into_bytes();
                    bytes.truncate(valid);
                    return Ok(String::from_utf8_lossy(&bytes).into_owned());
                }
                Err(place().expected(
                    "UTF-8 text",
                    format_args!("an invalid byte after {valid} bytes"),
                ))
            }
        }
    }
}

/// A table; its vtable locates its fields.
#[derive(Clone)]
pub(crate) struct Table<'a> {
    buffer: &'a Buffer<'a>,
    at: u64,
    vtable: u64,
    vtable_size: u16,
    size: u16,
    path: Path,
}

impl<'a> Table<'a> {
    fn read(buffer: &'a Buffer<'a>, at: u64, path: Path) -> Result<Self, FormatError> {
        let distance = i32::from_le_bytes(buffer.array(at, &path, PathStep::Here)?);
        let inside = at
            .checked_add_signed(-i64::from(distance))
            .filter(|&vtable| vtable >= buffer.start && vtable + 4 <= buffer.end);
        let Some(vtable) = inside else {
            return Err(path.place(PathStep::Here, at).expected(
                "a vtable inside the FlatBuffer",
                format_args!("a distance of {distance}"),
            ));
        };
        let sizes: [u8; 4] = buffer.array(vtable, &path, PathStep::Here)?;
        let vtable_size = u16::from_le_bytes([sizes[0], sizes[1]]);
        let size = u16::from_le_bytes([sizes[2], sizes[3]]);
        if vtable_size < 4
            || !vtable_size.is_multiple_of(2)
            || size < 4
            || vtable + u64::from(vtable_size) > buffer.end
            || at + u64::from(size) > buffer.end
        {
            return Err(path.place(PathStep::Here, at).violates(format_args!("expected a vtable of an even size and a table, of at least 4 bytes each, inside the FlatBuffer; found {vtable_size} and {size}")));
        }
        Ok(Self {
            buffer,
            at,
            vtable,
            vtable_size,
            size,
            path,
        })
    }

    /// Returns the buffer that contains the table.
    pub(crate) fn buffer(&self) -> &'a Buffer<'a> {
        self.buffer
    }

    /// Returns the position of the table for a message.
    pub(crate) fn here(&self) -> FieldPosition {
        self.path.place(PathStep::Here, self.at)
    }

    /// Returns the position of a field for a message: its own offset if it is present, else the
    /// table's.
    pub(crate) fn place(&self, field: Field) -> FieldPosition {
        let at = self.slot(field, 1).ok().flatten().unwrap_or(self.at);
        self.path.place(PathStep::Field(field.1), at)
    }

    /// Returns the offset of the field, if it is present.
    fn slot(&self, field: Field, size: u16) -> Result<Option<u64>, FormatError> {
        let entry = 4 + 2 * field.0;
        if entry + 2 > self.vtable_size {
            return Ok(None);
        }
        let step = PathStep::Field(field.1);
        let at = self.vtable + u64::from(entry);
        let found = u16::from_le_bytes(self.buffer.array(at, &self.path, step)?);
        if found == 0 {
            return Ok(None);
        }
        if found < 4 || u32::from(found) + u32::from(size) > u32::from(self.size) {
            return Err(self.path.place(step, at).violates(format_args!(
                "expected a field of {size} bytes inside a table of {}, found it at {found}",
                self.size
            )));
        }
        Ok(Some(self.at + u64::from(found)))
    }

    /// Returns whether the field is present.
    pub(crate) fn has(&self, field: Field) -> Result<bool, FormatError> {
        Ok(self.slot(field, 1)?.is_some())
    }

    fn scalar<const N: usize>(&self, field: Field) -> Result<[u8; N], FormatError> {
        let size = u16::try_from(N).expect("scalars are at most eight bytes");
        match self.slot(field, size)? {
            Some(at) => self.buffer.array(at, &self.path, PathStep::Field(field.1)),
            None => Ok([0; N]),
        }
    }

    /// Reads an unsigned byte; 0 if absent.
    pub(crate) fn u8(&self, field: Field) -> Result<u8, FormatError> {
        Ok(u8::from_le_bytes(self.scalar(field)?))
    }

    /// Reads a signed byte; 0 if absent.
    pub(crate) fn i8(&self, field: Field) -> Result<i8, FormatError> {
        Ok(i8::from_le_bytes(self.scalar(field)?))
    }

    /// Reads a 16-bit integer; 0 if absent.
    pub(crate) fn i16(&self, field: Field) -> Result<i16, FormatError> {
        Ok(i16::from_le_bytes(self.scalar(field)?))
    }

    /// Reads a 32-bit unsigned integer; 0 if absent.
    pub(crate) fn u32(&self, field: Field) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.scalar(field)?))
    }

    /// Reads a 32-bit integer; 0 if absent.
    pub(crate) fn i32(&self, field: Field) -> Result<i32, FormatError> {
        Ok(i32::from_le_bytes(self.scalar(field)?))
    }

    /// Reads a 32-bit integer; `default` if absent.
    pub(crate) fn i32_or(&self, field: Field, default: i32) -> Result<i32, FormatError> {
        match self.slot(field, 4)? {
            Some(_) => self.i32(field),
            None => Ok(default),
        }
    }

    /// Reads a 64-bit unsigned integer; 0 if absent.
    pub(crate) fn u64(&self, field: Field) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.scalar(field)?))
    }

    /// Reads a 64-bit integer; 0 if absent.
    pub(crate) fn i64(&self, field: Field) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.scalar(field)?))
    }

    /// Reads a float; 0 if absent.
    pub(crate) fn f32(&self, field: Field) -> Result<f32, FormatError> {
        Ok(f32::from_le_bytes(self.scalar(field)?))
    }

    /// Reads a double; 0 if absent.
    pub(crate) fn f64(&self, field: Field) -> Result<f64, FormatError> {
        Ok(f64::from_le_bytes(self.scalar(field)?))
    }

    fn target(&self, field: Field) -> Result<Option<u64>, FormatError> {
        self.slot(field, 4)?
            .map(|at| self.buffer.follow(at, &self.path, PathStep::Field(field.1)))
            .transpose()
    }

    /// Reads a table, if present.
    pub(crate) fn table(&self, field: Field) -> Result<Option<Table<'a>>, FormatError> {
        self.target(field)?
            .map(|at| Table::read(self.buffer, at, self.path.then(PathStep::Field(field.1))))
            .transpose()
    }

    /// Reads a required table.
    pub(crate) fn required_table(&self, field: Field) -> Result<Table<'a>, FormatError> {
        self.table(field)?
            .ok_or_else(|| self.place(field).missing())
    }

    /// Reads a name, if present; a name that is too long is an error.
    pub(crate) fn name(&self, field: Field) -> Result<Option<String>, FormatError> {
        self.text(field, false)
    }

    /// Reads a text, if present; a very long text is truncated.
    pub(crate) fn truncated_text(&self, field: Field) -> Result<Option<String>, FormatError> {
        self.text(field, true)
    }

    fn text(&self, field: Field, cut: bool) -> Result<Option<String>, FormatError> {
        let step = PathStep::Field(field.1);
        self.target(field)?
            .map(|at| self.buffer.string(at, &self.path, step, cut))
            .transpose()
    }

    /// Reads a vector of elements of `width` bytes; empty if absent.
    pub(crate) fn vector(&self, field: Field, width: u8) -> Result<Vector<'a>, FormatError> {
        let path = self.path.then(PathStep::Field(field.1));
        let Some(at) = self.target(field)? else {
            return Ok(Vector {
                buffer: self.buffer,
                first: self.at,
                len: 0,
                width,
                path,
            });
        };
        let found = u32::from_le_bytes(self.buffer.array(at, &path, PathStep::Here)?);
        let most = (self.buffer.end - (at + 4)) / u64::from(width);
        if u64::from(found) > most {
            return Err(path.place(PathStep::Here, at).expected(
                format_args!("a vector of at most {most} elements"),
                format_args!("a length of {found}"),
            ));
        }
        Ok(Vector {
            buffer: self.buffer,
            first: at + 4,
            len: found,
            width,
            path,
        })
    }

    /// Reads a vector of tables (or strings); empty if absent.
    pub(crate) fn tables(&self, field: Field) -> Result<Vector<'a>, FormatError> {
        self.vector(field, 4)
    }
}

/// A vector whose length fits the buffer.
#[derive(Clone)]
pub(crate) struct Vector<'a> {
    buffer: &'a Buffer<'a>,
    first: u64,
    len: u32,
    width: u8,
    path: Path,
}

impl<'a> Vector<'a> {
    /// Returns the number of elements.
    pub(crate) fn len(&self) -> u64 {
        self.len.into()
    }

    /// Returns whether the vector is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the file offset of the first element.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the position of the vector for a message.
    pub(crate) fn here(&self) -> FieldPosition {
        self.path.place(PathStep::Here, self.first)
    }

    /// Returns the position of an element for a message.
    pub(crate) fn place(&self, index: u64) -> FieldPosition {
        self.path.place(PathStep::Index(index), self.at(index))
    }

    fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.len());
        self.first + index * u64::from(self.width)
    }

    fn element<const N: usize>(&self, index: u64) -> Result<[u8; N], FormatError> {
        self.buffer
            .array(self.at(index), &self.path, PathStep::Index(index))
    }

    /// Reads an unsigned byte.
    pub(crate) fn u8(&self, index: u64) -> Result<u8, FormatError> {
        Ok(u8::from_le_bytes(self.element(index)?))
    }

    /// Reads a 16-bit unsigned integer.
    pub(crate) fn u16(&self, index: u64) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.element(index)?))
    }

    /// Reads a 32-bit unsigned integer.
    pub(crate) fn u32(&self, index: u64) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.element(index)?))
    }

    /// Reads a 32-bit integer.
    pub(crate) fn i32(&self, index: u64) -> Result<i32, FormatError> {
        Ok(i32::from_le_bytes(self.element(index)?))
    }

    /// Reads a 64-bit integer.
    pub(crate) fn i64(&self, index: u64) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.element(index)?))
    }

    /// Reads a 64-bit unsigned integer.
    pub(crate) fn u64(&self, index: u64) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.element(index)?))
    }

    /// Reads a 32-bit float.
    pub(crate) fn f32(&self, index: u64) -> Result<f32, FormatError> {
        Ok(f32::from_le_bytes(self.element(index)?))
    }

    /// Reads a double.
    pub(crate) fn f64(&self, index: u64) -> Result<f64, FormatError> {
        Ok(f64::from_le_bytes(self.element(index)?))
    }

    /// Reads the first `N` 32-bit unsigned integers, or all if there are fewer, in one read.
    pub(crate) fn numbers<const N: usize>(&self) -> Result<Vec<u64>, FormatError> {
        let mut bytes = [[0; 4]; N];
        let used = &mut bytes[..N.min(self.len as usize)];
        let read = self.buffer.pages.read(self.first, used.as_flattened_mut());
        read.map_err(|error| self.here().unreadable(&error))?;
        let numbers = used.iter().map(|four| u32::from_le_bytes(*four).into());
        Ok(numbers.collect())
    }

    /// Counts `size` bytes of memory for each element.
    pub(crate) fn keep(&self, size: u64) -> Result<(), FormatError> {
        let size = self.len().saturating_mul(size);
        self.buffer.keep(size, || self.here())
    }

    /// Reads a table.
    pub(crate) fn table(&self, index: u64) -> Result<Table<'a>, FormatError> {
        let step = PathStep::Index(index);
        let at = self.buffer.follow(self.at(index), &self.path, step)?;
        Table::read(self.buffer, at, self.path.then(step))
    }

    /// Iterates over all tables in order.
    pub(crate) fn iter_tables(&self) -> impl Iterator<Item = Result<Table<'a>, FormatError>> {
        (0..self.len()).map(|index| self.table(index))
    }
}
