//! The tables of XNNPACK graph nodes: their schemas for the verifier, and functions that read them.
//!
//! Each table of `runtime_schema.fbs` has one schema and one function; several kinds of node share
//! a table. Invariant: every id has been checked by [`ValueIds`].

use super::super::flatbuffer::{Field, Table};
use super::super::verify::FieldKind::{Number, Numbers};
use super::super::verify::TableSchema;
use super::node::{BinaryKind, Conv, ConvKind, NodeKind, PoolWindow, UnaryKind};
use crate::{FieldPosition, FormatError};

/// XNNPACK's own limit on the number of dimensions.
const MAX_DIMS: usize = 6;
/// The same limit, in the type of file fields.
pub(super) const MAX_RANK: u64 = MAX_DIMS as u64;
/// Member number in the union of a node or value.
pub(super) const UNION_TYPE: Field = Field(0, "union_type");
/// The table of that member.
pub(super) const UNION: Field = Field(1, "union");
/// The invalid id, `XNN_INVALID_VALUE_ID`.
const INVALID_ID: u32 = u32::MAX;
/// `XNN_FLAG_TRANSPOSE_WEIGHTS`; also `XNN_FLAG_TRANSPOSE_B` of a matrix product.
const FLAG_TRANSPOSE_WEIGHTS: u32 = 0x1;
/// `XNN_FLAG_TENSORFLOW_SAME_PADDING`
const FLAG_SAME_PADDING: u32 = 0x4;
/// `XNN_FLAG_ALIGN_CORNERS`
const FLAG_ALIGN_CORNERS: u32 = 0x8;
/// `XNN_FLAG_TENSORFLOW_LEGACY_MODE`
const FLAG_LEGACY_RESIZE: u32 = 0x4;
/// `XNN_FLAG_KEEP_DIMS`
const FLAG_KEEP_DIMS: u32 = 0x40;

pub(super) static BINARY: TableSchema = TableSchema {
    fields: &[
        ("input1_id", Number(4)),
        ("input2_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static UNARY: TableSchema = TableSchema {
    fields: &[
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static FULLY_CONNECTED: TableSchema = TableSchema {
    fields: &[
        ("input1_id", Number(4)),
        ("filter_id", Number(4)),
        ("bias_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static STATIC_TRANSPOSE: TableSchema = TableSchema {
    fields: &[
        ("num_dims", Number(4)),
        ("perm", Numbers(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static CONVOLUTION: TableSchema = TableSchema {
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

pub(super) static STATIC_RESIZE_BILINEAR: TableSchema = TableSchema {
    fields: &[
        ("new_height", Number(4)),
        ("new_width", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static STATIC_CONSTANT_PAD: TableSchema = TableSchema {
    fields: &[
        ("pre_paddings", Numbers(4)),
        ("post_paddings", Numbers(4)),
        ("padding_value", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static POOLING: TableSchema = TableSchema {
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

pub(super) static ARG_MAX_POOLING: TableSchema = TableSchema {
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

pub(super) static STATIC_RESHAPE: TableSchema = TableSchema {
    fields: &[
        ("num_dims", Number(4)),
        ("new_shape", Numbers(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static LEAKY_RELU: TableSchema = TableSchema {
    fields: &[
        ("negative_slope", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static ELU: TableSchema = TableSchema {
    fields: &[
        ("alpha", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static CAT: TableSchema = TableSchema {
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

pub(super) static STATIC_SLICE: TableSchema = TableSchema {
    fields: &[
        ("num_dims", Number(4)),
        ("offsets", Numbers(4)),
        ("sizes", Numbers(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static SCALED_DOT_PRODUCT_ATTENTION: TableSchema = TableSchema {
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

/// The ids that a node may use.
pub(super) struct ValueIds<'v>(pub(super) &'v dyn Fn(u32) -> bool);

impl ValueIds<'_> {
    pub(super) fn check(
        &self,
        id: u32,
        place: impl FnOnce() -> FieldPosition,
    ) -> Result<u32, FormatError> {
        if (self.0)(id) {
            return Ok(id);
        }
        Err(place().expected("the id of a value in the graph", id))
    }

    fn required(&self, table: &Table<'_>, field: Field) -> Result<u32, FormatError> {
        self.check(table.u32(field)?, || table.place(field))
    }

    fn optional(&self, table: &Table<'_>, field: Field) -> Result<Option<u32>, FormatError> {
        match table.u32(field)? {
            INVALID_ID => Ok(None),
            id => self.check(id, || table.place(field)).map(Some),
        }
    }
}

/// A reader for the table of a node.
pub(super) struct NodeReader<'a, 'k> {
    /// The table.
    pub(super) table: Table<'a>,
    /// The valid ids.
    pub(super) ids: &'k ValueIds<'k>,
}

impl NodeReader<'_, '_> {
    fn id(&self, slot: u16) -> Result<u32, FormatError> {
        self.ids.required(&self.table, Field(slot, "id"))
    }

    fn flags(&self, slot: u16) -> Result<u32, FormatError> {
        self.table.u32(Field(slot, "flags"))
    }

    fn sizes(&self, slot: u16, name: &'static str) -> Result<Vec<u64>, FormatError> {
        read_sizes(&self.table, Field(slot, name))
    }

    fn number(&self, slot: u16, name: &'static str) -> Result<u64, FormatError> {
        self.table.u32(Field(slot, name)).map(u64::from)
    }

    pub(super) fn binary(&self, kind: BinaryKind) -> Result<NodeKind, FormatError> {
        Ok(NodeKind::Binary {
            kind,
            a: self.id(0)?,
            b: self.id(1)?,
            output: self.id(2)?,
        })
    }

    pub(super) fn unary(&self, kind: UnaryKind) -> Result<NodeKind, FormatError> {
        Ok(NodeKind::Unary {
            kind,
            input: self.id(0)?,
            output: self.id(1)?,
        })
    }

    /// Reads a unary node with a number before its ids.
    pub(super) fn unary_with_parameter(
        &self,
        kind: impl FnOnce(f32) -> UnaryKind,
    ) -> Result<NodeKind, FormatError> {
        Ok(NodeKind::Unary {
            kind: kind(self.table.f32(Field(0, "alpha"))?),
            input: self.id(1)?,
            output: self.id(2)?,
        })
    }

    pub(super) fn conv(&self, kind: ConvKind) -> Result<NodeKind, FormatError> {
        let number = |slot| self.number(slot, "number");
        let numbers = |first: u16| Ok::<_, FormatError>([number(first)?, number(first + 1)?]);
        Ok(NodeKind::Conv(Conv {
            kind,
            padding: [number(0)?, number(1)?, number(2)?, number(3)?],
            kernel: numbers(4)?,
            stride: numbers(6)?,
            dilation: numbers(8)?,
            group_input_channels: number(10)?,
            group_output_channels: number(11)?,
            groups: number(12)?,
            adjustment: numbers(13)?,
            input: self.id(15)?,
            filter: self.id(16)?,
            bias: self.ids.optional(&self.table, Field(17, "bias_id"))?,
            output: self.id(18)?,
            same_padding: self.flags(19)? & FLAG_SAME_PADDING != 0,
        }))
    }

    pub(super) fn pool(&self) -> Result<PoolWindow, FormatError> {
        let number = |slot| self.number(slot, "number");
        let numbers = |first: u16| Ok::<_, FormatError>([number(first)?, number(first + 1)?]);
        Ok(PoolWindow {
            padding: [number(0)?, number(1)?, number(2)?, number(3)?],
            size: numbers(4)?,
            stride: numbers(6)?,
            dilation: numbers(8)?,
            input: self.id(10)?,
            output: self.id(11)?,
            same_padding: self.flags(12)? & FLAG_SAME_PADDING != 0,
        })
    }

    pub(super) fn concatenate(&self, slots: &[u16]) -> Result<NodeKind, FormatError> {
        let axis = self.table.i32(Field(0, "axis"))?;
        Ok(NodeKind::Concatenate {
            axis: axis.into(),
            inputs: slots
                .iter()
                .map(|&slot| self.id(slot))
                .collect::<Result<_, _>>()?,
            output: self.id(5)?,
        })
    }
}

pub(super) fn fully_connected(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    let flags = node.flags(4)?;
    Ok(NodeKind::FullyConnected {
        input: node.id(0)?,
        filter: node.id(1)?,
        bias: node.ids.optional(&node.table, Field(2, "bias_id"))?,
        output: node.id(3)?,
        transposed: flags & FLAG_TRANSPOSE_WEIGHTS != 0,
        other_flags: flags & !FLAG_TRANSPOSE_WEIGHTS != 0,
    })
}

pub(super) fn transpose(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    Ok(NodeKind::Transpose {
        perm: node.sizes(1, "perm")?,
        input: node.id(2)?,
        output: node.id(3)?,
    })
}

pub(super) fn resize(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    let flags = node.flags(4)?;
    Ok(NodeKind::Resize {
        height: node.number(0, "new_height")?,
        width: node.number(1, "new_width")?,
        input: node.id(2)?,
        output: node.id(3)?,
        align_corners: flags & FLAG_ALIGN_CORNERS != 0,
        legacy: flags & FLAG_LEGACY_RESIZE != 0,
    })
}

pub(super) fn pad(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    Ok(NodeKind::Pad {
        before: node.sizes(0, "pre_paddings")?,
        after: node.sizes(1, "post_paddings")?,
        value: node.table.f32(Field(2, "padding_value"))?,
        input: node.id(3)?,
        output: node.id(4)?,
    })
}

pub(super) fn arg_max_pool(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    let number = |slot| node.number(slot, "number");
    let size = [number(4)?, number(5)?];
    Ok(NodeKind::ArgMaxPool {
        pool: PoolWindow {
            padding: [number(0)?, number(1)?, number(2)?, number(3)?],
            size,
            stride: size,
            dilation: [1, 1],
            input: node.id(6)?,
            output: node.id(7)?,
            same_padding: node.flags(9)? & FLAG_SAME_PADDING != 0,
        },
        index: node.id(8)?,
    })
}

pub(super) fn global_avg_pool(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    Ok(NodeKind::GlobalAvgPool {
        input: node.id(0)?,
        output: node.id(1)?,
        keep_dims: node.flags(2)? & FLAG_KEEP_DIMS != 0,
    })
}

pub(super) fn reshape(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    Ok(NodeKind::Reshape {
        shape: node.sizes(1, "new_shape")?,
        input: node.id(2)?,
        output: node.id(3)?,
    })
}

pub(super) fn slice(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    Ok(NodeKind::Slice {
        offsets: node.sizes(1, "offsets")?,
        sizes: node.sizes(2, "sizes")?,
        input: node.id(3)?,
        output: node.id(4)?,
    })
}

pub(super) fn attention(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    Ok(NodeKind::Attention {
        query: node.id(0)?,
        key: node.id(1)?,
        value: node.id(2)?,
        scale: node.id(3)?,
        mask: node.id(4)?,
        output: node.id(5)?,
    })
}

pub(super) fn matmul(node: &NodeReader<'_, '_>) -> Result<NodeKind, FormatError> {
    let flags = node.flags(3)?;
    Ok(NodeKind::MatMul {
        a: node.id(0)?,
        b: node.id(1)?,
        output: node.id(2)?,
        transposed: flags & FLAG_TRANSPOSE_WEIGHTS != 0,
        other_flags: flags & !FLAG_TRANSPOSE_WEIGHTS != 0,
    })
}

/// Reads a short vector of numbers.
pub(super) fn read_sizes(table: &Table<'_>, field: Field) -> Result<Vec<u64>, FormatError> {
    let vector = table.vector(field, 4)?;
    if vector.len() > MAX_RANK {
        return Err(vector.here().rank(MAX_RANK, vector.len()));
    }
    vector.numbers::<MAX_DIMS>()
}
