//! The schemas of programs and of data files, in the form that the FlatBuffer verifier walks.
//!
//! Sources: `schema/program.fbs` and `flat_tensor.fbs` of ExecuTorch 1.5. All fields are listed,
//! because a device verifies all of them.

use super::verify::FieldKind::{Member, Number, Numbers, Table, Tables, Text, Union};
use super::verify::TableSchema;

/// `Program`.
pub(super) static PROGRAM: TableSchema = TableSchema {
    fields: &[
        ("version", Number(4)),
        ("execution_plan", Tables(&PLAN)),
        ("constant_buffer", Tables(&BYTES)),
        ("backend_delegate_data", Tables(&BYTES)),
        ("segments", Tables(&SEGMENT)),
        ("constant_segment", Table(&OFFSETS)),
        ("mutable_data_segments", Tables(&OFFSETS)),
        ("named_data", Tables(&NAMED)),
    ],
};

/// `FlatTensor`, the root of a data file.
pub(super) static FLAT_TENSOR: TableSchema = TableSchema {
    fields: &[
        ("version", Number(4)),
        ("segments", Tables(&SEGMENT)),
        ("named_data", Tables(&NAMED_TENSOR)),
    ],
};

static NAMED_TENSOR: TableSchema = TableSchema {
    fields: &[
        ("key", Text),
        ("segment_index", Number(4)),
        ("tensor_layout", Table(&LAYOUT)),
    ],
};

static LAYOUT: TableSchema = TableSchema {
    fields: &[
        ("scalar_type", Number(1)),
        ("sizes", Numbers(4)),
        ("dim_order", Numbers(1)),
    ],
};

static PLAN: TableSchema = TableSchema {
    fields: &[
        ("name", Text),
        ("container_meta_type", Table(&TEXTS)),
        ("values", Tables(&EVALUE)),
        ("inputs", Numbers(4)),
        ("outputs", Numbers(4)),
        ("chains", Tables(&CHAIN)),
        ("operators", Tables(&OPERATOR)),
        ("delegates", Tables(&DELEGATE)),
        ("non_const_buffer_sizes", Numbers(8)),
        ("non_const_buffer_device", Tables(&DEVICE)),
    ],
};

/// `ContainerMetadata`.
static TEXTS: TableSchema = TableSchema {
    fields: &[("encoded_inp_str", Text), ("encoded_out_str", Text)],
};

static OPERATOR: TableSchema = TableSchema {
    fields: &[("name", Text), ("overload", Text)],
};

static DEVICE: TableSchema = TableSchema {
    fields: &[
        ("buffer_idx", Number(4)),
        ("device_type", Number(1)),
        ("device_index", Number(1)),
    ],
};

static EVALUE: TableSchema = TableSchema {
    fields: &[
        ("val_type", Member),
        (
            "val",
            Union(&[
                &NOTHING,
                &WIDE,
                &NARROW,
                &WIDE,
                &TENSOR,
                &TEXT,
                &WIDE_LIST,
                &WIDE_LIST,
                &NARROW_LIST,
                &INDEX_LIST,
                &INDEX_LIST,
            ]),
        ),
    ],
};

static NOTHING: TableSchema = TableSchema { fields: &[] };

/// `Int`, `Double`.
static WIDE: TableSchema = TableSchema {
    fields: &[("value", Number(8))],
};

/// `Bool`.
static NARROW: TableSchema = TableSchema {
    fields: &[("value", Number(1))],
};

static TEXT: TableSchema = TableSchema {
    fields: &[("string_val", Text)],
};

/// `IntList`, `DoubleList`.
static WIDE_LIST: TableSchema = TableSchema {
    fields: &[("items", Numbers(8))],
};

/// `BoolList`.
static NARROW_LIST: TableSchema = TableSchema {
    fields: &[("items", Numbers(1))],
};

/// `TensorList`, `OptionalTensorList`.
static INDEX_LIST: TableSchema = TableSchema {
    fields: &[("items", Numbers(4))],
};

static TENSOR: TableSchema = TableSchema {
    fields: &[
        ("scalar_type", Number(1)),
        ("storage_offset", Number(4)),
        ("sizes", Numbers(4)),
        ("dim_order", Numbers(1)),
        ("requires_grad", Number(1)),
        ("data_buffer_idx", Number(4)),
        ("allocation_info", Table(&ALLOCATION)),
        ("layout", Number(1)),
        ("shape_dynamism", Number(1)),
        ("extra_tensor_info", Table(&EXTRA)),
    ],
};

static ALLOCATION: TableSchema = TableSchema {
    fields: &[
        ("memory_id", Number(4)),
        ("memory_offset_low", Number(4)),
        ("memory_offset_high", Number(4)),
    ],
};

static EXTRA: TableSchema = TableSchema {
    fields: &[
        ("mutable_data_segments_idx", Number(8)),
        ("fully_qualified_name", Text),
        ("location", Number(1)),
        ("device_type", Number(1)),
        ("device_index", Number(1)),
    ],
};

static CHAIN: TableSchema = TableSchema {
    fields: &[
        ("inputs", Numbers(4)),
        ("outputs", Numbers(4)),
        ("instructions", Tables(&INSTRUCTION)),
        ("stacktrace", Tables(&FRAMES)),
    ],
};

static FRAMES: TableSchema = TableSchema {
    fields: &[("items", Tables(&FRAME))],
};

static FRAME: TableSchema = TableSchema {
    fields: &[
        ("filename", Text),
        ("lineno", Number(4)),
        ("name", Text),
        ("context", Text),
    ],
};

static INSTRUCTION: TableSchema = TableSchema {
    fields: &[
        ("instr_args_type", Member),
        ("instr_args", Union(&[&CALL, &CALL, &PAIR, &PAIR, &ONE])),
    ],
};

/// `KernelCall`, `DelegateCall`.
static CALL: TableSchema = TableSchema {
    fields: &[("index", Number(4)), ("args", Numbers(4))],
};

/// `MoveCall`, `JumpFalseCall`.
static PAIR: TableSchema = TableSchema {
    fields: &[("first", Number(4)), ("second", Number(4))],
};

/// `FreeCall`.
static ONE: TableSchema = TableSchema {
    fields: &[("value_index", Number(4))],
};

static DELEGATE: TableSchema = TableSchema {
    fields: &[
        ("id", Text),
        ("processed", Table(&PROCESSED)),
        ("compile_specs", Tables(&SPEC)),
    ],
};

static PROCESSED: TableSchema = TableSchema {
    fields: &[("location", Number(1)), ("index", Number(4))],
};

static SPEC: TableSchema = TableSchema {
    fields: &[("key", Text), ("value", Numbers(1))],
};

/// `Buffer`, `BackendDelegateInlineData`.
static BYTES: TableSchema = TableSchema {
    fields: &[("data", Numbers(1))],
};

static SEGMENT: TableSchema = TableSchema {
    fields: &[("offset", Number(8)), ("size", Number(8))],
};

static OFFSETS: TableSchema = TableSchema {
    fields: &[("segment_index", Number(4)), ("offsets", Numbers(8))],
};

static NAMED: TableSchema = TableSchema {
    fields: &[("key", Text), ("segment_index", Number(4))],
};
