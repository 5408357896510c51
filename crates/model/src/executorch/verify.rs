//! Verifies a FlatBuffer by the rules of FlatBuffers' own verifier, which devices run before
//! loading.
//!
//! The verifier walks every table that the schema can reach once per offset to it, and checks
//! alignment, extents, vtables and terminators of strings. Invariant: [`MAX_TABLES`] and the budget
//! of the pages bound the work. Elements of number vectors are not read, and values are not
//! interpreted.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::path::PathStep;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Maximum number of tables that the verifier of a device walks.
const MAX_TABLES: u32 = 1_000_000;
/// Maximum size of a vector in bytes: offsets have 31 bits.
const MAX_VECTOR_BYTES: u64 = (1 << 31) - 1;
/// Maximum number of fields of a table in a schema.
const MAX_FIELDS: usize = 20;
/// Maximum number of cached vtables; real files have some dozens.
const MAX_VTABLES: usize = 4096;

/// A table of a schema.
pub(super) struct TableSchema {
    /// Name and type of each field, by number.
    pub(super) fields: &'static [(&'static str, FieldKind)],
}

/// The type of a field.
pub(super) enum FieldKind {
    /// A number with this size and alignment in bytes.
    Number(u8),
    /// A string.
    Text,
    /// A vector of numbers with this size in bytes.
    Numbers(u8),
    /// A table.
    Table(&'static TableSchema),
    /// A vector of tables.
    Tables(&'static TableSchema),
    /// The member of the union in the next field.
    Member,
    /// A deprecated field, which devices ignore.
    Deprecated,
    /// A union, with its members by number from 1.
    Union(&'static [&'static TableSchema]),
}

/// Verifies the FlatBuffer in the bytes `start..start + len` of a file. `name` is the name of the
/// root table.
pub(super) fn verify(
    pages: &Pages<'_>,
    (start, len): (u64, u64),
    name: &'static str,
    root: &'static TableSchema,
) -> Result<(), FormatError> {
    let mut verifier = Verifier {
        pages,
        start,
        len,
        tables: 0,
        steps: vec![PathStep::Field(name)],
        vtables: HashMap::new(),
    };
    let at = verifier.offset(0)?;
    verifier.table(at, root)
}

/// A vtable's entries for the fields that the schema knows.
type Vtable = [u16; MAX_FIELDS];

/// A verification in progress. Positions are relative to the FlatBuffer, because alignment is.
struct Verifier<'a> {
    pages: &'a Pages<'a>,
    start: u64,
    len: u64,
    tables: u32,
    steps: Vec<PathStep>,
    vtables: HashMap<u64, Vtable>,
}

impl Verifier<'_> {
    fn place(&self, at: u64) -> FieldPosition {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                PathStep::Here => {}
                PathStep::Field(name) if path.is_empty() => path.push_str(name),
                PathStep::Field(name) => {
                    path.push('.');
                    path.push_str(name);
                }
                PathStep::Index(index) => {
                    let _ = write!(path, "[{index}]");
                }
            }
        }
        FieldPosition::new(path, self.start.saturating_add(at))
    }

    fn within<T>(
        &mut self,
        step: PathStep,
        work: impl FnOnce(&mut Self) -> Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        self.steps.push(step);
        let outcome = work(self);
        self.steps.pop();
        outcome
    }

    /// Checks that `size` bytes at `at` end inside the buffer. FlatBuffers requires one more byte
    /// after them.
    fn extent(&self, at: u64, size: u64) -> Result<(), FormatError> {
        if size < self.len && at <= self.len - size {
            return Ok(());
        }
        Err(self.place(at).violates(format_args!(
            "expected {size} bytes before the end of the FlatBuffer at {}",
            self.start + self.len
        )))
    }

    fn aligned(&self, at: u64, to: u8) -> Result<(), FormatError> {
        if at.is_multiple_of(to.into()) {
            return Ok(());
        }
        Err(self.place(at).expected(
            format_args!("a multiple of {to} from the FlatBuffer's beginning"),
            at,
        ))
    }

    /// Reads a number after checking its alignment and extent.
    fn number<const N: usize>(&self, at: u64) -> Result<[u8; N], FormatError> {
        let size = u8::try_from(N).expect("numbers are at most eight bytes");
        self.aligned(at, size)?;
        self.extent(at, size.into())?;
        self.raw(at)
    }

    /// Reads bytes whose extent was checked before.
    fn raw<const N: usize>(&self, at: u64) -> Result<[u8; N], FormatError> {
        let bytes = self.pages.array(self.start + at);
        bytes.map_err(|error| self.place(at).unreadable(&error))
    }

    /// Returns the target of the offset at `at`.
    fn offset(&self, at: u64) -> Result<u64, FormatError> {
        let found = u32::from_le_bytes(self.number(at)?);
        let target = at + u64::from(found);
        if found == 0 || found > i32::MAX.unsigned_abs() || target >= self.len {
            return Err(self.place(at).violates(format_args!("expected an offset to a place inside the FlatBuffer, which ends at {}; found {found}", self.start + self.len)));
        }
        Ok(target)
    }

    fn table(&mut self, at: u64, shape: &'static TableSchema) -> Result<(), FormatError> {
        self.tables += 1;
        if self.tables > MAX_TABLES {
            return Err(self.place(at).expected(
                format_args!("at most {MAX_TABLES} tables"),
                "more at this point",
            ));
        }
        let distance = i32::from_le_bytes(self.number(at)?);
        let Some(vtable) = at.checked_add_signed(-i64::from(distance)) else {
            return Err(self.place(at).expected(
                "a vtable inside the FlatBuffer",
                format_args!("a distance of {distance}"),
            ));
        };
        let entries = self.vtable(vtable)?;
        let mut member = 0;
        for ((name, kind), entry) in shape.fields.iter().zip(entries) {
            if entry == 0 {
                continue;
            }
            let field = at + u64::from(entry);
            self.within(PathStep::Field(name), |verifier| {
                verifier.field(field, kind, &mut member)
            })?;
        }
        Ok(())
    }

    fn vtable(&mut self, at: u64) -> Result<Vtable, FormatError> {
        if let Some(known) = self.vtables.get(&at) {
            return Ok(*known);
        }
        let size = u16::from_le_bytes(self.number(at)?);
        self.aligned(size.into(), 2)?;
        self.extent(at, size.into())?;
        let mut entries = [0; MAX_FIELDS];
        let count = usize::from(size / 2).saturating_sub(2);
        for (number, entry) in entries.iter_mut().take(count).enumerate() {
            *entry = u16::from_le_bytes(self.raw(at + 4 + 2 * number as u64)?);
        }
        if self.vtables.len() < MAX_VTABLES {
            self.vtables.insert(at, entries);
        }
        Ok(entries)
    }

    fn field(
        &mut self,
        at: u64,
        kind: &'static FieldKind,
        member: &mut u8,
    ) -> Result<(), FormatError> {
        match kind {
            FieldKind::Number(size) => {
                self.aligned(at, *size)?;
                self.extent(at, (*size).into())
            }
            FieldKind::Deprecated => Ok(()),
            FieldKind::Member => {
                *member = u8::from_le_bytes(self.number(at)?);
                Ok(())
            }
            FieldKind::Text => {
                let at = self.offset(at)?;
                let end = self.vector(at, 1)?;
                self.extent(end, 1)?;
                if self.raw(end)? == [0] {
                    return Ok(());
                }
                Err(self
                    .place(end)
                    .expected("a zero byte after the string", "another byte"))
            }
            FieldKind::Numbers(size) => {
                let at = self.offset(at)?;
                self.vector(at, *size).map(|_| ())
            }
            FieldKind::Table(shape) => {
                let at = self.offset(at)?;
                self.table(at, shape)
            }
            FieldKind::Tables(shape) => self.vector_of_tables(at, shape),
            FieldKind::Union(members) => {
                let at = self.offset(at)?;
                let shape = usize::from(*member).checked_sub(1);
                // An unknown member belongs to a later schema.
                match shape.and_then(|shape| members.get(shape)) {
                    Some(shape) => self.table(at, shape),
                    None => Ok(()),
                }
            }
        }
    }

    fn vector_of_tables(
        &mut self,
        at: u64,
        shape: &'static TableSchema,
    ) -> Result<(), FormatError> {
        let at = self.offset(at)?;
        let end = self.vector(at, 4)?;
        for (index, slot) in (at + 4..end).step_by(4).enumerate() {
            self.within(PathStep::Index(index as u64), |verifier| {
                let found = u32::from_le_bytes(verifier.raw(slot)?);
                verifier.table(slot + u64::from(found), shape)
            })?;
        }
        Ok(())
    }

    /// Returns the end of a vector's elements.
    fn vector(&self, at: u64, width: u8) -> Result<u64, FormatError> {
        let found = u32::from_le_bytes(self.number(at)?);
        let bytes = 4 + u64::from(found) * u64::from(width);
        if u64::from(found) >= MAX_VECTOR_BYTES / u64::from(width)
            || self.extent(at, bytes).is_err()
        {
            return Err(self.place(at).expected(
                format_args!(
                    "a vector of at most {} elements",
                    self.len.saturating_sub(at + 4) / u64::from(width)
                ),
                format_args!("a length of {found}"),
            ));
        }
        Ok(at + bytes)
    }
}
