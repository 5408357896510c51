//! The computations of XNNPACK graph nodes: one variant per kind in `XNodeUnion`, as `kinds` reads
//! them.
//!
//! Ids refer to the graph's values. The contents are unchecked file data: sizes and axes may have
//! any value.

/// A node: its computation, and the range that its result is clamped to.
#[derive(Debug, Clone, PartialEq)]
pub struct XnnpackNode {
    /// Its kind's name, as profiles show it.
    pub name: &'static str,
    /// Its computation.
    pub kind: NodeKind,
    /// Minimum and maximum value of the output.
    pub clamp: Option<(f32, f32)>,
    /// The node's number in the exporter's trace.
    pub debug_handle: u32,
}

/// The computation of a node. Images are `[n, h, w, c]`.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "the fields are ids of inputs and outputs, or have the schema's names"
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
        /// True if unknown flags are set.
        other_flags: bool,
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
        /// True if neither the corners nor the centres of pixels are aligned.
        legacy: bool,
    },
    Pad {
        before: Vec<u64>,
        after: Vec<u64>,
        value: f32,
        input: u32,
        output: u32,
    },
    AvgPool(PoolWindow),
    MaxPool(PoolWindow),
    /// Maximum value of a window, and its position in the window.
    ArgMaxPool {
        pool: PoolWindow,
        index: u32,
    },
    GlobalAvgPool {
        input: u32,
        output: u32,
        keep_dims: bool,
    },
    Reshape {
        /// 0 marks the size inferred from the others.
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
        /// 0 means up to the end.
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
    /// Matrix product over the last two dimensions.
    MatMul {
        a: u32,
        b: u32,
        output: u32,
        /// True if `b` is stored as `[.., n, k]`.
        transposed: bool,
        /// True if unknown flags are set.
        other_flags: bool,
    },
}

impl NodeKind {
    /// Returns the ids of the values that it reads.
    #[must_use]
    pub fn inputs(&self) -> Vec<u32> {
        match self {
            Self::Binary { a, b, .. } | Self::MatMul { a, b, .. } => vec![*a, *b],
            Self::Unary { input, .. }
            | Self::Transpose { input, .. }
            | Self::Resize { input, .. }
            | Self::Pad { input, .. }
            | Self::GlobalAvgPool { input, .. }
            | Self::Reshape { input, .. }
            | Self::Slice { input, .. } => vec![*input],
            Self::FullyConnected {
                input,
                filter,
                bias,
                ..
            }
            | Self::Conv(Conv {
                input,
                filter,
                bias,
                ..
            }) => [Some(*input), Some(*filter), *bias]
                .into_iter()
                .flatten()
                .collect(),
            Self::AvgPool(pool) | Self::MaxPool(pool) | Self::ArgMaxPool { pool, .. } => {
                vec![pool.input]
            }
            Self::Concatenate { inputs, .. } => inputs.clone(),
            Self::Attention {
                query,
                key,
                value,
                scale,
                mask,
                ..
            } => vec![*query, *key, *value, *scale, *mask],
        }
    }
}

/// Elementwise operation on two inputs, with broadcasting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants have XNNPACK's names")]
pub enum BinaryKind {
    Add,
    Subtract,
    Multiply,
    Divide,
    Minimum,
    Maximum,
    PRelu,
}

/// Elementwise operation on one input, or softmax over the last dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the variants have XNNPACK's names")]
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
#[expect(missing_docs, reason = "the fields have the schema's names")]
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
    /// Additional output size of a transposed convolution.
    pub adjustment: [u64; 2],
    pub input: u32,
    pub filter: u32,
    pub bias: Option<u32>,
    pub output: u32,
    /// True if the padding follows from the sizes instead.
    pub same_padding: bool,
}

/// A pooling. Pairs are height, width.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields have the schema's names")]
pub struct PoolWindow {
    /// Top, right, bottom, left.
    pub padding: [u64; 4],
    pub size: [u64; 2],
    pub stride: [u64; 2],
    pub dilation: [u64; 2],
    pub input: u32,
    pub output: u32,
    /// True if the padding follows from the sizes instead.
    pub same_padding: bool,
}
