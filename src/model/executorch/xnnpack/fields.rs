//! The tables of a graph's nodes: their fields as the verifier walks them, and how they are read.
//!
//! One shape and one function for each table of `runtime_schema.fbs`; several kinds of node share one. Invariant:
//! every id was found to be one that its reader knows.

use super::super::error::{Error, Place};
use super::super::flatbuffer::{Field, Table};
use super::super::verify::Kind::{Number, Numbers};
use super::super::verify::Shape;
use super::node::{BinaryKind, Conv, ConvKind, NodeKind, Pool, UnaryKind};

/// XNNPACK's own limit of dimensions.
const RANK: usize = 6;
/// The same, as files have it.
pub(super) const MAX_RANK: u64 = RANK as u64;
/// Which member of its union a node or a value is.
pub(super) const UNION_TYPE: Field = Field(0, "union_type");
/// That member.
pub(super) const UNION: Field = Field(1, "union");
/// The id of nothing, `XNN_INVALID_VALUE_ID`.
const NOTHING: u32 = u32::MAX;
/// `XNN_FLAG_TRANSPOSE_WEIGHTS`, and `XNN_FLAG_TRANSPOSE_B` of a product of matrices.
const TRANSPOSED: u32 = 0x1;
/// `XNN_FLAG_TENSORFLOW_SAME_PADDING`
const SAME_PADDING: u32 = 0x4;
/// `XNN_FLAG_ALIGN_CORNERS`
const ALIGN_CORNERS: u32 = 0x8;
/// `XNN_FLAG_TENSORFLOW_LEGACY_MODE`
const LEGACY: u32 = 0x4;
/// `XNN_FLAG_KEEP_DIMS`
const KEEP_DIMS: u32 = 0x40;

pub(super) static BINARY: Shape = Shape {
    fields: &[
        ("input1_id", Number(4)),
        ("input2_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static UNARY: Shape = Shape {
    fields: &[
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static FULLY_CONNECTED: Shape = Shape {
    fields: &[
        ("input1_id", Number(4)),
        ("filter_id", Number(4)),
        ("bias_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static STATIC_TRANSPOSE: Shape = Shape {
    fields: &[
        ("num_dims", Number(4)),
        ("perm", Numbers(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static CONVOLUTION: Shape = Shape {
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

pub(super) static STATIC_RESIZE_BILINEAR: Shape = Shape {
    fields: &[
        ("new_height", Number(4)),
        ("new_width", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static STATIC_CONSTANT_PAD: Shape = Shape {
    fields: &[
        ("pre_paddings", Numbers(4)),
        ("post_paddings", Numbers(4)),
        ("padding_value", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static POOLING: Shape = Shape {
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

pub(super) static ARG_MAX_POOLING: Shape = Shape {
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

pub(super) static STATIC_RESHAPE: Shape = Shape {
    fields: &[
        ("num_dims", Number(4)),
        ("new_shape", Numbers(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static LEAKY_RELU: Shape = Shape {
    fields: &[
        ("negative_slope", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static ELU: Shape = Shape {
    fields: &[
        ("alpha", Number(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static CAT: Shape = Shape {
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

pub(super) static STATIC_SLICE: Shape = Shape {
    fields: &[
        ("num_dims", Number(4)),
        ("offsets", Numbers(4)),
        ("sizes", Numbers(4)),
        ("input_id", Number(4)),
        ("output_id", Number(4)),
        ("flags", Number(4)),
    ],
};

pub(super) static SCALED_DOT_PRODUCT_ATTENTION: Shape = Shape {
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

/// The ids that a node may name.
pub(super) struct Ids<'v>(pub(super) &'v dyn Fn(u32) -> bool);

impl Ids<'_> {
    pub(super) fn check(&self, id: u32, place: impl FnOnce() -> Place) -> Result<u32, Error> {
        if (self.0)(id) {
            return Ok(id);
        }
        Err(Error::Value {
            place: place(),
            expected: "the id of a value of the graph".to_owned(),
            found: id.into(),
        })
    }

    fn required(&self, table: &Table<'_>, field: Field) -> Result<u32, Error> {
        self.check(table.u32(field)?, || table.place(field))
    }

    fn optional(&self, table: &Table<'_>, field: Field) -> Result<Option<u32>, Error> {
        match table.u32(field)? {
            NOTHING => Ok(None),
            id => self.check(id, || table.place(field)).map(Some),
        }
    }
}

/// The table of a node that is being read.
pub(super) struct Fields<'a, 'k> {
    /// It.
    pub(super) table: Table<'a>,
    /// What its ids are held against.
    pub(super) ids: &'k Ids<'k>,
}

impl Fields<'_, '_> {
    fn id(&self, slot: u16) -> Result<u32, Error> {
        self.ids.required(&self.table, Field(slot, "id"))
    }

    fn flags(&self, slot: u16) -> Result<u32, Error> {
        self.table.u32(Field(slot, "flags"))
    }

    fn sizes(&self, slot: u16, name: &'static str) -> Result<Vec<u64>, Error> {
        numbers(&self.table, Field(slot, name))
    }

    fn number(&self, slot: u16, name: &'static str) -> Result<u64, Error> {
        self.table.u32(Field(slot, name)).map(u64::from)
    }

    pub(super) fn binary(&self, kind: BinaryKind) -> Result<NodeKind, Error> {
        Ok(NodeKind::Binary {
            kind,
            a: self.id(0)?,
            b: self.id(1)?,
            output: self.id(2)?,
        })
    }

    pub(super) fn unary(&self, kind: UnaryKind) -> Result<NodeKind, Error> {
        Ok(NodeKind::Unary {
            kind,
            input: self.id(0)?,
            output: self.id(1)?,
        })
    }

    /// A unary node with a number before its ids.
    pub(super) fn scaled(&self, kind: impl FnOnce(f32) -> UnaryKind) -> Result<NodeKind, Error> {
        Ok(NodeKind::Unary {
            kind: kind(self.table.f32(Field(0, "alpha"))?),
            input: self.id(1)?,
            output: self.id(2)?,
        })
    }

    pub(super) fn conv(&self, kind: ConvKind) -> Result<NodeKind, Error> {
        let number = |slot| self.number(slot, "number");
        let numbers = |first: u16| Ok::<_, Error>([number(first)?, number(first + 1)?]);
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
            same_padding: self.flags(19)? & SAME_PADDING != 0,
        }))
    }

    pub(super) fn pool(&self) -> Result<Pool, Error> {
        let number = |slot| self.number(slot, "number");
        let numbers = |first: u16| Ok::<_, Error>([number(first)?, number(first + 1)?]);
        Ok(Pool {
            padding: [number(0)?, number(1)?, number(2)?, number(3)?],
            size: numbers(4)?,
            stride: numbers(6)?,
            dilation: numbers(8)?,
            input: self.id(10)?,
            output: self.id(11)?,
            same_padding: self.flags(12)? & SAME_PADDING != 0,
        })
    }

    pub(super) fn concatenate(&self, slots: &[u16]) -> Result<NodeKind, Error> {
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

pub(super) fn fully_connected(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    let flags = node.flags(4)?;
    Ok(NodeKind::FullyConnected {
        input: node.id(0)?,
        filter: node.id(1)?,
        bias: node.ids.optional(&node.table, Field(2, "bias_id"))?,
        output: node.id(3)?,
        transposed: flags & TRANSPOSED != 0,
        other_flags: flags & !TRANSPOSED != 0,
    })
}

pub(super) fn transpose(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    Ok(NodeKind::Transpose {
        perm: node.sizes(1, "perm")?,
        input: node.id(2)?,
        output: node.id(3)?,
    })
}

pub(super) fn resize(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    let flags = node.flags(4)?;
    Ok(NodeKind::Resize {
        height: node.number(0, "new_height")?,
        width: node.number(1, "new_width")?,
        input: node.id(2)?,
        output: node.id(3)?,
        align_corners: flags & ALIGN_CORNERS != 0,
        legacy: flags & LEGACY != 0,
    })
}

pub(super) fn pad(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    Ok(NodeKind::Pad {
        before: node.sizes(0, "pre_paddings")?,
        after: node.sizes(1, "post_paddings")?,
        value: node.table.f32(Field(2, "padding_value"))?,
        input: node.id(3)?,
        output: node.id(4)?,
    })
}

pub(super) fn arg_max_pool(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    let number = |slot| node.number(slot, "number");
    let size = [number(4)?, number(5)?];
    Ok(NodeKind::ArgMaxPool {
        pool: Pool {
            padding: [number(0)?, number(1)?, number(2)?, number(3)?],
            size,
            stride: size,
            dilation: [1, 1],
            input: node.id(6)?,
            output: node.id(7)?,
            same_padding: node.flags(9)? & SAME_PADDING != 0,
        },
        index: node.id(8)?,
    })
}

pub(super) fn global_average(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    Ok(NodeKind::GlobalAvgPool {
        input: node.id(0)?,
        output: node.id(1)?,
        keep_dims: node.flags(2)? & KEEP_DIMS != 0,
    })
}

pub(super) fn reshape(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    Ok(NodeKind::Reshape {
        shape: node.sizes(1, "new_shape")?,
        input: node.id(2)?,
        output: node.id(3)?,
    })
}

pub(super) fn slice(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    Ok(NodeKind::Slice {
        offsets: node.sizes(1, "offsets")?,
        sizes: node.sizes(2, "sizes")?,
        input: node.id(3)?,
        output: node.id(4)?,
    })
}

pub(super) fn attention(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    Ok(NodeKind::Attention {
        query: node.id(0)?,
        key: node.id(1)?,
        value: node.id(2)?,
        scale: node.id(3)?,
        mask: node.id(4)?,
        output: node.id(5)?,
    })
}

pub(super) fn product(node: &Fields<'_, '_>) -> Result<NodeKind, Error> {
    let flags = node.flags(3)?;
    Ok(NodeKind::MatMul {
        a: node.id(0)?,
        b: node.id(1)?,
        output: node.id(2)?,
        transposed: flags & TRANSPOSED != 0,
        other_flags: flags & !TRANSPOSED != 0,
    })
}

/// A short vector of numbers.
pub(super) fn numbers(table: &Table<'_>, field: Field) -> Result<Vec<u64>, Error> {
    let vector = table.vector(field, 4)?;
    if vector.len() > MAX_RANK {
        return Err(Error::Rank {
            place: vector.here(),
            found: vector.len(),
            most: MAX_RANK,
        });
    }
    vector.numbers::<RANK>()
}
