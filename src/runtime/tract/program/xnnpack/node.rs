//! What each kind of node computes.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::{Pad, PadMode};
use tract_onnx::tract_core::ops::binary::BinMiniOp;
use tract_onnx::tract_core::ops::math;
use tract_onnx::tract_core::ops::nn::gelu_exact::gelu_exact;
use tract_onnx::tract_core::ops::nn::{Softmax, SoftmaxKind, hard_swish, leaky_relu, sigmoid};

use super::super::operators::einsum;
use super::super::pointwise::Pointwise;
use super::super::resize::{Sampling, resize};
use super::{Lowering, grid};
use crate::model::executorch::body::xnnpack::{BinaryKind, Node, NodeKind, UnaryKind};
use crate::runtime::DType;

/// A node's name.
pub(super) fn name(kind: &NodeKind) -> &'static str {
    match kind {
        NodeKind::Binary { kind, .. } => match kind {
            BinaryKind::Add => "XNNAdd",
            BinaryKind::Subtract => "XNNSubtract",
            BinaryKind::Multiply => "XNNMultiply",
            BinaryKind::Divide => "XNNDiv",
            BinaryKind::Minimum => "XNNMinimum",
            BinaryKind::Maximum => "XNNMaximum",
            BinaryKind::PRelu => "XNNPReLU",
        },
        NodeKind::Unary { kind, .. } => unary_name(*kind),
        NodeKind::FullyConnected { .. } => "XNNFullyConnected",
        NodeKind::Transpose { .. } => "XNNStaticTranspose",
        NodeKind::Conv(_) => "XNNConv2d",
        NodeKind::Resize { .. } => "XNNStaticResizeBilinear2D",
        NodeKind::Pad { .. } => "XNNStaticConstantPad",
        NodeKind::AvgPool(_) => "XNNAvgPooling2d",
        NodeKind::MaxPool(_) => "XNNMaxPooling2d",
        NodeKind::ArgMaxPool { .. } => "XNNArgMaxPooling2d",
        NodeKind::GlobalAvgPool { .. } => "XNNGlobalAvgPooling2d",
        NodeKind::Reshape { .. } => "XNNStaticReshape",
        NodeKind::Concatenate { .. } => "XNNConcatenate",
        NodeKind::Slice { .. } => "XNNStaticSlice",
        NodeKind::Attention { .. } => "XNNScaledDotProductAttention",
        NodeKind::MatMul { .. } => "XNNBatchMatrixMultiply",
    }
}

fn unary_name(kind: UnaryKind) -> &'static str {
    match kind {
        UnaryKind::Softmax => "XNNSoftmax",
        UnaryKind::Sigmoid => "XNNSigmoid",
        UnaryKind::Clamp => "XNNClamp",
        UnaryKind::Floor => "XNNFloor",
        UnaryKind::Convert => "XNNConvert",
        UnaryKind::SquareRoot => "XNNSquareRoot",
        UnaryKind::Ceiling => "XNNCeiling",
        UnaryKind::Hardswish => "XNNHardswish",
        UnaryKind::Negate => "XNNNegate",
        UnaryKind::Square => "XNNSquare",
        UnaryKind::Abs => "XNNAbs",
        UnaryKind::ReciprocalSquareRoot => "XNNReciprocalSquareRoot",
        UnaryKind::Log => "XNNLog",
        UnaryKind::Gelu => "XNNGelu",
        UnaryKind::Tanh => "XNNTanh",
        UnaryKind::Exp => "XNNExp",
        UnaryKind::Sin => "XNNSin",
        UnaryKind::Cos => "XNNCos",
        UnaryKind::Copy => "XNNCopy",
        UnaryKind::LeakyRelu { .. } => "XNNLeakyReLU",
        UnaryKind::Elu { .. } => "XNNELU",
    }
}

impl Lowering<'_> {
    /// Lowers a node and writes its outputs.
    #[expect(clippy::too_many_lines, reason = "a line or two for each kind of node")]
    pub(super) fn node(&mut self, node: &Node) -> TractResult<()> {
        let (outlet, output) = match &node.kind {
            NodeKind::Binary { kind, a, b, output } => (self.binary(*kind, *a, *b)?, *output),
            NodeKind::Unary {
                kind,
                input,
                output,
            } => (self.unary(*kind, *input)?, *output),
            NodeKind::FullyConnected {
                input,
                filter,
                bias,
                output,
                transposed,
            } => (self.linear(*input, *filter, *bias, *transposed)?, *output),
            NodeKind::Transpose {
                perm,
                input,
                output,
            } => {
                let order: Vec<usize> = perm
                    .iter()
                    .map(|dim| Ok(usize::try_from(*dim)?))
                    .collect::<TractResult<_>>()?;
                let input_wire = self.input(*input)?;
                let outlet = self.builder.transpose(input_wire, &order)?;
                return self.moved(*input, *output, outlet, node.clamp);
            }
            NodeKind::Conv(conv) => (self.conv(conv)?, conv.output),
            NodeKind::Resize {
                height,
                width,
                input,
                output,
                align_corners,
                legacy,
            } => {
                let sampling = match (align_corners, legacy) {
                    (true, _) => Sampling::Corners,
                    (_, true) => Sampling::Beginnings,
                    _ => Sampling::Centres { factor: None },
                };
                let input = self.input(*input)?;
                let sizes = [
                    i64::try_from(*height)?.to_dim(),
                    i64::try_from(*width)?.to_dim(),
                ];
                (
                    resize(self.builder, input, 1, &sizes, [sampling; 2])?,
                    *output,
                )
            }
            NodeKind::Pad {
                before,
                after,
                value,
                input,
                output,
            } => (self.pad(*input, before, after, *value)?, *output),
            NodeKind::AvgPool(pool) => (self.average_pool(pool)?, pool.output),
            NodeKind::MaxPool(pool) => {
                let outlet = self.max_pool(pool)?;
                return self.moved(pool.input, pool.output, outlet, node.clamp);
            }
            NodeKind::ArgMaxPool { pool, index } => {
                let [most, places] = self.arg_max_pool(pool)?;
                self.output(*index, places, None)?;
                (most, pool.output)
            }
            NodeKind::GlobalAvgPool {
                input,
                output,
                keep_dims,
            } => (self.global_average(*input, *keep_dims)?, *output),
            NodeKind::Reshape {
                shape,
                input,
                output,
            } => {
                let outlet = self.reshape(*input, shape)?;
                return self.moved(*input, *output, outlet, node.clamp);
            }
            NodeKind::Concatenate {
                axis,
                inputs,
                output,
            } => (self.concatenate(*axis, inputs)?, *output),
            NodeKind::Slice {
                offsets,
                sizes,
                input,
                output,
            } => {
                let outlet = self.slice(*input, offsets, sizes)?;
                return self.moved(*input, *output, outlet, node.clamp);
            }
            NodeKind::Attention {
                query,
                key,
                value,
                scale,
                mask,
                output,
            } => (
                self.attention([*query, *key, *value], *scale, *mask)?,
                *output,
            ),
            NodeKind::MatMul {
                a,
                b,
                output,
                transposed,
            } => (self.product(*a, *b, *transposed)?, *output),
        };
        self.output(output, outlet, node.clamp)
    }

    /// Writes a value that only moved: if it stays on its grid nothing is to be rounded.
    fn moved(
        &mut self,
        input: u32,
        output: u32,
        outlet: OutletId,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<()> {
        let (from, to) = (self.value(input), self.value(output));
        let limited = clamp.is_some_and(|(least, most)| least > f32::MIN || most < f32::MAX);
        let same = from.datatype == to.datatype && grid(from)? == grid(to)?;
        if same && !limited {
            self.wires.insert(output, outlet);
            return Ok(());
        }
        self.output(output, outlet, clamp)
    }

    fn binary(&mut self, kind: BinaryKind, a: u32, b: u32) -> TractResult<OutletId> {
        let (a, b) = (self.input(a)?, self.input(b)?);
        let op: Box<dyn BinMiniOp> = match kind {
            BinaryKind::Add => Box::new(math::Add),
            BinaryKind::Subtract => Box::new(math::Sub),
            BinaryKind::Multiply => Box::new(math::Mul),
            BinaryKind::Divide => Box::new(math::Div),
            BinaryKind::Minimum => Box::new(math::Min),
            BinaryKind::Maximum => Box::new(math::Max),
            BinaryKind::PRelu => {
                let rank = self.builder.rank(a)?;
                let zero = self.builder.float(0.0, rank)?;
                let positive = self.builder.binary(Box::new(math::Max), a, zero)?;
                let negative = self.builder.binary(Box::new(math::Min), a, zero)?;
                let scaled = self.builder.binary(Box::new(math::Mul), negative, b)?;
                return self.builder.binary(Box::new(math::Add), positive, scaled);
            }
        };
        self.builder.binary(op, a, b)
    }

    fn unary(&mut self, kind: UnaryKind, input: u32) -> TractResult<OutletId> {
        let input = self.input(input)?;
        let op = match kind {
            UnaryKind::Clamp | UnaryKind::Convert | UnaryKind::Copy => return Ok(input),
            UnaryKind::Softmax => {
                let rank = self.builder.rank(input)?;
                ensure!(rank > 0, "softmax of one number");
                let op = Softmax {
                    axes: tvec!(rank - 1),
                    quant_output_dt: None,
                    kind: SoftmaxKind::Softmax,
                };
                return self.builder.wire(op, &[input]);
            }
            UnaryKind::Square => return self.builder.binary(Box::new(math::Mul), input, input),
            UnaryKind::Sigmoid => sigmoid(),
            UnaryKind::Floor => math::floor(),
            UnaryKind::SquareRoot => math::sqrt(),
            UnaryKind::Ceiling => math::ceil(),
            UnaryKind::Hardswish => hard_swish(),
            UnaryKind::Negate => math::neg(),
            UnaryKind::Abs => math::abs(),
            UnaryKind::ReciprocalSquareRoot => math::rsqrt(),
            UnaryKind::Log => math::ln(),
            UnaryKind::Gelu => gelu_exact(),
            UnaryKind::Tanh => Pointwise::Tanh.op(),
            UnaryKind::Exp => math::exp(),
            UnaryKind::Sin => math::sin(),
            UnaryKind::Cos => math::cos(),
            UnaryKind::LeakyRelu { slope } => leaky_relu(slope),
            UnaryKind::Elu { alpha } => Pointwise::Elu { alpha }.op(),
        };
        self.builder.unary(op, input)
    }

    fn linear(
        &mut self,
        input: u32,
        filter: u32,
        bias: Option<u32>,
        transposed: bool,
    ) -> TractResult<OutletId> {
        let (input, filter) = (self.input(input)?, self.input(filter)?);
        let rank = self.builder.rank(input)?;
        ensure!((1..=6).contains(&rank), "a product of {rank} dimensions");
        ensure!(
            self.builder.rank(filter)? == 2,
            "a filter that is no matrix"
        );
        let lead = &"abcdef"[..rank - 1];
        let stored = if transposed { "kn" } else { "nk" };
        let formula = format!("{lead}k,{stored}->{lead}n");
        let outlet = einsum(self.builder, &formula, &[input, filter], DType::Float32)?;
        let Some(bias) = bias else { return Ok(outlet) };
        let bias = self.input(bias)?;
        self.builder.binary(Box::new(math::Add), outlet, bias)
    }

    fn product(&mut self, a: u32, b: u32, transposed: bool) -> TractResult<OutletId> {
        let (a, b) = (self.input(a)?, self.input(b)?);
        let [a, b] = self.builder.same_rank([a, b])?;
        let rank = self.builder.rank(a)?;
        ensure!((2..=7).contains(&rank), "a product of {rank} dimensions");
        let lead = &"abcde"[..rank - 2];
        let second = if transposed { "nk" } else { "kn" };
        let formula = format!("{lead}mk,{lead}{second}->{lead}mn");
        einsum(self.builder, &formula, &[a, b], DType::Float32)
    }

    fn attention(
        &mut self,
        [query, key, value]: [u32; 3],
        scale: u32,
        mask: u32,
    ) -> TractResult<OutletId> {
        let (query, key, value) = (self.input(query)?, self.input(key)?, self.input(value)?);
        let (scale, mask) = (self.input(scale)?, self.input(mask)?);
        ensure!(
            self.builder.rank(query)? == 4,
            "attention that is not by batch and head"
        );
        let scaled = self.builder.binary(Box::new(math::Mul), query, scale)?;
        let scores = einsum(
            self.builder,
            "bhmk,bhnk->bhmn",
            &[scaled, key],
            DType::Float32,
        )?;
        let scores = self.builder.binary(Box::new(math::Add), scores, mask)?;
        let op = Softmax {
            axes: tvec!(3),
            quant_output_dt: None,
            kind: SoftmaxKind::Softmax,
        };
        let shares = self.builder.wire(op, &[scores])?;
        einsum(
            self.builder,
            "bhmn,bhnv->bhmv",
            &[shares, value],
            DType::Float32,
        )
    }

    fn pad(
        &mut self,
        input: u32,
        before: &[u64],
        after: &[u64],
        value: f32,
    ) -> TractResult<OutletId> {
        let input = self.input(input)?;
        let rank = self.builder.rank(input)?;
        ensure!(
            before.len() == rank && after.len() == rank,
            "paddings of another rank"
        );
        let pads = before.iter().zip(after);
        let pads =
            pads.map(|(before, after)| Ok((usize::try_from(*before)?, usize::try_from(*after)?)));
        let op = Pad {
            pads: pads.collect::<TractResult<_>>()?,
            mode: PadMode::Constant(Arc::new(tensor0(value))),
        };
        self.builder.wire(op, &[input])
    }

    /// A size 0 is what is left; a size that was the whole dimension at export is so now.
    fn reshape(&mut self, input: u32, sizes: &[u64]) -> TractResult<OutletId> {
        let outlet = self.input(input)?;
        let from = self.builder.shape(outlet)?;
        let mut shape: Vec<TDim> = Vec::new();
        let mut open = None;
        for (at, size) in sizes.iter().enumerate() {
            if *size == 0 {
                ensure!(open.is_none(), "two open sizes in {sizes:?}");
                open = Some(at);
            }
            shape.push(i64::try_from(*size)?.to_dim());
        }
        let all = from.iter().cloned().product::<TDim>().reduce();
        if let Some(open) = open {
            shape[open] = TDim::Val(1);
            let rest = shape.iter().cloned().product::<TDim>().reduce();
            let (quotient, divisor) = all.maybe_div(&rest)?;
            ensure!(divisor == 1, "{all} elements do not fill {sizes:?}");
            shape[open] = quotient;
        }
        self.builder.reshape(outlet, &shape)
    }

    fn concatenate(&mut self, axis: i64, inputs: &[u32]) -> TractResult<OutletId> {
        let mut outlets = Vec::new();
        for input in inputs {
            outlets.push(self.input(*input)?);
        }
        let rank = i64::try_from(self.builder.rank(outlets[0])?)?;
        let axis = if axis < 0 { axis + rank } else { axis };
        ensure!((0..rank).contains(&axis), "dimension {axis} of {rank}");
        self.builder.concat(&outlets, usize::try_from(axis)?)
    }

    fn slice(&mut self, input: u32, offsets: &[u64], sizes: &[u64]) -> TractResult<OutletId> {
        let exported = self.value(input).dims.clone();
        let mut outlet = self.input(input)?;
        let shape = self.builder.shape(outlet)?;
        ensure!(
            offsets.len() == shape.len() && sizes.len() == shape.len(),
            "a slice of another rank"
        );
        for (axis, (&offset, &size)) in offsets.iter().zip(sizes).enumerate() {
            // The exporter writes bounds for dimensions that it leaves as they are.
            let whole = offset == 0 && exported.get(axis) == Some(&size);
            let start = i64::try_from(offset)?;
            let end = if size == 0 || whole {
                shape[axis].clone()
            } else {
                start
                    .checked_add(i64::try_from(size)?)
                    .context("a slice without end")?
                    .to_dim()
            };
            outlet = self.builder.slice(outlet, axis, start, end)?;
        }
        Ok(outlet)
    }
}
