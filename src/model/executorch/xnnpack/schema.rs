//! The schema of XNNPACK's graphs, as the verifier walks it, and the numbers of fields that are read.
//!
//! `xnnpack/serialization/runtime_schema.fbs` of ExecuTorch 1.5, for both identifiers. The tables of nodes are
//! in `fields.rs`.

use super::super::error::Error;
use super::super::flatbuffer::{self, Field};
use super::super::verify::Kind::{Deprecated, Member, Number, Numbers, Table, Tables, Text, Union};
use super::super::verify::Shape;
use super::fields::{UNION, UNION_TYPE};
use super::kinds::SHAPES;

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
pub(super) const CONSTANT: Field = Field(3, "constant_buffer_idx");
pub(super) const EXTERNAL_ID: Field = Field(4, "external_id");
pub(super) const FLAGS: Field = Field(5, "flags");
pub(super) const ID: Field = Field(6, "id_out");

/// Where a constant begins.
pub(super) const OFFSET: Field = Field(0, "offset");
/// The name that a constant is stored under.
pub(super) const KEY: Field = Field(2, "named_key");

/// The tensor that a value is, and the table around it if it is quantised; nothing where a later schema has
/// its kind.
pub(super) fn tensor<'a>(
    value: &flatbuffer::Table<'a>,
) -> Result<Option<(flatbuffer::Table<'a>, Option<flatbuffer::Table<'a>>)>, Error> {
    let tag = value.u8(UNION_TYPE)?;
    let table = value.required(UNION)?;
    Ok(match tag {
        1 => Some((table, None)),
        2 => Some((table.required(TENSOR)?, Some(table))),
        _ => None,
    })
}

/// `XNNGraph`, the root.
pub(super) static GRAPH: Shape = Shape {
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

static BUFFER: Shape = Shape {
    fields: &[("storage", Numbers(1))],
};

static PER_CHANNEL_QUANT: Shape = Shape {
    fields: &[
        ("scale", Numbers(4)),
        ("channel_dim", Number(4)),
        ("scale_buffer_idx", Number(4)),
        ("num_scales", Number(4)),
    ],
};

static PER_TOKEN_DYNAMIC_QUANT: Shape = Shape {
    fields: &[("num_nonbatch_dims", Number(4))],
};

static PER_TENSOR_QUANT: Shape = Shape {
    fields: &[("scale", Number(4)), ("zero_point", Number(4))],
};

static PER_CHANNEL_GROUP_QUANT: Shape = Shape {
    fields: &[
        ("scale", Numbers(4)),
        ("channel_dim", Number(4)),
        ("group_size", Number(4)),
        ("scale_bf16", Deprecated),
        ("scale_buffer_idx", Number(4)),
        ("num_scales", Number(4)),
    ],
};

static TENSOR_VALUE: Shape = Shape {
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

static QUANTIZED_TENSOR_VALUE: Shape = Shape {
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

static OUTPUT_MIN_MAX: Shape = Shape {
    fields: &[("output_min", Number(4)), ("output_max", Number(4))],
};

static NODE: Shape = Shape {
    fields: &[
        ("xnode_union_type", Member),
        ("xnode_union", Union(&SHAPES)),
        ("debug_handle", Number(4)),
        ("output_min_max", Table(&OUTPUT_MIN_MAX)),
    ],
};

static VALUE: Shape = Shape {
    fields: &[
        ("xvalue_union_type", Member),
        (
            "xvalue_union",
            Union(&[&TENSOR_VALUE, &QUANTIZED_TENSOR_VALUE]),
        ),
    ],
};

static CONSTANT_DATA_OFFSET: Shape = Shape {
    fields: &[
        ("offset", Number(8)),
        ("size", Number(8)),
        ("named_key", Text),
    ],
};
