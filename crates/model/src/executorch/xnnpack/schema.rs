//! The schema of XNNPACK graphs for the verifier, and the field numbers that the reader uses.
//!
//! Source: `xnnpack/serialization/runtime_schema.fbs` of ExecuTorch 1.5, for both identifiers.
//! `fields.rs` has the tables of the nodes.

use super::super::flatbuffer::{self, Field};
use super::super::verify::FieldKind::{
    Deprecated, Member, Number, Numbers, Table, Tables, Text, Union,
};
use super::super::verify::TableSchema;
use super::fields::{UNION, UNION_TYPE};
use super::kinds::NODE_SCHEMAS;
use crate::FormatError;

pub(super) const NODES: Field = Field(1, "xnodes");
pub(super) const VALUES: Field = Field(2, "xvalues");
pub(super) const INPUTS: Field = Field(4, "input_ids");
pub(super) const OUTPUTS: Field = Field(5, "output_ids");
pub(super) const BUFFERS: Field = Field(6, "constant_buffer");
pub(super) const CONSTANTS: Field = Field(8, "constant_data");

/// The tensor in a quantised value.
pub(super) const TENSOR: Field = Field(0, "tensor_value");
pub(super) const NUM_DIMS: Field = Field(1, "num_dims");
pub(super) const DIMS: Field = Field(2, "dims");
pub(super) const CONSTANT_INDEX: Field = Field(3, "constant_buffer_idx");
pub(super) const EXTERNAL_ID: Field = Field(4, "external_id");
pub(super) const FLAGS: Field = Field(5, "flags");
pub(super) const ID: Field = Field(6, "id_out");

/// Offset of a constant.
pub(super) const OFFSET: Field = Field(0, "offset");
/// Name under which a constant is stored.
pub(super) const NAMED_KEY: Field = Field(2, "named_key");

/// Returns the tensor of a value, and the enclosing table if it is quantised; `None` for a kind of
/// a later schema.
pub(super) fn tensor<'a>(
    value: &flatbuffer::Table<'a>,
) -> Result<Option<(flatbuffer::Table<'a>, Option<flatbuffer::Table<'a>>)>, FormatError> {
    let tag = value.u8(UNION_TYPE)?;
    let table = value.required_table(UNION)?;
    Ok(match tag {
        1 => Some((table, None)),
        2 => Some((table.required_table(TENSOR)?, Some(table))),
        _ => None,
    })
}

/// `XNNGraph`, the root.
pub(super) static GRAPH: TableSchema = TableSchema {
    fields: &[
        ("version", Text),
        ("xnodes", Tables(&NODE)),
        ("xvalues", Tables(&VALUE)),
        ("num_externs", Number(4)),
        ("input_ids", Numbers(4)),
        ("output_ids", Numbers(4)),
        ("constant_buffer", Tables(&BUFFER)),
        ("mem_buffer_sizes", Numbers(4)),
        ("constant_data", Tables(&CONSTANT_DATA_OFFSET)),
    ],
};

static BUFFER: TableSchema = TableSchema {
    fields: &[("storage", Numbers(1))],
};

static PER_CHANNEL_QUANT: TableSchema = TableSchema {
    fields: &[
        ("scale", Numbers(4)),
        ("channel_dim", Number(4)),
        ("scale_buffer_idx", Number(4)),
        ("num_scales", Number(4)),
    ],
};

static PER_TOKEN_DYNAMIC_QUANT: TableSchema = TableSchema {
    fields: &[("num_nonbatch_dims", Number(4))],
};

static PER_TENSOR_QUANT: TableSchema = TableSchema {
    fields: &[("scale", Number(4)), ("zero_point", Number(4))],
};

static PER_CHANNEL_GROUP_QUANT: TableSchema = TableSchema {
    fields: &[
        ("scale", Numbers(4)),
        ("channel_dim", Number(4)),
        ("group_size", Number(4)),
        ("scale_bf16", Deprecated),
        ("scale_buffer_idx", Number(4)),
        ("num_scales", Number(4)),
    ],
};

static TENSOR_VALUE: TableSchema = TableSchema {
    fields: &[
        ("datatype", Number(2)),
        ("num_dims", Number(4)),
        ("dims", Numbers(4)),
        ("constant_buffer_idx", Number(4)),
        ("external_id", Number(4)),
        ("flags", Number(4)),
        ("id_out", Number(4)),
        ("dq_datatype", Number(2)),
    ],
};

static QUANTIZED_TENSOR_VALUE: TableSchema = TableSchema {
    fields: &[
        ("tensor_value", Table(&TENSOR_VALUE)),
        ("quant_params_type", Member),
        (
            "quant_params",
            Union(&[
                &PER_CHANNEL_QUANT,
                &PER_TENSOR_QUANT,
                &PER_TOKEN_DYNAMIC_QUANT,
                &PER_CHANNEL_GROUP_QUANT,
            ]),
        ),
    ],
};

static OUTPUT_MIN_MAX: TableSchema = TableSchema {
    fields: &[("output_min", Number(4)), ("output_max", Number(4))],
};

static NODE: TableSchema = TableSchema {
    fields: &[
        ("xnode_union_type", Member),
        ("xnode_union", Union(&NODE_SCHEMAS)),
        ("debug_handle", Number(4)),
        ("output_min_max", Table(&OUTPUT_MIN_MAX)),
    ],
};

static VALUE: TableSchema = TableSchema {
    fields: &[
        ("xvalue_union_type", Member),
        (
            "xvalue_union",
            Union(&[&TENSOR_VALUE, &QUANTIZED_TENSOR_VALUE]),
        ),
    ],
};

static CONSTANT_DATA_OFFSET: TableSchema = TableSchema {
    fields: &[
        ("offset", Number(8)),
        ("size", Number(8)),
        ("named_key", Text),
    ],
};
