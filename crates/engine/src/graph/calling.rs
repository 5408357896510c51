//! Calls operators of the operator table by name, with arguments from outside of a method.
//!
//! A delegate whose graph is lowered through the operator table describes each call by its
//! arguments ([`CallArg`]) and results ([`CallResult`]). The call is lowered as a separate method with a
//! single call, so that an operator always means the same. This module is independent of backends.

use tract_onnx::tract_core::internal::*;

use super::builder::{Builder, Wire};
use super::frame::{FrameSlot, MethodFrame, RuntimeNumber};
use super::operators;
use super::weights::ProgramWeights;
use crate::tensor::DType;
use pkgtool_model::executorch::body::{BodyValue, MethodBody, TensorBody, TensorData};
use pkgtool_model::{Dynamism, ElementType};

/// An argument of a call.
#[derive(Debug, Clone)]
pub(crate) enum CallArg {
    /// No argument.
    None,
    /// An integer, which may depend on sizes known only at run time.
    Int(TDim),
    /// A number computed at run time.
    Number(RuntimeNumber),
    /// A floating-point number.
    Double(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Text(String),
    /// Sizes or other integers.
    Ints(Vec<TDim>),
    /// Numbers.
    Doubles(Vec<f64>),
    /// A tensor.
    Tensor(Wire),
    /// Tensors.
    Tensors(Vec<Wire>),
    /// Tensors, some of which may be absent.
    Optional(Vec<Option<Wire>>),
}

/// A result of a call.
#[derive(Debug, Clone)]
pub(crate) enum CallResult {
    /// A tensor of this dtype.
    Tensor(DType),
    /// A list of tensors of these dtypes.
    Tensors(Vec<DType>),
    /// An integer or another number.
    Number,
}

/// The context of calls.
pub(crate) struct CallContext<'b, 'w> {
    /// The graph under construction.
    pub(crate) builder: &'b mut Builder,
    /// The program's constants.
    pub(crate) weights: &'w ProgramWeights,
}

impl From<Wire> for CallArg {
    fn from(wire: Wire) -> Self {
        Self::Tensor(wire)
    }
}

impl From<i64> for CallArg {
    fn from(value: i64) -> Self {
        Self::Int(value.to_dim())
    }
}

impl From<f64> for CallArg {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<bool> for CallArg {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&[i64]> for CallArg {
    fn from(values: &[i64]) -> Self {
        Self::Ints(values.iter().map(ToDim::to_dim).collect())
    }
}

impl<T: Into<CallArg>> From<Option<T>> for CallArg {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// The values of a method with a single call.
#[derive(Default)]
struct CallValues {
    bodies: Vec<BodyValue>,
    slots: Vec<(usize, FrameSlot)>,
}

impl CallValues {
    fn push(&mut self, body: BodyValue) -> usize {
        self.bodies.push(body);
        self.bodies.len() - 1
    }

    fn slot(&mut self, body: BodyValue, slot: FrameSlot) -> usize {
        let at = self.push(body);
        self.slots.push((at, slot));
        at
    }

    fn tensor(&mut self, wire: Wire) -> usize {
        self.slot(tensor_body(wire.dtype), FrameSlot::Tensor(wire))
    }

    fn arg(&mut self, arg: CallArg) -> usize {
        match arg {
            CallArg::None => self.push(BodyValue::Null),
            CallArg::Int(value) => self.slot(BodyValue::Int(0), FrameSlot::Int(value)),
            CallArg::Number(number) => self.slot(BodyValue::Int(0), FrameSlot::Number(number)),
            CallArg::Double(value) => self.push(BodyValue::Double(value)),
            CallArg::Bool(value) => self.push(BodyValue::Bool(value)),
            CallArg::Text(text) => self.push(BodyValue::String(text)),
            CallArg::Doubles(values) => self.push(BodyValue::DoubleList(values)),
            CallArg::Tensor(wire) => self.tensor(wire),
            CallArg::Ints(values) => {
                let values = values
                    .into_iter()
                    .map(|value| self.arg(CallArg::Int(value)));
                let values = values.collect();
                self.push(BodyValue::IntList(values))
            }
            CallArg::Tensors(wires) => {
                let wires = wires.into_iter().map(|wire| self.tensor(wire)).collect();
                self.push(BodyValue::TensorList(wires))
            }
            CallArg::Optional(wires) => {
                let wires = wires.into_iter();
                let wires = wires.map(|wire| wire.map(|wire| self.tensor(wire)));
                let wires = wires.collect();
                self.push(BodyValue::OptionalTensorList(wires))
            }
        }
    }

    /// Allocates a result. Returns its index among the call's arguments, and the index of each of
    /// its values.
    fn out(&mut self, out: &CallResult) -> (usize, Vec<usize>) {
        match out {
            CallResult::Tensor(dtype) => {
                let at = self.push(tensor_body(*dtype));
                (at, vec![at])
            }
            CallResult::Tensors(dtypes) => {
                let places = dtypes.iter().map(|dtype| self.push(tensor_body(*dtype)));
                let places: Vec<usize> = places.collect();
                (self.push(BodyValue::TensorList(places.clone())), places)
            }
            CallResult::Number => {
                let at = self.push(BodyValue::Int(0));
                (at, vec![at])
            }
        }
    }
}

/// Describes a tensor of a dtype, with room for any sizes.
pub(crate) fn tensor_body(dtype: DType) -> BodyValue {
    BodyValue::Tensor(TensorBody {
        element: ElementType::named(dtype.name()),
        sizes: vec![u64::MAX],
        dim_order: vec![0],
        dynamism: Dynamism::Bounded,
        data: TensorData::None,
        memory: None,
    })
}

impl CallContext<'_, '_> {
    /// Calls the operator with this full name. The arguments are those of its schema, followed by
    /// the outputs.
    ///
    /// Returns all resulting values in order, including each element of a list.
    pub(crate) fn call(
        &mut self,
        name: &str,
        args: Vec<CallArg>,
        outs: &[CallResult],
    ) -> TractResult<Vec<FrameSlot>> {
        let mut values = CallValues::default();
        let mut places: Vec<usize> = args.into_iter().map(|arg| values.arg(arg)).collect();
        let mut results = Vec::new();
        for out in outs {
            let (at, each) = values.out(out);
            places.push(at);
            results.extend(each);
        }
        let method = MethodBody {
            values: values.bodies,
            ..MethodBody::default()
        };
        let mut frame = MethodFrame::new(&method, self.weights);
        std::mem::swap(&mut frame.builder, self.builder);
        frame.now.slots.extend(values.slots);
        let called = operators::lower(&mut frame, name, &places);
        std::mem::swap(&mut frame.builder, self.builder);
        called?;
        let results = results.into_iter().map(|at| {
            let slot = frame.now.slots.remove(&at);
            slot.ok_or_else(|| format_err!("`{name}` returned nothing"))
        });
        results.collect()
    }

    /// Calls an operator that returns one tensor.
    pub(crate) fn tensor(
        &mut self,
        name: &str,
        args: Vec<CallArg>,
        dtype: DType,
    ) -> TractResult<Wire> {
        let given = self.call(name, args, &[CallResult::Tensor(dtype)])?;
        match given.first() {
            Some(FrameSlot::Tensor(wire)) => Ok(*wire),
            _ => bail!("`{name}` did not return a tensor"),
        }
    }

    /// Divides the last dimension by its root mean square, in float32.
    pub(crate) fn root_mean_square(
        &mut self,
        input: Wire,
        weight: Option<Wire>,
        epsilon: f64,
    ) -> TractResult<Wire> {
        let float = DType::Float32;
        let input = self.builder.cast(input, float)?;
        let square = self.tensor("aten::mul.out", vec![input.into(), input.into()], float)?;
        let last = CallArg::from([-1].as_slice());
        let args = vec![square.into(), last, CallArg::Bool(true), CallArg::None];
        let mean = self.tensor("aten::mean.out", args, float)?;
        let args = vec![mean.into(), CallArg::Double(epsilon), CallArg::from(1)];
        let mean = self.tensor("aten::add.Scalar_out", args, float)?;
        let factor = self.tensor("aten::rsqrt.out", vec![mean.into()], float)?;
        let normed = self.tensor("aten::mul.out", vec![input.into(), factor.into()], float)?;
        match weight {
            Some(weight) => self.tensor("aten::mul.out", vec![normed.into(), weight.into()], float),
            None => Ok(normed),
        }
    }

    /// Computes the logarithm of a sum of exponentials along dimensions, which keep size 1. The
    /// maximum is subtracted first.
    pub(crate) fn log_sum_exp(&mut self, x: Wire, axes: &[i64], dtype: DType) -> TractResult<Wire> {
        let args = vec![x.into(), CallArg::from(axes), true.into()];
        let most = self.tensor("aten::amax.out", args, dtype)?;
        let args = vec![x.into(), most.into(), CallArg::from(1)];
        let x = self.tensor("aten::sub.out", args, dtype)?;
        let x = self.tensor("aten::exp.out", vec![x.into()], dtype)?;
        let args = vec![x.into(), CallArg::from(axes), true.into(), CallArg::None];
        let sum = self.tensor("aten::sum.IntList_out", args, dtype)?;
        let log = self.tensor("aten::log.out", vec![sum.into()], dtype)?;
        let args = vec![log.into(), most.into(), CallArg::from(1)];
        self.tensor("aten::add.out", args, dtype)
    }

    /// Gathers rows of a tensor along a dimension; the dimensions of the indices replace it.
    pub(crate) fn rows(&mut self, x: Wire, indices: Wire, axis: usize) -> TractResult<Wire> {
        let rank = self.builder.rank(x.outlet)?;
        let of_indices = self.builder.rank(indices.outlet)?;
        ensure!(axis < rank, "dimension {axis} does not exist");
        let others = (0..rank).filter(|&at| at != axis);
        let first: Vec<usize> = std::iter::once(axis).chain(others).collect();
        let mut rows = x;
        rows.outlet = self.builder.transpose(x.outlet, &first)?;
        let args = vec![
            rows.into(),
            indices.into(),
            CallArg::from(-1),
            false.into(),
            false.into(),
        ];
        let mut wire = self.tensor("aten::embedding.out", args, x.dtype)?;
        // Move the dimensions before the chosen one back to the front.
        let before = of_indices..of_indices + axis;
        let after = before.end..of_indices + rank - 1;
        let order: Vec<usize> = before.chain(0..of_indices).chain(after).collect();
        wire.outlet = self.builder.transpose(wire.outlet, &order)?;
        Ok(wire)
    }
}
