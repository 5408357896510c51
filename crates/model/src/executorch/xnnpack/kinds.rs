//! The table of XNNPACK node kinds: the members of `XNodeUnion`.
//!
//! This is the only list of them. Each entry has the node's name in profiles, the schema of its
//! table for the verifier, and the function that reads it into a [`NodeKind`].

use super::super::flatbuffer::{Field, Table};
use super::super::verify::TableSchema;
use super::fields::{
    self, ARG_MAX_POOLING, BINARY, CAT, CONVOLUTION, ELU, FULLY_CONNECTED, LEAKY_RELU, NodeReader,
    POOLING, SCALED_DOT_PRODUCT_ATTENTION, STATIC_CONSTANT_PAD, STATIC_RESHAPE,
    STATIC_RESIZE_BILINEAR, STATIC_SLICE, STATIC_TRANSPOSE, UNARY, UNION, UNION_TYPE, ValueIds,
};
use super::node::{BinaryKind as B, ConvKind, NodeKind, UnaryKind as U, XnnpackNode};
use crate::FormatError;

const DEBUG_HANDLE: Field = Field(2, "debug_handle");
const OUTPUT_RANGE: Field = Field(3, "output_min_max");

/// A member of the union.
struct NodeMember {
    name: &'static str,
    shape: &'static TableSchema,
    read: ReadNode,
}

/// A function that reads a node's table.
type ReadNode = fn(&NodeReader<'_, '_>) -> Result<NodeKind, FormatError>;

const fn kind(name: &'static str, shape: &'static TableSchema, read: ReadNode) -> NodeMember {
    NodeMember { name, shape, read }
}

/// All node kinds, by number from 1.
static NODE_ENTRIES: [NodeMember; 47] = [
    kind("XNNAdd", &BINARY, |node| node.binary(B::Add)),
    kind(
        "XNNFullyConnected",
        &FULLY_CONNECTED,
        fields::fully_connected,
    ),
    kind("XNNSoftmax", &UNARY, |node| node.unary(U::Softmax)),
    kind("XNNSigmoid", &UNARY, |node| node.unary(U::Sigmoid)),
    kind("XNNStaticTranspose", &STATIC_TRANSPOSE, fields::transpose),
    kind("XNNClamp", &UNARY, |node| node.unary(U::Clamp)),
    kind("XNNConv2d", &CONVOLUTION, |node| node.conv(ConvKind::Plain)),
    kind("XNNDiv", &BINARY, |node| node.binary(B::Divide)),
    kind(
        "XNNStaticResizeBilinear2D",
        &STATIC_RESIZE_BILINEAR,
        fields::resize,
    ),
    kind("XNNStaticConstantPad", &STATIC_CONSTANT_PAD, fields::pad),
    kind("XNNAvgPooling2d", &POOLING, |node| {
        node.pool().map(NodeKind::AvgPool)
    }),
    kind("XNNMinimum", &BINARY, |node| node.binary(B::Minimum)),
    kind("XNNConv2d", &CONVOLUTION, |node| {
        node.conv(ConvKind::Depthwise)
    }),
    kind("XNNMaxPooling2d", &POOLING, |node| {
        node.pool().map(NodeKind::MaxPool)
    }),
    kind("XNNMultiply", &BINARY, |node| node.binary(B::Multiply)),
    kind("XNNSubtract", &BINARY, |node| node.binary(B::Subtract)),
    kind("XNNFloor", &UNARY, |node| node.unary(U::Floor)),
    kind("XNNConvert", &UNARY, |node| node.unary(U::Convert)),
    kind("XNNGlobalAvgPooling2d", &UNARY, fields::global_avg_pool),
    kind("XNNStaticReshape", &STATIC_RESHAPE, fields::reshape),
    kind("XNNArgMaxPooling2d", &ARG_MAX_POOLING, fields::arg_max_pool),
    kind("XNNSquareRoot", &UNARY, |node| node.unary(U::SquareRoot)),
    kind("XNNCeiling", &UNARY, |node| node.unary(U::Ceiling)),
    kind("XNNHardswish", &UNARY, |node| node.unary(U::Hardswish)),
    kind("XNNLeakyReLU", &LEAKY_RELU, |node| {
        node.unary_with_parameter(|slope| U::LeakyRelu { slope })
    }),
    kind("XNNMaximum", &BINARY, |node| node.binary(B::Maximum)),
    kind("XNNNegate", &UNARY, |node| node.unary(U::Negate)),
    kind("XNNSquare", &UNARY, |node| node.unary(U::Square)),
    kind("XNNELU", &ELU, |node| {
        node.unary_with_parameter(|alpha| U::Elu { alpha })
    }),
    kind("XNNAbs", &UNARY, |node| node.unary(U::Abs)),
    kind("XNNPReLU", &BINARY, |node| node.binary(B::PRelu)),
    kind("XNNConcatenate", &CAT, |node| node.concatenate(&[1, 2])),
    kind("XNNConcatenate", &CAT, |node| node.concatenate(&[1, 2, 3])),
    kind("XNNConcatenate", &CAT, |node| {
        node.concatenate(&[1, 2, 3, 4])
    }),
    kind("XNNStaticSlice", &STATIC_SLICE, fields::slice),
    kind(
        "XNNScaledDotProductAttention",
        &SCALED_DOT_PRODUCT_ATTENTION,
        fields::attention,
    ),
    kind("XNNBatchMatrixMultiply", &BINARY, fields::matmul),
    kind("XNNConcatenate", &CAT, |node| {
        node.concatenate(&[1, 2, 3, 4, 7])
    }),
    kind("XNNConv2d", &CONVOLUTION, |node| {
        node.conv(ConvKind::Transposed)
    }),
    kind("XNNReciprocalSquareRoot", &UNARY, |node| {
        node.unary(U::ReciprocalSquareRoot)
    }),
    kind("XNNLog", &UNARY, |node| node.unary(U::Log)),
    kind("XNNGelu", &UNARY, |node| node.unary(U::Gelu)),
    kind("XNNTanh", &UNARY, |node| node.unary(U::Tanh)),
    kind("XNNExp", &UNARY, |node| node.unary(U::Exp)),
    kind("XNNSin", &UNARY, |node| node.unary(U::Sin)),
    kind("XNNCopy", &UNARY, |node| node.unary(U::Copy)),
    kind("XNNCos", &UNARY, |node| node.unary(U::Cos)),
];

/// Schemas of their tables, in the same order.
pub(super) static NODE_SCHEMAS: [&TableSchema; NODE_ENTRIES.len()] = {
    let mut shapes = [NODE_ENTRIES[0].shape; NODE_ENTRIES.len()];
    let mut at = 0;
    while at < shapes.len() {
        shapes[at] = NODE_ENTRIES[at].shape;
        at += 1;
    }
    shapes
};

fn find(tag: u8) -> Option<&'static NodeMember> {
    NODE_ENTRIES.get(usize::from(tag).checked_sub(1)?)
}

/// Returns the computation of a node; `None` for a kind of a later schema.
pub(super) fn read_computation(
    outer: &Table<'_>,
    ids: &ValueIds<'_>,
) -> Result<Option<NodeKind>, FormatError> {
    let Some(kind) = find(outer.u8(UNION_TYPE)?) else {
        return Ok(None);
    };
    let table = outer.required_table(UNION)?;
    (kind.read)(&NodeReader { table, ids }).map(Some)
}

impl XnnpackNode {
    /// Reads a node; fails if its kind is unknown.
    pub(super) fn read(outer: &Table<'_>, ids: &ValueIds<'_>) -> Result<Self, FormatError> {
        let tag = outer.u8(UNION_TYPE)?;
        let table = outer.required_table(UNION)?;
        let kind =
            find(tag).ok_or_else(|| outer.place(UNION_TYPE).union_type(NODE_ENTRIES.len(), tag))?;
        let computed = (kind.read)(&NodeReader { table, ids })?;
        let clamp = outer.table(OUTPUT_RANGE)?;
        let clamp = clamp.map(|range| -> Result<_, FormatError> {
            Ok((
                range.f32(Field(0, "output_min"))?,
                range.f32(Field(1, "output_max"))?,
            ))
        });
        Ok(Self {
            name: kind.name,
            kind: computed,
            clamp: clamp.transpose()?,
            debug_handle: outer.u32(DEBUG_HANDLE)?,
        })
    }
}
