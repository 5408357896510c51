//! Field tables of the messages in `onnx.proto`: numbers, names and repetition.
//!
//! Fields that the reader skips are listed too, so that errors can name them.

/// One field of a message.
#[derive(Debug)]
pub(super) struct FieldDef {
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) repeat: Repeat,
}

/// The effect of a second occurrence of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It replaces the first: a singular number or string.
    Replaces,
    /// It is an error: a singular embedded message.
    Refused,
    /// It is the next element: a repeated field.
    Adds,
}

/// Maximum number of fields of a message in this file.
pub(super) const MAX_FIELDS: usize = 20;

pub(super) const MODEL: &[FieldDef] = &[
    one(1, "ir_version"),
    one(2, "producer_name"),
    one(3, "producer_version"),
    one(4, "domain"),
    one(5, "model_version"),
    one(6, "doc_string"),
    message_field(7, "graph"),
    many(8, "opset_import"),
    many(14, "metadata_props"),
    many(20, "training_info"),
    many(25, "functions"),
    many(26, "configuration"),
];

pub(super) const OPSET: &[FieldDef] = &[one(1, "domain"), one(2, "version")];

pub(super) const ENTRY: &[FieldDef] = &[one(1, "key"), one(2, "value")];

pub(super) const FUNCTION: &[FieldDef] = &[
    one(1, "name"),
    many(4, "input"),
    many(5, "output"),
    many(6, "attribute"),
    many(7, "node"),
    one(8, "doc_string"),
    many(9, "opset_import"),
    one(10, "domain"),
    many(11, "attribute_proto"),
    many(12, "value_info"),
    one(13, "overload"),
    many(14, "metadata_props"),
];

pub(super) const GRAPH: &[FieldDef] = &[
    many(1, "node"),
    one(2, "name"),
    many(5, "initializer"),
    one(10, "doc_string"),
    many(11, "input"),
    many(12, "output"),
    many(13, "value_info"),
    many(14, "quantization_annotation"),
    many(15, "sparse_initializer"),
    many(16, "metadata_props"),
];

pub(super) const NODE: &[FieldDef] = &[
    many(1, "input"),
    many(2, "output"),
    one(3, "name"),
    one(4, "op_type"),
    many(5, "attribute"),
    one(6, "doc_string"),
    one(7, "domain"),
    one(8, "overload"),
    many(9, "metadata_props"),
    many(10, "device_configurations"),
];

pub(super) const ATTRIBUTE: &[FieldDef] = &[
    one(1, "name"),
    one(2, "f"),
    one(3, "i"),
    one(4, "s"),
    message_field(5, "t"),
    message_field(6, "g"),
    many(7, "floats"),
    many(8, "ints"),
    many(9, "strings"),
    many(10, "tensors"),
    many(11, "graphs"),
    one(13, "doc_string"),
    message_field(14, "tp"),
    many(15, "type_protos"),
    one(20, "type"),
    one(21, "ref_attr_name"),
    message_field(22, "sparse_tensor"),
    many(23, "sparse_tensors"),
];

pub(super) const TENSOR: &[FieldDef] = &[
    many(1, "dims"),
    one(2, "data_type"),
    message_field(3, "segment"),
    many(4, "float_data"),
    many(5, "int32_data"),
    many(6, "string_data"),
    many(7, "int64_data"),
    one(8, "name"),
    one(9, "raw_data"),
    many(10, "double_data"),
    many(11, "uint64_data"),
    one(12, "doc_string"),
    many(13, "external_data"),
    one(14, "data_location"),
    many(16, "metadata_props"),
];

pub(super) const SPARSE_TENSOR: &[FieldDef] = &[
    message_field(1, "values"),
    message_field(2, "indices"),
    many(3, "dims"),
];

pub(super) const VALUE_INFO: &[FieldDef] = &[
    one(1, "name"),
    message_field(2, "type"),
    one(3, "doc_string"),
    many(4, "metadata_props"),
];

pub(super) const TYPE: &[FieldDef] = &[
    message_field(1, "tensor_type"),
    message_field(4, "sequence_type"),
    message_field(5, "map_type"),
    one(6, "denotation"),
    message_field(7, "opaque_type"),
    message_field(8, "sparse_tensor_type"),
    message_field(9, "optional_type"),
];

/// `TypeProto.Sequence` and `TypeProto.Optional`.
pub(super) const ELEMENT_TYPE: &[FieldDef] = &[message_field(1, "elem_type")];

pub(super) const TENSOR_TYPE: &[FieldDef] = &[one(1, "elem_type"), message_field(2, "shape")];

pub(super) const SHAPE: &[FieldDef] = &[many(1, "dim")];

pub(super) const DIMENSION: &[FieldDef] = &[
    one(1, "dim_value"),
    one(2, "dim_param"),
    one(3, "denotation"),
];

const fn one(number: u32, name: &'static str) -> FieldDef {
    let repeat = Repeat::Replaces;
    FieldDef {
        number,
        name,
        repeat,
    }
}

const fn message_field(number: u32, name: &'static str) -> FieldDef {
    let repeat = Repeat::Refused;
    FieldDef {
        number,
        name,
        repeat,
    }
}

const fn many(number: u32, name: &'static str) -> FieldDef {
    let repeat = Repeat::Adds;
    FieldDef {
        number,
        name,
        repeat,
    }
}
