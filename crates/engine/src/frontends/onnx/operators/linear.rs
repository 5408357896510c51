//! `QuantizeLinear` and `DequantizeLinear` in all forms: one scale, one for each position of an
//! axis, or one for each block of an axis; stored or computed.

use std::sync::Arc;

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::{FLOAT, FLOAT16, INT8, INT16, UINT8, UINT16, integer};
use super::super::narrow::NarrowType;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, axis_of, operator,
};
use crate::graph::kernel::Kernel;

/// Builds a `DequantizeLinear`.
pub(super) fn build_dequantization(_: &ParsingContext, node: &NodeProto) -> Built {
    let to = match i32::try_from(integer(node, "output_dtype", 0))? {
        0 => None,
        FLOAT => Some(DatumType::F32),
        FLOAT16 => Some(DatumType::F16),
        code => bail!("numbers of the element type {code} are not supported"),
    };
    let scales = ScaleLayout::of(node)?;
    operator(
        "DequantizeLinear",
        None,
        LinearDequantization { scales, to },
    )
}

/// Builds a `QuantizeLinear`.
pub(super) fn build_quantization(_: &ParsingContext, node: &NodeProto) -> Built {
    let steps = match i32::try_from(integer(node, "output_dtype", 0))? {
        0 => None,
        code => Some(QuantisedSteps::of(code)?),
    };
    let saturates = integer(node, "saturate", 1) != 0;
    let scales = ScaleLayout::of(node)?;
    let quantization = LinearQuantization {
        scales,
        steps,
        saturates,
    };
    operator("QuantizeLinear", None, quantization)
}

/// How scales and zero points belong to elements.
#[derive(Debug, Clone, Copy)]
struct ScaleLayout {
    axis: i64,
    /// Elements of the axis for each scale; zero for scales of single positions.
    block: usize,
}

impl ScaleLayout {
    fn of(node: &NodeProto) -> TractResult<Self> {
        let block = integer(node, "block_size", 0);
        Ok(Self {
            axis: integer(node, "axis", 1),
            block: usize::try_from(block).context("a negative block size")?,
        })
    }

    /// Calls `visit` with each run of elements of one scale, or of as many scales as elements.
    fn visit(
        self,
        shape: &[usize],
        scales: &Tensor,
        zeros: Option<&Tensor>,
        mut visit: impl FnMut(std::ops::Range<usize>, &[f32], &[f32]),
    ) -> TractResult<()> {
        let scales_shape = scales.shape();
        if let Some(zeros) = zeros {
            ensure!(
                zeros.shape() == scales_shape || zeros.len() == 1 && scales.len() == 1,
                "zero points of shape {:?} for scales of shape {scales_shape:?}",
                zeros.shape()
            );
        }
        let zeros = zeros.map(Tensor::cast_to::<f32>).transpose()?;
        let zeros = match &zeros {
            Some(zeros) => zeros.try_as_plain_ram()?.as_slice::<f32>()?.to_vec(),
            None => vec![0.0; scales.len()],
        };
        let scales = scales.try_as_plain_ram()?;
        let scales = scales.as_slice::<f32>()?;
        let all: usize = shape.iter().product();
        if let ([_], [_], 0) = (scales, &*zeros, self.block) {
            visit(0..all, scales, &zeros);
            return Ok(());
        }
        let axis = axis_of(self.axis, shape.len())?;
        let (size, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        if self.block == 0 {
            ensure!(
                scales.len() == size && scales_shape.len() == 1,
                "scales of shape {scales_shape:?} for an axis of {size}"
            );
            for (row, start) in (0..all).step_by(inner.max(1)).enumerate() {
                let at = row % size;
                visit(start..start + inner, &scales[at..=at], &zeros[at..=at]);
            }
            return Ok(());
        }
        let blocks = size.div_ceil(self.block);
        let mut wanted: TVec<usize> = shape.into();
        wanted[axis] = blocks;
        ensure!(
            scales_shape == wanted.as_slice(),
            "scales of shape {scales_shape:?}: expected {wanted:?} for blocks of {}",
            self.block
        );
        for (row, start) in (0..all).step_by(inner.max(1)).enumerate() {
            let (outer, at) = (row / size, row % size);
            let first = (outer * blocks + at / self.block) * inner;
            let of = first..first + inner;
            visit(start..start + inner, &scales[of.clone()], &zeros[of]);
        }
        Ok(())
    }
}

impl ScaleLayout {
    /// Returns the numbers of these steps.
    fn dequantised(
        self,
        steps: &Tensor,
        scales: &Tensor,
        zeros: Option<&Tensor>,
    ) -> TractResult<Tensor> {
        let shape = steps.shape();
        let real = steps.cast_to::<f32>()?;
        let real = real.try_as_plain_ram()?;
        let real = real.as_slice::<f32>()?;
        let mut numbers = Tensor::zero_dt(f32::datum_type(), shape)?;
        let mut view = numbers.try_as_plain_ram_mut()?;
        let to = view.as_slice_mut::<f32>()?;
        self.visit(shape, scales, zeros, |of, scales, zeros| {
            let from = [&real[of.clone()], scales, zeros];
            compute(from, &mut to[of], |step, scale, zero| (step - zero) * scale);
        })?;
        Ok(numbers)
    }
}

/// Computes each element of a run from a number, its scale and its zero point.
fn compute([from, scales, zeros]: [&[f32]; 3], to: &mut [f32], of: impl Fn(f32, f32, f32) -> f32) {
    if let ([scale], [zero]) = (scales, zeros) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = of(*from, *scale, *zero);
        }
        return;
    }
    let pairs = scales.iter().zip(zeros);
    for ((to, from), (scale, zero)) in to.iter_mut().zip(from).zip(pairs) {
        *to = of(*from, *scale, *zero);
    }
}

#[derive(Debug, Clone)]
struct LinearDequantization {
    scales: ScaleLayout,
    to: Option<DatumType>,
}

fn check_inputs(inputs: &[TensorProxy]) -> TractResult<()> {
    let count = inputs.len();
    ensure!(
        (2..=3).contains(&count),
        "expected 2 or 3 inputs, got {count}"
    );
    Ok(())
}

impl NodeOperator for LinearDequantization {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        check_inputs(inputs)?;
        match self.to {
            Some(to) => s.equals(&outputs[0].datum_type, to)?,
            None => s.equals(&outputs[0].datum_type, &inputs[1].datum_type)?,
        }
        s.equals(&inputs[0].shape, &outputs[0].shape)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let to = match self.to {
            Some(to) => to,
            None => model.outlet_fact(inputs[1])?.datum_type,
        };
        let known = inputs
            .iter()
            .map(|it| Ok(model.outlet_fact(*it)?.konst.clone()));
        let known: Option<Vec<Arc<Tensor>>> = known.collect::<TractResult<_>>()?;
        if let Some(known) = known {
            // The library computes only small tensors before a run.
            let scales = known[1].cast_to::<f32>()?;
            let zeros = known.get(2).map(|zeros| &**zeros);
            let numbers = self.scales.dequantised(&known[0], &scales, zeros)?;
            let numbers = numbers.cast_to_dt(to)?.into_owned();
            return Ok(tvec!(model.add_const(prefix, numbers)?));
        }
        let mut inputs: TVec<OutletId> = inputs.into();
        inputs[1] = real(model, prefix, inputs[1])?;
        let scales = self.scales;
        let fact = f32::fact(fact.shape);
        let kernel = Kernel::new(
            "DequantizeLinear",
            tvec!(fact),
            move |inputs: &[TValue]| {
                let zeros = inputs.get(2).map(|zeros| &**zeros);
                Ok(tvec!(scales.dequantised(&inputs[0], &inputs[1], zeros)?))
            },
        );
        if to == DatumType::F32 {
            return model.wire_node(prefix, kernel, &inputs);
        }
        let numbers = model.wire_node(format!("{prefix}.numbers"), kernel, &inputs)?;
        model.wire_node(prefix, cast(to), &numbers)
    }
}

/// Converts numbers to float32.
fn real(model: &mut TypedModel, prefix: &str, outlet: OutletId) -> TractResult<OutletId> {
    if model.outlet_fact(outlet)?.datum_type == DatumType::F32 {
        return Ok(outlet);
    }
    let name = format!("{prefix}.real.{}", model.nodes().len());
    Ok(model.wire_node(name, cast(f32::datum_type()), &[outlet])?[0])
}

/// The numbers that a quantisation results in.
#[derive(Debug, Clone, Copy)]
struct QuantisedSteps {
    dtype: DatumType,
    limits: [f32; 2],
    /// A type of which the library's `dtype` is the carrier.
    narrow: Option<NarrowType>,
}

impl QuantisedSteps {
    fn of(code: i32) -> TractResult<Self> {
        if let Some(narrow) = NarrowType::of(code.into()) {
            return Ok(Self {
                dtype: narrow.datum_type(),
                limits: narrow.limits(),
                narrow: Some(narrow),
            });
        }
        Self::of_integers(match code {
            UINT8 => DatumType::U8,
            INT8 => DatumType::I8,
            UINT16 => DatumType::U16,
            INT16 => DatumType::I16,
            _ => bail!("a quantisation to the element type {code} is not supported"),
        })
    }

    fn of_integers(dtype: DatumType) -> TractResult<Self> {
        let limits = match dtype.unquantized() {
            DatumType::U8 => [0.0, 255.0],
            DatumType::I8 => [-128.0, 127.0],
            DatumType::U16 => [0.0, 65535.0],
            DatumType::I16 => [-32768.0, 32767.0],
            other => bail!("a quantisation to {other:?} is not supported"),
        };
        Ok(Self {
            dtype,
            limits,
            narrow: None,
        })
    }

    /// Returns the step of a number that was divided by its scale.
    fn step(self, scaled: f32, zero: f32, saturates: bool) -> f32 {
        if let Some(narrow) = self.narrow.filter(|_| self.dtype == DatumType::F32) {
            return narrow.rounded(scaled + zero, saturates);
        }
        let [least, most] = self.limits;
        let step = scaled.round_ties_even() + zero;
        // NaN becomes the minimum, as in ONNX Runtime.
        let step = if step > least { step } else { least };
        if step < most { step } else { most }
    }
}

#[derive(Debug, Clone)]
struct LinearQuantization {
    scales: ScaleLayout,
    /// The result; that of the zero points if it is not given.
    steps: Option<QuantisedSteps>,
    saturates: bool,
}

impl NodeOperator for LinearQuantization {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        check_inputs(inputs)?;
        match (self.steps, inputs.get(2)) {
            (Some(steps), _) => s.equals(&outputs[0].datum_type, steps.dtype)?,
            (None, Some(zeros)) => s.equals(&outputs[0].datum_type, &zeros.datum_type)?,
            (None, None) => s.equals(&outputs[0].datum_type, u8::datum_type())?,
        }
        s.equals(&inputs[0].shape, &outputs[0].shape)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let steps = match (self.steps, inputs.get(2)) {
            (Some(steps), _) => steps,
            (None, Some(zeros)) => {
                QuantisedSteps::of_integers(model.outlet_fact(*zeros)?.datum_type)?
            }
            (None, None) => QuantisedSteps::of_integers(DatumType::U8)?,
        };
        // The quotient has the dtype of the scales.
        let is_half = model.outlet_fact(inputs[1])?.datum_type == DatumType::F16;
        let mut inputs: TVec<OutletId> = inputs.into();
        for input in &mut inputs[..2] {
            *input = real(model, prefix, *input)?;
        }
        let (scales, saturates) = (self.scales, self.saturates);
        let fact = steps.dtype.fact(fact.shape);
        let kernel = Kernel::new("QuantizeLinear", tvec!(fact), move |inputs: &[TValue]| {
            let shape = inputs[0].shape();
            let numbers = inputs[0].try_as_plain_ram()?;
            let numbers = numbers.as_slice::<f32>()?;
            let mut rounded = vec![0.0; numbers.len()];
            let zeros = inputs.get(2).map(|zeros| &**zeros);
            scales.visit(shape, &inputs[1], zeros, |of, scales, zeros| {
                let from = [&numbers[of.clone()], scales, zeros];
                compute(from, &mut rounded[of], |number, scale, zero| {
                    let mut scaled = number / scale;
                    if is_half {
                        scaled = f16::from_f32(scaled).to_f32();
                    }
                    steps.step(scaled, zero, saturates)
                });
            })?;
            let rounded = Tensor::from_shape(shape, &rounded)?;
            Ok(tvec!(rounded.cast_to_dt(steps.dtype)?.into_owned()))
        });
        model.wire_node(prefix, kernel, &inputs)
    }
}
