//! The schema of XNNPACK's graphs, as the verifier walks it.
//!
//! `xnnpack/serialization/runtime_schema.fbs` of ExecuTorch 1.5, for both identifiers.

use super::super::verify::Kind::{Deprecated, Member, Number, Numbers, Table, Tables, Text, Union};
use super::super::verify::Shape;

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
        (
            "xnode_union",
            Union(&[
                &BINARY,
                &FULLY_CONNECTED,
                &UNARY,
                &UNARY,
                &STATIC_TRANSPOSE,
                &UNARY,
                &CONVOLUTION,
                &BINARY,
                &STATIC_RESIZE_BILINEAR2_D,
                &STATIC_CONSTANT_PAD,
                &POOLING2_D,
                &BINARY,
                &CONVOLUTION,
                &POOLING2_D,
                &BINARY,
                &BINARY,
                &UNARY,
                &UNARY,
                &UNARY,
                &STATIC_RESHAPE,
                &ARG_MAX_POOLING2D,
                &UNARY,
                &UNARY,
                &UNARY,
                &LEAKY_RE_LU,
                &BINARY,
                &UNARY,
                &UNARY,
                &ELU,
                &UNARY,
                &BINARY,
                &CAT,
                &CAT,
                &CAT,
                &STATIC_SLICE,
                &SCALED_DOT_PRODUCT_ATTENTION,
                &BINARY,
                &CAT,
                &CONVOLUTION,
                &UNARY,
                &UNARY,
                &UNARY,
                &UNARY,
                &UNARY,
                &UNARY,
                &UNARY,
                &UNARY,
            ]),
        ),
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

static STATIC_TRANSPOSE: Shape = Shape {
    fields: &[
        ("num_dims", Number(4)),
        ("perm", Numbers(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static STATIC_RESIZE_BILINEAR2_D: Shape = Shape {
    fields: &[
        ("new_height", Number(4)),
        ("new_width", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static STATIC_CONSTANT_PAD: Shape = Shape {
    fields: &[
        ("pre_paddings", Numbers(4)),
        ("post_paddings", Numbers(4)),
        ("padding_value", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static BINARY: Shape = Shape {
    fields: &[
        ("input1_id", Number(4)),
        ("input2_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static UNARY: Shape = Shape {
    fields: &[
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static CAT: Shape = Shape {
    fields: &[
        ("axis", Number(4)),
        ("input1_id", Number(4)),
        ("input2_id", Number(4)),
        ("input3_id", Number(4)),
        ("input4_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
        ("input5_id", Number(4)),
    ],
};

static ELU: Shape = Shape {
    fields: &[
        ("alpha", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static FULLY_CONNECTED: Shape = Shape {
    fields: &[
        ("input1_id", Number(4)),
        ("filter_id", Number(4)),
        ("bias_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static CONVOLUTION: Shape = Shape {
    fields: &[
        ("padding_top", Number(4)),
        ("padding_right", Number(4)),
        ("padding_bottom", Number(4)),
        ("padding_left", Number(4)),
        ("kernel_height", Number(4)),
        ("kernel_width", Number(4)),
        ("subsampling_height", Number(4)),
        ("subsampling_width", Number(4)),
        ("dilation_height", Number(4)),
        ("dilation_width", Number(4)),
        ("group_input_channels", Number(4)),
        ("group_output_channels", Number(4)),
        ("groups", Number(4)),
        ("adjustment_height", Number(4)),
        ("adjustment_width", Number(4)),
        ("input1_id", Number(4)),
        ("filter_id", Number(4)),
        ("bias_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static POOLING2_D: Shape = Shape {
    fields: &[
        ("padding_top", Number(4)),
        ("padding_right", Number(4)),
        ("padding_bottom", Number(4)),
        ("padding_left", Number(4)),
        ("pooling_height", Number(4)),
        ("pooling_width", Number(4)),
        ("stride_height", Number(4)),
        ("stride_width", Number(4)),
        ("dilation_height", Number(4)),
        ("dilation_width", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static STATIC_RESHAPE: Shape = Shape {
    fields: &[
        ("num_dims", Number(4)),
        ("new_shape", Numbers(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static STATIC_SLICE: Shape = Shape {
    fields: &[
        ("num_dims", Number(4)),
        ("offsets", Numbers(4)),
        ("sizes", Numbers(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static SCALED_DOT_PRODUCT_ATTENTION: Shape = Shape {
    fields: &[
        ("query_id", Number(4)),
        ("key_id", Number(4)),
        ("value_id", Number(4)),
        ("scale_id", Number(4)),
        ("mask_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static ARG_MAX_POOLING2D: Shape = Shape {
    fields: &[
        ("padding_top", Number(4)),
        ("padding_right", Number(4)),
        ("padding_bottom", Number(4)),
        ("padding_left", Number(4)),
        ("pooling_height", Number(4)),
        ("pooling_width", Number(4)),
        ("input_id", Number(4)),
        ("output_value_id", Number(4)),
        ("output_index_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static LEAKY_RE_LU: Shape = Shape {
    fields: &[
        ("negative_slope", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

static CONSTANT_DATA_OFFSET: Shape = Shape {
    fields: &[
        ("offset", Number(8)),
        ("size", Number(8)),
        ("named_key", Text),
    ],
};
