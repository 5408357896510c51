//! Fuses MLX convolutions with the steps around them.
//!
//! MLX's exporter moves channels to the end before each convolution and back after it. It also
//! leaves biases and normalisation as separate arithmetic. Here permutations that cancel each other
//! are removed, and arithmetic with constants becomes part of the kernel. This applies only to
//! float32 values without rounding in between.

use std::collections::HashMap;

use tract_onnx::tract_core::internal::*;

use super::MlxLowering;
use crate::Rounding;
use crate::graph::builder::{Builder, Wire};
use crate::graph::calling::CallArg;
use crate::tensor::DType;

/// Maximum number of elements of a constant with one element for each channel.
const MAX_CHANNEL_ELEMENTS: usize = 1 << 16;
/// Maximum depth of constant folding.
const MAX_DEPTH: usize = 32;

/// Permutations and convolutions so far, which later steps may fuse with.
#[derive(Default)]
pub(super) struct FusionState {
    /// For each permuted value, the original value and the order of its dimensions.
    moved: HashMap<OutletId, (OutletId, Vec<usize>)>,
    convolved: HashMap<OutletId, FusedConvolution>,
}

/// A convolution whose result is scaled and shifted by channel.
#[derive(Clone)]
struct FusedConvolution {
    /// The input, with channels first.
    input: Wire,
    /// The kernel, before and after scaling.
    kernel: Arc<Tensor>,
    scaled: Wire,
    /// Stride, padding and the other arguments after the bias.
    rest: Vec<CallArg>,
    scale: Vec<f32>,
    shift: Vec<f32>,
    /// The order of dimensions that turns the convolution's result into the value in the graph.
    order: Vec<usize>,
}

/// An arithmetic step with two operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinedArithmetic {
    Add,
    Subtract,
    Multiply,
}

impl MlxLowering<'_, '_> {
    /// Permutes the dimensions of a value. Permutations that cancel each other return the original
    /// value.
    pub(super) fn permute(&mut self, wire: Wire, order: &[usize]) -> TractResult<Wire> {
        let known = self.joined.moved.get(&wire.outlet).cloned();
        let (from, order) = match known.filter(|(_, first)| first.len() == order.len()) {
            Some((from, first)) => {
                let second = order.iter().map(|axis| first.get(*axis).copied());
                let both: Option<Vec<usize>> = second.collect();
                (from, both.context("invalid permutation of dimensions")?)
            }
            None => (wire.outlet, order.to_vec()),
        };
        if order.iter().copied().eq(0..order.len()) {
            let rank = self.frame.builder.rank(from)?;
            ensure!(
                rank == order.len(),
                "the rank of the permutation does not match: {} dimensions",
                order.len()
            );
            return Ok(Wire {
                outlet: from,
                ..wire
            });
        }
        let outlet = self.frame.builder.transpose(from, &order)?;
        let convolved = self.joined.convolved.get(&from).cloned();
        if let Some(convolved) = convolved.filter(|it| it.order.iter().copied().eq(0..order.len()))
        {
            let order = order.clone();
            let convolved = FusedConvolution { order, ..convolved };
            self.joined.convolved.insert(outlet, convolved);
        }
        self.joined.moved.insert(outlet, (from, order));
        Ok(Wire { outlet, ..wire })
    }

    /// Permutes the dimensions of a kernel; a constant stays a constant.
    pub(super) fn permute_kernel(&mut self, wire: Wire, order: &[usize]) -> TractResult<Wire> {
        let builder = &mut self.frame.builder;
        match builder.constant_value(wire.outlet)? {
            Some(value) => {
                let value = Tensor::clone(&value).permute_axes(order)?;
                builder.constant(Arc::new(value), wire.dtype)
            }
            None => self.permute(wire, order),
        }
    }

    /// Adds a convolution with channels first, which later arithmetic may fuse with.
    pub(super) fn add_convolution(
        &mut self,
        input: Wire,
        kernel: Wire,
        rest: Vec<CallArg>,
    ) -> TractResult<Wire> {
        let mut args = vec![input.into(), kernel.into(), CallArg::None];
        args.extend(rest.iter().cloned());
        let wire = self.aten("aten::convolution.out", args, input.dtype)?;
        let shape = self.shape(wire)?;
        let channels = shape.get(1).and_then(|size| size.to_usize().ok());
        let is_exact = input.dtype == DType::Float32 && kernel.dtype == DType::Float32;
        let known = self.frame.builder.constant_value(kernel.outlet)?;
        let known = known.filter(|_| is_exact && self.rounding == Rounding::Wide);
        if let (Some(channels), Some(known)) = (channels, known) {
            let convolved = FusedConvolution {
                input,
                kernel: known,
                scaled: kernel,
                rest,
                scale: vec![1.0; channels],
                shift: vec![0.0; channels],
                order: (0..shape.len()).collect(),
            };
            self.joined.convolved.insert(wire.outlet, convolved);
        }
        Ok(wire)
    }

    /// Fuses arithmetic into the convolution that computed one operand, if the other one is a
    /// constant for each channel.
    /// each channel.
    pub(super) fn fuse_arithmetic(
        &mut self,
        step: JoinedArithmetic,
        a: Wire,
        b: Wire,
    ) -> TractResult<Option<Wire>> {
        if a.dtype != DType::Float32 || b.dtype != DType::Float32 {
            return Ok(None);
        }
        let of = |wire: Wire| self.joined.convolved.get(&wire.outlet).cloned();
        let (mut convolved, other, is_first) = match (of(a), of(b)) {
            (Some(convolved), None) => (convolved, b, true),
            (None, Some(convolved)) => (convolved, a, false),
            _ => return Ok(None),
        };
        let Some(values) = self.channel_values(other, &convolved)? else {
            return Ok(None);
        };
        let channels = convolved.scale.iter_mut().zip(&mut convolved.shift);
        for ((scale, shift), value) in channels.zip(values) {
            match step {
                JoinedArithmetic::Add => *shift += value,
                JoinedArithmetic::Subtract if is_first => *shift -= value,
                JoinedArithmetic::Subtract => (*scale, *shift) = (-*scale, value - *shift),
                JoinedArithmetic::Multiply => (*scale, *shift) = (*scale * value, *shift * value),
            }
        }
        if step == JoinedArithmetic::Multiply || (step == JoinedArithmetic::Subtract && !is_first) {
            convolved.scaled = self.scaled_kernel(&convolved)?;
        }
        let outlet = self.add_fused_convolution(&convolved)?;
        let plain: Vec<usize> = (0..convolved.order.len()).collect();
        let order = std::mem::replace(&mut convolved.order, plain);
        self.joined.convolved.insert(outlet, convolved);
        let dtype = DType::Float32;
        self.permute(Wire { outlet, dtype }, &order).map(Some)
    }

    /// Returns the single number of a float32 constant.
    pub(super) fn one_number(&self, wire: Wire) -> TractResult<Option<f64>> {
        let value = evaluate_constant(&self.frame.builder, wire.outlet, MAX_DEPTH)?;
        let value =
            value.filter(|value| value.len() == 1 && value.datum_type() == f32::datum_type());
        let Some(value) = value else { return Ok(None) };
        let values = value.try_as_plain_ram()?;
        Ok(values
            .as_slice::<f32>()?
            .first()
            .map(|value| f64::from(*value)))
    }

    /// Returns a constant's values for each channel, or `None` if it has another form.
    fn channel_values(&self, wire: Wire, of: &FusedConvolution) -> TractResult<Option<Vec<f32>>> {
        let builder = &self.frame.builder;
        let channels = of.scale.len();
        let rank = of.order.len();
        let axis = of.order.iter().position(|axis| *axis == 1);
        let Some(value) = evaluate_constant(builder, wire.outlet, MAX_DEPTH)? else {
            return Ok(None);
        };
        let shape = value.shape();
        let missing = rank.checked_sub(shape.len());
        let (Some(axis), Some(missing)) = (axis, missing) else {
            return Ok(None);
        };
        let fits = shape
            .iter()
            .enumerate()
            .all(|(place, size)| *size == 1 || (place + missing == axis && *size == channels));
        if !fits || value.datum_type() != f32::datum_type() {
            return Ok(None);
        }
        let values = value.try_as_plain_ram()?;
        let values = values.as_slice::<f32>()?;
        Ok(Some(match values {
            [one] => vec![*one; channels],
            all => all.to_vec(),
        }))
    }

    /// Returns the scaled kernel.
    fn scaled_kernel(&mut self, convolved: &FusedConvolution) -> TractResult<Wire> {
        let FusedConvolution { kernel, scale, .. } = convolved;
        let mut scaled = Tensor::clone(kernel);
        let each = scaled.len() / scale.len().max(1);
        let mut values = scaled.try_as_plain_ram_mut()?;
        let values = values.as_slice_mut::<f32>()?;
        for (part, factor) in values.chunks_mut(each.max(1)).zip(scale) {
            for value in part {
                *value *= factor;
            }
        }
        let builder = &mut self.frame.builder;
        builder.constant(Arc::new(scaled), DType::Float32)
    }

    /// Adds the convolution with its current scale and shift, with channels first.
    fn add_fused_convolution(&mut self, convolved: &FusedConvolution) -> TractResult<OutletId> {
        let shift = &convolved.shift;
        let bias = Tensor::from_shape(&[shift.len()], shift)?;
        let builder = &mut self.frame.builder;
        let bias = builder.constant(Arc::new(bias), DType::Float32)?;
        let (input, kernel) = (convolved.input, convolved.scaled);
        let mut args = vec![input.into(), kernel.into(), bias.into()];
        args.extend(convolved.rest.iter().cloned());
        let wire = self.aten("aten::convolution.out", args, DType::Float32)?;
        Ok(wire.outlet)
    }
}

/// Evaluates a small value that depends only on constants.
fn evaluate_constant(
    builder: &Builder,
    outlet: OutletId,
    depth: usize,
) -> TractResult<Option<Arc<Tensor>>> {
    let fact = builder.model.outlet_fact(outlet)?;
    let elements = fact
        .shape
        .as_concrete()
        .map(|sizes| sizes.iter().product::<usize>());
    if depth == 0 || elements.is_none_or(|elements| elements > MAX_CHANNEL_ELEMENTS) {
        return Ok(None);
    }
    if let Some(value) = &fact.konst {
        return Ok(Some(Arc::clone(value)));
    }
    let node = builder.model.node(outlet.node);
    if node.inputs.is_empty() {
        return Ok(None);
    }
    let mut inputs = TVec::new();
    for input in &node.inputs {
        match evaluate_constant(builder, *input, depth - 1)? {
            Some(value) => inputs.push(value.into_tvalue()),
            None => return Ok(None),
        }
    }
    let given = node.op.eval_out_of_plan(inputs)?;
    let given = given
        .and_then(|mut given| (outlet.slot < given.len()).then(|| given.swap_remove(outlet.slot)));
    Ok(given.map(IntoArcTensor::into_arc_tensor))
}
