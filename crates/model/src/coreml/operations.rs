//! Counts the operations of an ML Program and collects the weight records that it references.
//!
//! The program is scanned in its encoded form without building a graph. Invariant: retained data is
//! bounded, whatever the program's size; only the headers of weight records are read.

use std::collections::BTreeMap;

use crate::executorch::body::ByteRange;
use crate::executorch::coreml::{Blob, MilType, ProtoField, ProtoMessage, Type};
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Maximum number of functions, of weight files, and of operation types per function.
const MAX_NAMES: usize = 1 << 12;
/// Maximum number of weight records.
const MAX_RECORDS: usize = 1 << 17;
/// Size of a record's header in bytes.
const HEAD: u64 = 64;

/// Number of operations of each type. Constants are excluded.
type Counts = BTreeMap<String, u64>;

/// Operation counts and weight records of a program.
#[derive(Debug, Default)]
pub(super) struct Operations {
    /// Operation counts by function.
    pub(super) functions: BTreeMap<String, Counts>,
    /// Weight records by file path, as the program writes it.
    pub(super) records: BTreeMap<String, Vec<WeightRecord>>,
}

/// A weight record that a program references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WeightRecord {
    /// Its offset in the weight file.
    pub(super) offset: u64,
    /// Its element type.
    pub(super) kind: MilType,
    /// Its number of elements, if the program states it.
    pub(super) count: Option<u64>,
}

impl Operations {
    /// Scans a program.
    pub(super) fn read(program: ProtoMessage<'_>) -> Result<Self, FormatError> {
        let mut operations = Self::default();
        for field in program.fields() {
            let field = field?;
            if field.number == 2 {
                let (name, value) = field.map_entry()?;
                let mut counts = Counts::new();
                if let Some(function) = value {
                    operations.function(function, &mut counts)?;
                }
                operations.functions.insert(name, counts);
                bound(operations.functions.len(), "functions", MAX_NAMES)?;
            }
        }
        for records in operations.records.values_mut() {
            records.sort_by_key(|record| (record.offset, record.kind, record.count));
            records.dedup();
        }
        Ok(operations)
    }

    /// Scans the block for the operator set that a function targets.
    fn function(
        &mut self,
        message: ProtoMessage<'_>,
        counts: &mut Counts,
    ) -> Result<(), FormatError> {
        let (mut opset, mut blocks) = (String::new(), Vec::new());
        for field in message.fields() {
            let field = field?;
            match field.number {
                2 => opset = field.text()?,
                3 => blocks.push(field.map_entry()?),
                _ => {}
            }
            bound(blocks.len(), "blocks", MAX_NAMES)?;
        }
        for (name, block) in blocks {
            if let Some(block) = block.filter(|_| name == opset) {
                self.block(block, counts)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, message: ProtoMessage<'_>, counts: &mut Counts) -> Result<(), FormatError> {
        for field in message.fields() {
            let field = field?;
            if field.number == 3 {
                self.operation(field.message("operation")?, counts)?;
            }
        }
        Ok(())
    }

    fn operation(
        &mut self,
        message: ProtoMessage<'_>,
        counts: &mut Counts,
    ) -> Result<(), FormatError> {
        for field in message.fields() {
            let field = field?;
            match field.number {
                1 => {
                    let kind = field.text()?;
                    if kind != "const" {
                        *counts.entry(kind).or_default() += 1;
                        bound(counts.len(), "types of operations", MAX_NAMES)?;
                    }
                }
                2 => self.argument(&field)?,
                // The body of a loop or branch.
                4 => self.block(field.message("block")?, counts)?,
                5 => {
                    if let (_, Some(value)) = field.map_entry()? {
                        self.value(value)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Scans the values of an argument.
    fn argument(&mut self, field: &ProtoField<'_>) -> Result<(), FormatError> {
        let Some(argument) = field.map_entry()?.1 else {
            return Ok(());
        };
        for field in argument.fields() {
            let field = field?;
            if field.number != 1 {
                continue;
            }
            for binding in field.message("binding")?.fields() {
                let binding = binding?;
                if binding.number == 2 {
                    self.value(binding.message("value")?)?;
                }
            }
        }
        Ok(())
    }

    /// Collects the weight record of a value.
    fn value(&mut self, message: ProtoMessage<'_>) -> Result<(), FormatError> {
        let (mut ty, mut place) = (None, None);
        for field in message.fields() {
            let field = field?;
            match field.number {
                2 => ty = Some(field.message("type")?),
                5 => place = Some(blob(field.message("blob file value")?)?),
                _ => {}
            }
        }
        let Some((file, offset)) = place else {
            return Ok(());
        };
        let ty = ty.map(Type::read).transpose()?.unwrap_or_default();
        let record = WeightRecord {
            offset,
            kind: ty.kind,
            count: ty.count(),
        };
        self.records.entry(file).or_default().push(record);
        bound(self.records.len(), "weight files", MAX_NAMES)?;
        let records = self.records.values().map(Vec::len).sum();
        bound(records, "weight records", MAX_RECORDS)
    }
}

/// Reads file and offset of a record.
fn blob(message: ProtoMessage<'_>) -> Result<(String, u64), FormatError> {
    let (mut file, mut offset) = (String::new(), 0);
    for field in message.fields() {
        let field = field?;
        match field.number {
            1 => file = field.text()?,
            2 => offset = field.number()?,
            _ => {}
        }
    }
    Ok((file, offset))
}

fn bound(count: usize, what: &'static str, most: usize) -> Result<(), FormatError> {
    if count > most {
        return Err(FormatError::too_many(most, what));
    }
    Ok(())
}

impl WeightRecord {
    /// Returns the size of its elements in bytes, if known.
    pub(super) fn bytes(&self) -> Option<u64> {
        Some(self.count?.checked_mul(bits(self.kind)?)?.div_ceil(8))
    }

    /// Returns the minimum offset of its end.
    pub(super) fn end(&self) -> u64 {
        let bytes = self.bytes().unwrap_or(0);
        self.offset.saturating_add(HEAD).saturating_add(bytes)
    }

    /// Checks that the record in the weight file matches the program's reference.
    pub(super) fn check(&self, pages: &Pages<'_>) -> Result<(), FormatError> {
        let file = ByteRange {
            offset: 0,
            size: pages.len(),
        };
        let found = Blob::read(pages, file, self.offset)?;
        let wrong = |expected: String, found: String| {
            Err(FieldPosition::new("weight record", self.offset).expected(expected, found))
        };
        if found.kind != self.kind {
            return wrong(self.kind.name().to_owned(), found.kind.name().to_owned());
        }
        match self.bytes() {
            Some(needed) if needed > found.bytes.size => wrong(
                format!("{needed} bytes of {}", self.kind.name()),
                found.bytes.size.to_string(),
            ),
            _ => Ok(()),
        }
    }
}

/// Returns the bits per element.
fn bits(kind: MilType) -> Option<u64> {
    Some(match kind {
        MilType::Uint1 => 1,
        MilType::Uint2 => 2,
        MilType::Uint3 => 3,
        MilType::Int4 | MilType::Uint4 => 4,
        MilType::Uint6 => 6,
        MilType::Bool | MilType::Int8 | MilType::Uint8 => 8,
        MilType::Float16 | MilType::Bfloat16 | MilType::Int16 | MilType::Uint16 => 16,
        MilType::Float32 | MilType::Int32 | MilType::Uint32 => 32,
        MilType::Float64 | MilType::Int64 | MilType::Uint64 => 64,
        MilType::Unknown | MilType::Text => return None,
    })
}
