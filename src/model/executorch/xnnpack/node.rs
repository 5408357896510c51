//! The nodes of a graph: all 47 members of `XNodeUnion`.

use super::super::error::Error;
use super::super::flatbuffer::{Field, Table};
use super::graph::{Known, UNION, UNION_TYPE, numbers};

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

/// A node: what it computes, then the range its result is held to.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it computes.
    pub kind: NodeKind,
    /// Least and largest value of the output.
    pub clamp: Option<(f32, f32)>,
    /// The node's number in the exporter's trace.
    pub debug_handle: u32,
}

/// What a node computes. Images are `[n, h, w, c]`.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "ids of inputs and outputs, and the schema's own names"
)]
pub enum NodeKind {
    Binary {
        kind: BinaryKind,
        a: u32,
        b: u32,
        output: u32,
    },
    Unary {
        kind: UnaryKind,
        input: u32,
        output: u32,
    },
    /// `input · filterᵀ + bias`; the filter is `[out, in]`, `[in, out]` if transposed.
    FullyConnected {
        input: u32,
        filter: u32,
        bias: Option<u32>,
        output: u32,
        transposed: bool,
    },
    Transpose {
        perm: Vec<u64>,
        input: u32,
        output: u32,
    },
    Conv(Conv),
    Resize {
        height: u64,
        width: u64,
        input: u32,
        output: u32,
        align_corners: bool,
        /// Neither corners nor centres of pixels are aligned.
        legacy: bool,
    },
    Pad {
        before: Vec<u64>,
        after: Vec<u64>,
        value: f32,
        input: u32,
        output: u32,
    },
    AvgPool(Pool),
    MaxPool(Pool),
    /// Largest value of a window, and its place in the window.
    ArgMaxPool {
        pool: Pool,
        index: u32,
    },
    GlobalAvgPool {
        input: u32,
        output: u32,
        keep_dims: bool,
    },
    Reshape {
        /// 0 is the size that follows from the others.
        shape: Vec<u64>,
        input: u32,
        output: u32,
    },
    Concatenate {
        axis: i64,
        inputs: Vec<u32>,
        output: u32,
    },
    Slice {
        offsets: Vec<u64>,
        /// 0 is up to the end.
        sizes: Vec<u64>,
        input: u32,
        output: u32,
    },
    /// `softmax(query · keyᵀ · scale + mask) · value`
    Attention {
        query: u32,
        key: u32,
        value: u32,
        scale: u32,
        mask: u32,
        output: u32,
    },
    /// Products of the last two dimensions.
    MatMul {
        a: u32,
        b: u32,
        output: u32,
        /// `b` is stored as `[.., n, k]`.
        transposed: bool,
    },
}

/// Elementwise, with broadcasting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "XNNPACK's own names say it")]
pub enum BinaryKind {
    Add,
    Subtract,
    Multiply,
    Divide,
    Minimum,
    Maximum,
    PRelu,
}

/// Elementwise, and softmax over the last dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "XNNPACK's own names say it")]
pub enum UnaryKind {
    Softmax,
    Sigmoid,
    Clamp,
    Floor,
    Convert,
    SquareRoot,
    Ceiling,
    Hardswish,
    Negate,
    Square,
    Abs,
    ReciprocalSquareRoot,
    Log,
    Gelu,
    Tanh,
    Exp,
    Sin,
    Cos,
    Copy,
    LeakyRelu { slope: f32 },
    Elu { alpha: f32 },
}

/// The three kinds of convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvKind {
    /// Filter `[o, h, w, i / groups]`.
    Plain,
    /// Filter `[1, h, w, o]`.
    Depthwise,
    /// Filter `[o, h, w, i]`.
    Transposed,
}

/// A convolution. Pairs are height, width.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the schema's own names say it")]
pub struct Conv {
    pub kind: ConvKind,
    /// Top, right, bottom, left.
    pub padding: [u64; 4],
    pub kernel: [u64; 2],
    pub stride: [u64; 2],
    pub dilation: [u64; 2],
    pub group_input_channels: u64,
    pub group_output_channels: u64,
    pub groups: u64,
    /// What a transposed convolution adds to its output.
    pub adjustment: [u64; 2],
    pub input: u32,
    pub filter: u32,
    pub bias: Option<u32>,
    pub output: u32,
    /// Padding follows from the sizes instead.
    pub same_padding: bool,
}

/// A pooling. Pairs are height, width.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the schema's own names say it")]
pub struct Pool {
    /// Top, right, bottom, left.
    pub padding: [u64; 4],
    pub size: [u64; 2],
    pub stride: [u64; 2],
    pub dilation: [u64; 2],
    pub input: u32,
    pub output: u32,
    /// Padding follows from the sizes instead.
    pub same_padding: bool,
}

impl Node {
    pub(super) fn read(outer: &Table<'_>, known: &Known<'_>) -> Result<Self, Error> {
        let tag = outer.u8(UNION_TYPE)?;
        let node = Reader {
            table: outer.required(UNION)?,
            known,
        };
        let Some(kind) = node.kind(tag)? else {
            return Err(Error::UnionType {
                place: outer.place(UNION_TYPE),
                found: tag,
                most: 47,
            });
        };
        let clamp = outer.table(Field(3, "output_min_max"))?;
        let clamp = clamp.map(|range| -> Result<_, Error> {
            Ok((
                range.f32(Field(0, "output_min"))?,
                range.f32(Field(1, "output_max"))?,
            ))
        });
        Ok(Self {
            kind,
            clamp: clamp.transpose()?,
            debug_handle: outer.u32(Field(2, "debug_handle"))?,
        })
    }
}

struct Reader<'a, 'k> {
    table: Table<'a>,
    known: &'k Known<'k>,
}

impl Reader<'_, '_> {
    /// The member of `XNodeUnion` with this number.
    fn kind(&self, tag: u8) -> Result<Option<NodeKind>, Error> {
        use BinaryKind as B;
        use UnaryKind as U;
        Ok(Some(match tag {
            1 => self.binary(B::Add)?,
            2 => self.fully_connected()?,
            3 => self.unary(U::Softmax)?,
            4 => self.unary(U::Sigmoid)?,
            5 => NodeKind::Transpose {
                perm: numbers(&self.table, Field(1, "perm"))?,
                input: self.id(2)?,
                output: self.id(3)?,
            },
            6 => self.unary(U::Clamp)?,
            7 => NodeKind::Conv(self.conv(ConvKind::Plain)?),
            8 => self.binary(B::Divide)?,
            9 => self.resize()?,
            10 => NodeKind::Pad {
                before: numbers(&self.table, Field(0, "pre_paddings"))?,
                after: numbers(&self.table, Field(1, "post_paddings"))?,
                value: self.table.f32(Field(2, "padding_value"))?,
                input: self.id(3)?,
                output: self.id(4)?,
            },
            11 => NodeKind::AvgPool(self.pool()?),
            12 => self.binary(B::Minimum)?,
            13 => NodeKind::Conv(self.conv(ConvKind::Depthwise)?),
            14 => NodeKind::MaxPool(self.pool()?),
            15 => self.binary(B::Multiply)?,
            16 => self.binary(B::Subtract)?,
            17 => self.unary(U::Floor)?,
            18 => self.unary(U::Convert)?,
            19 => NodeKind::GlobalAvgPool {
                input: self.id(0)?,
                output: self.id(1)?,
                keep_dims: self.flags(2)? & KEEP_DIMS != 0,
            },
            20 => NodeKind::Reshape {
                shape: numbers(&self.table, Field(1, "new_shape"))?,
                input: self.id(2)?,
                output: self.id(3)?,
            },
            21 => self.arg_max_pool()?,
            22 => self.unary(U::SquareRoot)?,
            23 => self.unary(U::Ceiling)?,
            24 => self.unary(U::Hardswish)?,
            25 => self.scaled(|slope| U::LeakyRelu { slope })?,
            26 => self.binary(B::Maximum)?,
            27 => self.unary(U::Negate)?,
            28 => self.unary(U::Square)?,
            29 => self.scaled(|alpha| U::Elu { alpha })?,
            30 => self.unary(U::Abs)?,
            31 => self.binary(B::PRelu)?,
            32 => self.concatenate(&[1, 2])?,
            33 => self.concatenate(&[1, 2, 3])?,
            34 => self.concatenate(&[1, 2, 3, 4])?,
            35 => NodeKind::Slice {
                offsets: numbers(&self.table, Field(1, "offsets"))?,
                sizes: numbers(&self.table, Field(2, "sizes"))?,
                input: self.id(3)?,
                output: self.id(4)?,
            },
            36 => NodeKind::Attention {
                query: self.id(0)?,
                key: self.id(1)?,
                value: self.id(2)?,
                scale: self.id(3)?,
                mask: self.id(4)?,
                output: self.id(5)?,
            },
            37 => NodeKind::MatMul {
                a: self.id(0)?,
                b: self.id(1)?,
                output: self.id(2)?,
                transposed: self.flags(3)? & TRANSPOSED != 0,
            },
            38 => self.concatenate(&[1, 2, 3, 4, 7])?,
            39 => NodeKind::Conv(self.conv(ConvKind::Transposed)?),
            40 => self.unary(U::ReciprocalSquareRoot)?,
            41 => self.unary(U::Log)?,
            42 => self.unary(U::Gelu)?,
            43 => self.unary(U::Tanh)?,
            44 => self.unary(U::Exp)?,
            45 => self.unary(U::Sin)?,
            46 => self.unary(U::Copy)?,
            47 => self.unary(U::Cos)?,
            _ => return Ok(None),
        }))
    }

    fn id(&self, slot: u16) -> Result<u32, Error> {
        self.known.id(&self.table, Field(slot, "id"))
    }

    fn flags(&self, slot: u16) -> Result<u32, Error> {
        self.table.u32(Field(slot, "flags"))
    }

    fn number(&self, slot: u16, name: &'static str) -> Result<u64, Error> {
        self.table.u32(Field(slot, name)).map(u64::from)
    }

    fn binary(&self, kind: BinaryKind) -> Result<NodeKind, Error> {
        Ok(NodeKind::Binary {
            kind,
            a: self.id(0)?,
            b: self.id(1)?,
            output: self.id(2)?,
        })
    }

    fn unary(&self, kind: UnaryKind) -> Result<NodeKind, Error> {
        Ok(NodeKind::Unary {
            kind,
            input: self.id(0)?,
            output: self.id(1)?,
        })
    }

    /// A unary node with a number before its ids.
    fn scaled(&self, kind: impl FnOnce(f32) -> UnaryKind) -> Result<NodeKind, Error> {
        Ok(NodeKind::Unary {
            kind: kind(self.table.f32(Field(0, "alpha"))?),
            input: self.id(1)?,
            output: self.id(2)?,
        })
    }

    fn fully_connected(&self) -> Result<NodeKind, Error> {
        Ok(NodeKind::FullyConnected {
            input: self.id(0)?,
            filter: self.id(1)?,
            bias: self.known.optional(&self.table, Field(2, "bias_id"))?,
            output: self.id(3)?,
            transposed: self.flags(4)? & TRANSPOSED != 0,
        })
    }

    fn conv(&self, kind: ConvKind) -> Result<Conv, Error> {
        let number = |slot| self.number(slot, "number");
        let numbers = |first: u16| Ok::<_, Error>([number(first)?, number(first + 1)?]);
        Ok(Conv {
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
            bias: self.known.optional(&self.table, Field(17, "bias_id"))?,
            output: self.id(18)?,
            same_padding: self.flags(19)? & SAME_PADDING != 0,
        })
    }

    fn pool(&self) -> Result<Pool, Error> {
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

    fn arg_max_pool(&self) -> Result<NodeKind, Error> {
        let number = |slot| self.number(slot, "number");
        let size = [number(4)?, number(5)?];
        Ok(NodeKind::ArgMaxPool {
            pool: Pool {
                padding: [number(0)?, number(1)?, number(2)?, number(3)?],
                size,
                stride: size,
                dilation: [1, 1],
                input: self.id(6)?,
                output: self.id(7)?,
                same_padding: self.flags(9)? & SAME_PADDING != 0,
            },
            index: self.id(8)?,
        })
    }

    fn resize(&self) -> Result<NodeKind, Error> {
        let flags = self.flags(4)?;
        Ok(NodeKind::Resize {
            height: self.number(0, "new_height")?,
            width: self.number(1, "new_width")?,
            input: self.id(2)?,
            output: self.id(3)?,
            align_corners: flags & ALIGN_CORNERS != 0,
            legacy: flags & LEGACY != 0,
        })
    }

    fn concatenate(&self, slots: &[u16]) -> Result<NodeKind, Error> {
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
