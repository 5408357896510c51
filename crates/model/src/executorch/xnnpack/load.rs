//! Applies the checks that the XNNPACK delegate makes on its payload when a device loads it.
//!
//! It checks the header, the FlatBuffer, and that constants exist where values refer to them. A
//! payload that does not begin like an XNNPACK payload is skipped.

use super::super::flatbuffer::{Buffer, Field, Table};
use super::super::payload_graph::AcceptedArguments;
use super::super::storage::{ByteRange, Externals, Storage};
use super::super::verify::verify;
use super::payload::XnnpackParts;
use super::schema::{
    BUFFERS, CONSTANT_INDEX, CONSTANTS, EXTERNAL_ID, FLAGS, GRAPH, NAMED_KEY, NODES, OFFSET,
    TENSOR, VALUES,
};
use crate::FormatError;
use pkgtool_base::source::Pages;

/// Flag bits of a value: input and output of the graph.
const KNOWN_FLAGS: u32 = 3;

const UNION_TYPE: Field = Field(0, "xvalue_union_type");
const UNION: Field = Field(1, "xvalue_union");

/// Checks a payload. Adds the names of constants outside the program to `externals`. Returns the
/// arguments that a call must pass, if it is an XNNPACK payload.
pub(in super::super) fn check(
    pages: &Pages<'_>,
    payload: ByteRange,
    storage: &Storage<'_>,
    externals: &mut Externals,
) -> Result<Option<AcceptedArguments>, FormatError> {
    let Some(parts) = XnnpackParts::find(pages, payload)? else {
        return Ok(None);
    };
    let ByteRange { offset, size } = parts.graph;
    verify(pages, (offset, size), "XNNGraph", &GRAPH)?;
    let buffer = Buffer::new(pages, offset, offset + size);
    let root = buffer.root("XNNGraph")?;
    for field in [NODES, VALUES] {
        if !root.has(field)? {
            return Err(root.place(field).missing());
        }
    }
    let constants = root.tables(CONSTANTS)?;
    let constants_end = constants.len().max(root.tables(BUFFERS)?.len());
    let mut count = 0;
    for value in root.tables(VALUES)?.iter_tables() {
        count = count.max(check_value(&value?, constants_end)?);
    }
    // Entry 0 means "no constant".
    for index in 1..constants.len() {
        let constant = constants.table(index)?;
        let key = constant.name(NAMED_KEY)?.filter(|key| !key.is_empty());
        match key {
            Some(key) if storage.has_named(&key) => {}
            Some(key) => {
                constant.buffer().keep(64, || constant.here())?;
                externals.insert(key, None);
            }
            None => {
                let offset = constant.u64(OFFSET)?;
                if offset > parts.constants.size {
                    return Err(constant
                        .place(OFFSET)
                        .data_offset(parts.constants.size, offset));
                }
            }
        }
    }
    let are_tensors = true;
    Ok(Some(AcceptedArguments { count, are_tensors }))
}

/// Checks a value; returns the number of arguments that a call must pass for it.
fn check_value(value: &Table<'_>, constants: u64) -> Result<u64, FormatError> {
    let Some(mut tensor) = value.table(UNION)? else {
        return Err(value.place(UNION).missing());
    };
    // A quantised value contains a plain one.
    if value.u8(UNION_TYPE)? == 2 {
        tensor = tensor.required_table(TENSOR)?;
    }
    let index = u64::from(tensor.u32(CONSTANT_INDEX)?);
    if index != 0 && index >= constants {
        return Err(tensor
            .place(CONSTANT_INDEX)
            .index("constants", constants, index));
    }
    let flags = tensor.u32(FLAGS)?;
    if flags > KNOWN_FLAGS {
        return Err(tensor
            .place(FLAGS)
            .expected(format_args!("no flag bits above {KNOWN_FLAGS}"), flags));
    }
    // Inputs and outputs of the graph are arguments of the call, by position.
    let is_argument = flags != 0;
    let position = u64::from(tensor.u32(EXTERNAL_ID)?);
    Ok(if is_argument { position + 1 } else { 0 })
}
