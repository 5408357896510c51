//! Checks that ExecuTorch's runtime would load a program. The reader itself has already checked
//! what it needs.
//!
//! Each check reproduces one of the runtime's (`program.cpp`, `method.cpp`, the tensor parser), or
//! covers a field that the runtime uses without checking. Invariant: a runtime with the needed
//! backends, operators, data files and memory loads every program that passes. The FlatBuffer has
//! been verified before.

mod calls;
mod kinds;
mod operators;

use super::delegate::{self, CheckedPayloads};
use super::flatbuffer::{Field, Table, Vector};
use super::payload_graph::AcceptedArguments;
use super::schema::{inline, plan, program, segment, tensor, value};
use super::storage::{Externals, Storage};
use super::value::{
    BOOL_LIST, DOUBLE_LIST, Evalue, INT_LIST, OPTIONAL_TENSOR_LIST, STRING, TENSOR, TENSOR_LIST,
};
use super::value::{NULL, ProgramTensor};
use crate::FormatError;

/// Maximum number of dimensions of a tensor.
const MAX_RANK: u64 = 16;

/// The inputs of the check beyond the program's own FlatBuffer.
pub(super) struct LoadInputs<'b, 'a> {
    /// Payloads of delegates.
    pub(super) payloads: &'b mut CheckedPayloads<'a>,
    /// The program's stored bytes, which locate the payloads.
    pub(super) storage: &'b mut Storage<'a>,
    /// Tensors that a data file must provide; the check adds the names that payloads need.
    pub(super) externals: &'b mut Externals,
}

/// Checks a program.
pub(super) fn check(root: &Table<'_>, beside: &mut LoadInputs<'_, '_>) -> Result<(), FormatError> {
    require_field(root, program::EXECUTION_PLAN)?;
    if root.has(program::NAMED_DATA)? {
        require_field(root, program::SEGMENTS)?;
    }
    for named in root.tables(program::NAMED_DATA)?.iter_tables() {
        require_field(&named?, segment::KEY)?;
    }
    let inline = root.tables(program::CONSTANT_BUFFER)?;
    if let Some(constants) = root.table(program::CONSTANT_SEGMENT)? {
        let offsets = constants.vector(segment::SUB_OFFSETS, 8)?.len();
        if offsets > 1 && !inline.is_empty() {
            return Err(root
                .place(program::CONSTANT_BUFFER)
                .expected("no constants outside the segment", inline.len()));
        }
    }
    for plan in root.tables(program::EXECUTION_PLAN)?.iter_tables() {
        let plan = plan?;
        for field in [
            plan::NAME,
            plan::VALUES,
            plan::INPUTS,
            plan::OUTPUTS,
            plan::CHAINS,
            plan::DELEGATES,
            plan::MEMORY_SIZES,
        ] {
            require_field(&plan, field)?;
        }
        let method = MethodCheck {
            values: plan.tables(plan::VALUES)?,
            memory_sizes: memories(&plan.vector(plan::MEMORY_SIZES, 8)?)?,
            inline_constants: inline.clone(),
        };
        method.check_values()?;
        let arguments = check_delegates(&plan, beside)?;
        calls::check(&plan, &method.values, &arguments)?;
    }
    Ok(())
}

fn require_field(table: &Table<'_>, field: Field) -> Result<(), FormatError> {
    if table.has(field)? {
        return Ok(());
    }
    Err(table.place(field).missing())
}

/// Returns the sizes of the planned memories, by their ids from 1.
fn memories(sizes: &Vector<'_>) -> Result<Vec<u64>, FormatError> {
    sizes.keep(8)?;
    // Entry 0 is reserved.
    let sizes = (1..sizes.len()).map(|index| {
        let found = sizes.i64(index)?;
        u64::try_from(found).map_err(|_| sizes.place(index).negative_size(found))
    });
    sizes.collect()
}

/// Checks delegates; returns for each the arguments that a call must pass, if its payload records
/// them.
fn check_delegates(
    plan: &Table<'_>,
    beside: &mut LoadInputs<'_, '_>,
) -> Result<Vec<Option<AcceptedArguments>>, FormatError> {
    let mut arguments = Vec::new();
    for delegate in plan.tables(plan::DELEGATES)?.iter_tables() {
        let delegate = delegate?;
        for field in [plan::DELEGATE_ID, plan::PROCESSED, plan::COMPILE_SPECS] {
            require_field(&delegate, field)?;
        }
        for spec in delegate.tables(plan::COMPILE_SPECS)?.iter_tables() {
            let spec = spec?;
            require_field(&spec, plan::SPEC_KEY)?;
            require_field(&spec, plan::SPEC_VALUE)?;
        }
        let id = delegate.name(plan::DELEGATE_ID)?.unwrap_or_default();
        if let Some(check) = delegate::check_of(&id) {
            let data = delegate.required_table(plan::PROCESSED)?;
            let payload = super::plan::find_payload(&data, &id, beside.storage)?;
            let payloads = &mut *beside.payloads;
            let needed = payloads.check(check, payload.into(), beside.storage, beside.externals)?;
            arguments.push(needed);
        } else {
            arguments.push(None);
        }
        delegate.buffer().keep(16, || delegate.here())?;
    }
    Ok(arguments)
}

/// A check of a method's values.
struct MethodCheck<'a> {
    values: Vector<'a>,
    memory_sizes: Vec<u64>,
    inline_constants: Vector<'a>,
}

impl MethodCheck<'_> {
    fn check_values(&self) -> Result<(), FormatError> {
        for index in 0..self.values.len() {
            let found = Evalue::read(self.values.table(index)?)?;
            match found.tag {
                STRING => require_field(found.table()?, value::STRING)?,
                INT_LIST => self.check_ints(found.table()?)?,
                DOUBLE_LIST | BOOL_LIST => require_field(found.table()?, value::ITEMS)?,
                TENSOR_LIST => self.check_list(found.table()?, index, false)?,
                OPTIONAL_TENSOR_LIST => self.check_list(found.table()?, index, true)?,
                TENSOR => self.check_tensor(found.table()?)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks a list of ints. Its items are values, and some of these are created later.
    fn check_ints(&self, list: &Table<'_>) -> Result<(), FormatError> {
        require_field(list, value::ITEMS)?;
        let items = list.vector(value::ITEMS, 8)?;
        for position in 0..items.len() {
            let found = items.i64(position)?;
            if !u64::try_from(found).is_ok_and(|index| index < self.values.len()) {
                return Err(items
                    .place(position)
                    .index("values", self.values.len(), found));
            }
        }
        Ok(())
    }

    /// Checks a list of tensors, whose items must precede it.
    fn check_list(&self, list: &Table<'_>, index: u64, optional: bool) -> Result<(), FormatError> {
        require_field(list, value::ITEMS)?;
        let items = list.vector(value::ITEMS, 4)?;
        for position in 0..items.len() {
            let found = items.i32(position)?;
            if found == -1 && optional {
                continue;
            }
            let item = u64::try_from(found).ok().filter(|item| *item < index);
            let item = item.ok_or_else(|| {
                items
                    .place(position)
                    .index("values before the list", index, found)
            })?;
            let tag = Evalue::read(self.values.table(item)?)?.tag;
            if tag != TENSOR && !(tag == NULL && optional) {
                return Err(items
                    .place(position)
                    .expected("the index of a tensor", item));
            }
        }
        Ok(())
    }

    fn check_tensor(&self, table: &Table<'_>) -> Result<(), FormatError> {
        require_field(table, tensor::SIZES)?;
        let rank = table.vector(tensor::SIZES, 4)?;
        if rank.len() > MAX_RANK {
            return Err(rank.here().rank(MAX_RANK, rank.len()));
        }
        require_field(table, tensor::DIM_ORDER)?;
        let order = table.vector(tensor::DIM_ORDER, 1)?;
        let offset = table.i32(tensor::STORAGE_OFFSET)?;
        let in_order = order.len() == rank.len() && {
            let found = ProgramTensor::dim_order(table)?;
            found.len() as u64 == rank.len()
        };
        if offset != 0 || !in_order {
            return Err(table.place(tensor::DIM_ORDER).layout(offset));
        }
        let code = table.i8(tensor::SCALAR_TYPE)?;
        let Some(bytes) = ProgramTensor::bytes(table)? else {
            return Err(table
                .place(tensor::SCALAR_TYPE)
                .enum_value(super::element::LAST_CODE, code));
        };
        if let Some(extra) = table.table(tensor::EXTRA)?
            && extra.i8(tensor::LOCATION)? == 1
        {
            require_field(&extra, tensor::FULL_NAME)?;
        }
        match table.table(tensor::ALLOCATION)? {
            Some(allocation) => self.check_memory(&allocation, bytes),
            None => self.check_inline(table, bytes),
        }
    }

    /// Checks that a planned tensor lies inside its memory.
    fn check_memory(&self, allocation: &Table<'_>, bytes: u64) -> Result<(), FormatError> {
        let (memory, offset) = super::value::planned_memory(allocation)?;
        let index = usize::try_from(memory)
            .ok()
            .and_then(|id| id.checked_sub(1));
        let available = index.and_then(|index| self.memory_sizes.get(index));
        let fits = available.is_some_and(|available| {
            let end = offset.checked_add(bytes);
            end.is_some_and(|end| end <= *available)
        });
        if fits {
            return Ok(());
        }
        let found = match available {
            None => "no such memory".to_owned(),
            Some(size) => format!("{size} bytes in it"),
        };
        let expected = format_args!("{bytes} bytes at {offset} inside planned memory {memory}");
        Err(allocation.here().expected(expected, found))
    }

    /// Checks that a constant inside the FlatBuffer is at most as large as its tensor.
    fn check_inline(&self, table: &Table<'_>, bytes: u64) -> Result<(), FormatError> {
        let index = u64::from(table.u32(tensor::DATA_INDEX)?);
        if index == 0 || index >= self.inline_constants.len() {
            return Ok(());
        }
        let stored = self
            .inline_constants
            .table(index)?
            .vector(inline::STORAGE, 1)?;
        if stored.len() <= bytes {
            return Ok(());
        }
        Err(table.place(tensor::DATA_INDEX).expected(
            format_args!("a constant of at most {bytes} bytes, the size of its tensor"),
            stored.len(),
        ))
    }
}
