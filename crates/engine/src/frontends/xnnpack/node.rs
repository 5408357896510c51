//! Lowers each kind of XNNPACK node.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::{Pad, PadMode};
use tract_onnx::tract_core::ops::binary::BinMiniOp;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::math;
use tract_onnx::tract_core::ops::nn::gelu_exact::gelu_exact;
use tract_onnx::tract_core::ops::nn::{Softmax, SoftmaxKind, hard_swish, leaky_relu, sigmoid};

use super::{Held, XnnpackLowering, grid};
use crate::graph::operators::einsum;
use crate::graph::pointwise::Pointwise;
use crate::graph::resize::{ResizeSampling, resize};
use crate::tensor::DType;
use pkgtool_model::executorch::xnnpack::{BinaryKind, NodeKind, UnaryKind, XnnpackNode};

impl XnnpackLowering<'_> {
    /// Lowers a node and writes its outputs.
    #[expect(clippy::too_many_lines, reason = "a line or two for each kind of node")]
    pub(super) fn node(&mut self, node: &XnnpackNode) -> TractResult<()> {
        if self.bytes_node(node)? {
            return Ok(());
        }
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
                ..
            } => {
                let operands = [self.input(*input)?, self.input(*filter)?];
                let bias = bias.map(|bias| self.input(bias)).transpose()?;
                (self.linear(operands, bias, *transposed)?, *output)
            }
            NodeKind::Transpose {
                perm,
                input,
                output,
            } => {
                let order: Vec<usize> = perm
                    .iter()
                    .map(|dim| Ok(usize::try_from(*dim)?))
                    .collect::<TractResult<_>>()?;
                return self.move_elements([*input, *output], node.clamp, |lowering, outlet| {
                    lowering.builder.transpose(outlet, &order)
                });
            }
            NodeKind::Conv(conv) => {
                let (input, filter) = (self.input(conv.input)?, self.input(conv.filter)?);
                let bias = conv.bias.map(|bias| self.input(bias)).transpose()?;
                (self.conv(conv, input, filter, bias)?, conv.output)
            }
            NodeKind::Resize {
                height,
                width,
                input,
                output,
                align_corners,
                legacy,
            } => {
                let sampling = match (align_corners, legacy) {
                    (true, _) => ResizeSampling::AlignedCorners,
                    (_, true) => ResizeSampling::AlignedStarts,
                    _ => ResizeSampling::AlignedCentres { factor: None },
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
                let input = self.input(pool.input)?;
                (self.max_pool(pool, input)?, pool.output)
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
                return self.move_elements([*input, *output], node.clamp, |lowering, outlet| {
                    lowering.reshape(outlet, shape)
                });
            }
            NodeKind::Concatenate {
                axis,
                inputs,
                output,
            } => {
                let outlets = inputs.iter().map(|input| self.input(*input));
                let outlets: Vec<OutletId> = outlets.collect::<TractResult<_>>()?;
                (self.concatenate(*axis, &outlets)?, *output)
            }
            NodeKind::Slice {
                offsets,
                sizes,
                input,
                output,
            } => {
                return self.move_elements([*input, *output], node.clamp, |lowering, outlet| {
                    lowering.slice(*input, outlet, offsets, sizes)
                });
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
                ..
            } => (self.product(*a, *b, *transposed)?, *output),
        };
        self.output(output, outlet, node.clamp)
    }

    /// Lowers a node on bytes or integers, if its kind supports that. Returns whether it did.
    fn bytes_node(&mut self, node: &XnnpackNode) -> TractResult<bool> {
        match &node.kind {
            NodeKind::Binary { kind, a, b, output } => {
                let values = [*a, *b, *output];
                Ok(self.bytes_binary(*kind, values, node.clamp)?
                    || self.tabled_pair(*kind, values, node.clamp)?)
            }
            NodeKind::GlobalAvgPool {
                input,
                output,
                keep_dims,
            } => self.bytes_average([*input, *output], *keep_dims, node.clamp),
            NodeKind::Unary {
                kind,
                input,
                output,
            } => {
                let is_moved = matches!(
                    kind,
                    UnaryKind::Clamp | UnaryKind::Copy | UnaryKind::Convert
                );
                let same = |_: &mut Self, outlet| Ok(outlet);
                Ok(
                    (is_moved && self.bytes_moved([*input, *output], node.clamp, same)?)
                        || self.tabled(*kind, [*input, *output], node.clamp)?,
                )
            }
            NodeKind::Concatenate {
                axis,
                inputs,
                output,
            } => self.bytes_concatenate(*axis, (inputs, *output), node.clamp),
            NodeKind::MaxPool(pool) => self.bytes_max_pool(pool, node.clamp),
            NodeKind::Pad {
                before,
                after,
                value,
                input,
                output,
            } => self.bytes_pad([*input, *output], (before, after), *value, node.clamp),
            NodeKind::Conv(conv) => {
                let values = [conv.input, conv.filter, conv.output];
                let product = |lowering: &mut Self, [input, filter]: [OutletId; 2], bias| {
                    lowering.conv(conv, input, filter, bias)
                };
                Ok(self.scaled_channels(conv, node.clamp)?
                    || self.bytes_conv(conv, node.clamp)?
                    || self.integer_product(values, conv.bias, node.clamp, product)?)
            }
            NodeKind::FullyConnected {
                input,
                filter,
                bias,
                output,
                transposed,
                ..
            } => {
                let values = [*input, *filter, *output];
                let product = |lowering: &mut Self, operands, bias| {
                    lowering.linear(operands, bias, *transposed)
                };
                Ok(self.packed(values, *bias, *transposed, node.clamp)?
                    || self.bytes_product(values, *bias, *transposed, node.clamp)?
                    || self.integer_product(values, *bias, node.clamp, product)?)
            }
            _ => Ok(false),
        }
    }

    /// Lowers a product with quantised weights. `product` combines input, filter and bias, all as
    /// integers.
    fn integer_product(
        &mut self,
        [input, filter, output]: [u32; 3],
        bias: Option<u32>,
        clamp: Option<(f32, f32)>,
        product: impl Fn(&mut Self, [OutletId; 2], Option<OutletId>) -> TractResult<OutletId>,
    ) -> TractResult<bool> {
        match self.held.get(&input).copied() {
            Some(Held::Bytes(_)) => {
                let (Some((whole, from)), Some(to)) =
                    (self.as_integers(input)?, grid(self.value(output))?)
                else {
                    return Ok(false);
                };
                let Some(weights) = self.weights_as_integers(filter)? else {
                    return Ok(false);
                };
                let bias = match bias {
                    None => None,
                    Some(bias) => match self.weights_as_integers(bias)? {
                        Some(bias) => Some(bias.outlet),
                        None => return Ok(false),
                    },
                };
                let outlet = product(self, [whole, weights.outlet], bias)?;
                let factors = weights.scales.iter();
                let factors = factors.map(|scale| from.scale * scale / to.scale);
                let factors: Vec<f32> = factors.collect();
                self.write_scaled(output, outlet, &factors, clamp)?;
                Ok(true)
            }
            Some(Held::Rows { whole, steps, .. }) => {
                let (weights, scales) = match self.weights_as_integers(filter)? {
                    Some(weights) => (weights.outlet, Some(weights.scales)),
                    // Scales of groups are already applied to the weights.
                    None => (self.input(filter)?, None),
                };
                let sums = product(self, [whole, weights], None)?;
                let mut outlet = self.builder.binary(Box::new(math::Mul), sums, steps)?;
                if let Some(scales) = scales {
                    let scales = Arc::new(tensor1(&scales));
                    let scales = self.builder.constant(scales, DType::Float32)?.outlet;
                    outlet = self.builder.binary(Box::new(math::Mul), outlet, scales)?;
                }
                if let Some(bias) = bias {
                    let bias = self.input(bias)?;
                    outlet = self.builder.binary(Box::new(math::Add), outlet, bias)?;
                }
                self.output(output, outlet, clamp)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Lowers a node that only moves elements.
    fn move_elements(
        &mut self,
        [input, output]: [u32; 2],
        clamp: Option<(f32, f32)>,
        how: impl Fn(&mut Self, OutletId) -> TractResult<OutletId>,
    ) -> TractResult<()> {
        if self.bytes_moved([input, output], clamp, &how)? {
            return Ok(());
        }
        let real = self.input(input)?;
        let outlet = how(self, real)?;
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
                ensure!(rank > 0, "softmax of a tensor without dimensions");
                let op = Softmax {
                    axes: tvec!(rank - 1),
                    quant_output_dt: None,
                    kind: SoftmaxKind::Softmax,
                };
                return self.builder.wire(op, &[input]);
            }
            UnaryKind::Square => return self.builder.binary(Box::new(math::Mul), input, input),
            other => match function(other) {
                Some(op) => op,
                None => bail!("unsupported function: {other:?}"),
            },
        };
        self.builder.unary(op, input)
    }

    fn linear(
        &mut self,
        [input, filter]: [OutletId; 2],
        bias: Option<OutletId>,
        transposed: bool,
    ) -> TractResult<OutletId> {
        let rank = self.builder.rank(input)?;
        ensure!(
            (1..=6).contains(&rank),
            "invalid rank of a fully connected layer's input: expected 1 to 6, got {rank}"
        );
        ensure!(
            self.builder.rank(filter)? == 2,
            "the filter of a fully connected layer is not a matrix"
        );
        let lead = &"abcdef"[..rank - 1];
        let stored = if transposed { "kn" } else { "nk" };
        let formula = format!("{lead}k,{stored}->{lead}n");
        let outlet = einsum(self.builder, &formula, &[input, filter], DType::Float32)?;
        let Some(bias) = bias else { return Ok(outlet) };
        self.builder.binary(Box::new(math::Add), outlet, bias)
    }

    fn product(&mut self, a: u32, b: u32, transposed: bool) -> TractResult<OutletId> {
        let (a, b) = (self.input(a)?, self.input(b)?);
        let [a, b] = self.builder.same_rank([a, b])?;
        let rank = self.builder.rank(a)?;
        ensure!(
            (2..=7).contains(&rank),
            "invalid rank of a matrix product: expected 2 to 7, got {rank}"
        );
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
            "invalid rank of an attention query: expected 4"
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
        let op = Pad {
            pads: self.pads(input, before, after)?,
            mode: PadMode::Constant(Arc::new(tensor0(value))),
        };
        self.builder.wire(op, &[input])
    }

    /// Returns the padding before and after each dimension of a value.
    pub(super) fn pads(
        &self,
        outlet: OutletId,
        before: &[u64],
        after: &[u64],
    ) -> TractResult<Vec<(usize, usize)>> {
        let rank = self.builder.rank(outlet)?;
        ensure!(
            before.len() == rank && after.len() == rank,
            "ranks of the paddings and the tensor differ"
        );
        let pads = before.iter().zip(after);
        pads.map(|(before, after)| Ok((usize::try_from(*before)?, usize::try_from(*after)?)))
            .collect()
    }

    /// Reshapes a value. A size of 0 is inferred; a size equal to a whole dimension at export takes
    /// its current size.
    fn reshape(&mut self, outlet: OutletId, sizes: &[u64]) -> TractResult<OutletId> {
        let from = self.builder.shape(outlet)?;
        let mut shape: Vec<TDim> = Vec::new();
        let mut open = None;
        for (at, size) in sizes.iter().enumerate() {
            if *size == 0 {
                ensure!(open.is_none(), "more than one size to infer in {sizes:?}");
                open = Some(at);
            }
            shape.push(i64::try_from(*size)?.to_dim());
        }
        let all = from.iter().cloned().product::<TDim>().reduce();
        if let Some(open) = open {
            shape[open] = TDim::Val(1);
            let rest = shape.iter().cloned().product::<TDim>().reduce();
            let (quotient, divisor) = all.maybe_div(&rest)?;
            ensure!(divisor == 1, "cannot reshape {all} elements to {sizes:?}");
            shape[open] = quotient;
        }
        self.builder.reshape(outlet, &shape)
    }

    /// Concatenates values along a dimension.
    pub(super) fn concatenate(&mut self, axis: i64, outlets: &[OutletId]) -> TractResult<OutletId> {
        ensure!(!outlets.is_empty(), "no tensors to concatenate");
        let rank = i64::try_from(self.builder.rank(outlets[0])?)?;
        let axis = if axis < 0 { axis + rank } else { axis };
        ensure!(
            (0..rank).contains(&axis),
            "dimension {axis} is out of range for rank {rank}"
        );
        self.builder.concat(outlets, usize::try_from(axis)?)
    }

    fn slice(
        &mut self,
        input: u32,
        outlet: OutletId,
        offsets: &[u64],
        sizes: &[u64],
    ) -> TractResult<OutletId> {
        let exported = self.value(input).dims.clone();
        let mut outlet = outlet;
        let shape = self.builder.shape(outlet)?;
        ensure!(
            offsets.len() == shape.len() && sizes.len() == shape.len(),
            "ranks of the slice and the tensor differ"
        );
        for (axis, (&offset, &size)) in offsets.iter().zip(sizes).enumerate() {
            // For dimensions that are not sliced, the exporter writes their bounds.
            let whole = offset == 0 && exported.get(axis) == Some(&size);
            let start = i64::try_from(offset)?;
            let end = if size == 0 || whole {
                shape[axis].clone()
            } else {
                start
                    .checked_add(i64::try_from(size)?)
                    .context("end of a slice overflows")?
                    .to_dim()
            };
            outlet = self.builder.slice(outlet, axis, start, end)?;
        }
        Ok(outlet)
    }
}

/// Returns the operator of an elementwise function with one operator.
pub(super) fn function(kind: UnaryKind) -> Option<ElementWiseOp> {
    Some(match kind {
        UnaryKind::Clamp
        | UnaryKind::Convert
        | UnaryKind::Copy
        | UnaryKind::Softmax
        | UnaryKind::Square => return None,
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
    })
}
