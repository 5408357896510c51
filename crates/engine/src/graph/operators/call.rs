//! The context for lowering one operator call: reads its arguments and sets its outputs.
//!
//! Arguments are identified by their position in the operator's PyTorch schema. This module is
//! independent of operators.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::BinMiniOp;

use super::super::builder::{Builder, Wire, axis_within};
use super::super::frame::{FrameSlot, MethodFrame, RuntimeNumber};
use super::elements::IndexCheck;
use crate::graph::table::NodeTable;
use crate::tensor::DType;
use pkgtool_model::executorch::body::BodyValue;

/// Lowers one call.
pub(super) type LowerOperator = fn(&mut OperatorCall<'_, '_>) -> TractResult<()>;

/// Operators by full name; the operators of a row share one lowering function.
pub(super) type LoweringTable = NodeTable<LowerOperator>;

/// A call being lowered.
pub(super) struct OperatorCall<'f, 'm> {
    /// The lowering of the method.
    pub(super) frame: &'f mut MethodFrame<'m>,
    /// The operator's full name.
    pub(super) name: &'f str,
    /// Arguments: indices of values in the method.
    pub(super) args: &'f [usize],
}

impl OperatorCall<'_, '_> {
    pub(super) fn arg(&self, at: usize) -> TractResult<usize> {
        let Some(value) = self.args.get(at) else {
            bail!("missing argument {at}");
        };
        Ok(*value)
    }

    pub(super) fn slot(&mut self, at: usize) -> TractResult<FrameSlot> {
        let value = self.arg(at)?;
        self.frame.slot(value)
    }

    pub(super) fn body(&self, at: usize) -> TractResult<&BodyValue> {
        Ok(&self.frame.method.values[self.arg(at)?])
    }

    /// Returns a tensor argument.
    pub(super) fn tensor(&mut self, at: usize) -> TractResult<Wire> {
        let value = self.arg(at)?;
        self.frame.tensor(value)
    }

    /// Returns a tensor argument, cast to this dtype.
    pub(super) fn tensor_as(&mut self, at: usize, dtype: DType) -> TractResult<OutletId> {
        let wire = self.tensor(at)?;
        Ok(self.frame.builder.cast(wire, dtype)?.outlet)
    }

    /// Returns the index check of this operator. `from_end` allows negative indices, counted from
    /// the end.
    pub(super) fn indices(&self, from_end: bool) -> IndexCheck {
        IndexCheck::new(self.name, from_end)
    }

    /// Converts indices into a dimension of this size to non-negative ones. A run rejects indices
    /// out of range.
    pub(super) fn checked_indices(
        &mut self,
        outlet: OutletId,
        size: &TDim,
        from_end: bool,
    ) -> TractResult<OutletId> {
        let indices = self.indices(from_end);
        let builder = &mut self.frame.builder;
        let shape = builder.shape(outlet)?;
        let size = builder.size(size, DType::Int64)?;
        let inputs = [outlet, size];
        let check = move |inputs: &[TValue]| {
            let size = usize::try_from(inputs[1].cast_to_scalar::<i64>()?)?;
            let mut checked = inputs[0].clone().into_tensor();
            let mut view = checked.try_as_plain_ram_mut()?;
            for index in view.as_slice_mut::<i64>()? {
                *index = i64::try_from(indices.place(*index, size)?)?;
            }
            Ok(checked)
        };
        Ok(builder
            .kernel("Indices", DType::Int64, &shape, &inputs, check)?
            .outlet)
    }

    /// Returns a tensor argument, if it is present.
    pub(super) fn optional_tensor(&mut self, at: usize) -> TractResult<Option<Wire>> {
        match self.body(at)? {
            BodyValue::Null => Ok(None),
            _ => self.tensor(at).map(Some),
        }
    }

    /// Returns the tensors of a list.
    pub(super) fn tensors(&mut self, at: usize) -> TractResult<Vec<Wire>> {
        let values = match self.body(at)? {
            BodyValue::TensorList(values) => values.clone(),
            _ => bail!("argument {at} is not a list of tensors"),
        };
        let tensors = values.into_iter().map(|value| self.frame.tensor(value));
        tensors.collect()
    }

    /// Returns the tensors of a list, some of which may be absent.
    pub(super) fn optional_tensors(&mut self, at: usize) -> TractResult<Vec<Option<Wire>>> {
        let values = match self.body(at)? {
            BodyValue::OptionalTensorList(values) => values.clone(),
            BodyValue::TensorList(values) => values.iter().copied().map(Some).collect(),
            _ => bail!("argument {at} is not a list of tensors"),
        };
        let mut tensors = Vec::new();
        for value in values {
            let missing = value
                .is_none_or(|value| matches!(self.frame.method.values[value], BodyValue::Null));
            tensors.push(match value {
                Some(value) if !missing => Some(self.frame.tensor(value)?),
                _ => None,
            });
        }
        Ok(tensors)
    }

    /// Returns whether an argument is null.
    pub(super) fn is_none(&mut self, at: usize) -> TractResult<bool> {
        Ok(matches!(self.body(at)?, BodyValue::Null))
    }

    /// Returns a size or another integer, which may depend on sizes known only at run time.
    pub(super) fn dim(&mut self, at: usize) -> TractResult<TDim> {
        match self.slot(at)? {
            FrameSlot::Int(value) => Ok(value),
            FrameSlot::Bool(value) => Ok(i64::from(value).to_dim()),
            FrameSlot::Number(_) => bail!("argument {at} is known only at run time"),
            _ => bail!("argument {at} is not an integer"),
        }
    }

    /// Returns an integer argument.
    pub(super) fn int(&mut self, at: usize) -> TractResult<i64> {
        let dim = self.dim(at)?;
        Ok(dim.to_i64()?)
    }

    /// Returns an integer argument, if it is present.
    pub(super) fn optional_int(&mut self, at: usize) -> TractResult<Option<i64>> {
        Ok(if self.is_none(at)? {
            None
        } else {
            Some(self.int(at)?)
        })
    }

    /// Returns a number.
    #[expect(clippy::cast_precision_loss, reason = "such numbers are small")]
    pub(super) fn double(&mut self, at: usize) -> TractResult<f64> {
        Ok(match self.slot(at)? {
            FrameSlot::Int(value) => value.to_i64()? as f64,
            FrameSlot::Double(value) => value,
            FrameSlot::Bool(value) => f64::from(u8::from(value)),
            FrameSlot::Number(_) => bail!("argument {at} is known only at run time"),
            _ => bail!("argument {at} is not a number"),
        })
    }

    /// Returns a number, if it is present.
    pub(super) fn optional_double(&mut self, at: usize) -> TractResult<Option<f64>> {
        Ok(if self.is_none(at)? {
            None
        } else {
            Some(self.double(at)?)
        })
    }

    /// Returns a boolean.
    pub(super) fn bool(&mut self, at: usize) -> TractResult<bool> {
        Ok(match self.slot(at)? {
            FrameSlot::Bool(value) => value,
            FrameSlot::Int(value) => value != TDim::Val(0),
            FrameSlot::Null => false,
            _ => bail!("argument {at} is not a boolean"),
        })
    }

    /// Returns a string, if it is present.
    pub(super) fn text(&mut self, at: usize) -> TractResult<Option<String>> {
        Ok(match self.slot(at)? {
            FrameSlot::Text(text) => Some(text),
            FrameSlot::Null => None,
            _ => bail!("argument {at} is not a string"),
        })
    }

    /// Returns the sizes of a list.
    pub(super) fn dims(&mut self, at: usize) -> TractResult<Vec<TDim>> {
        let values = match self.body(at)? {
            BodyValue::IntList(values) => values.clone(),
            BodyValue::Int(value) => return Ok(vec![value.to_dim()]),
            BodyValue::Null => return Ok(Vec::new()),
            _ => bail!("argument {at} is not a list of integers"),
        };
        let dims = values
            .into_iter()
            .map(|value| match self.frame.slot(value)? {
                FrameSlot::Int(dim) => Ok(dim),
                FrameSlot::Number(_) => bail!("argument {at} is known only at run time"),
                _ => bail!("argument {at} is not a list of integers"),
            });
        dims.collect()
    }

    /// Returns the integers of a list.
    pub(super) fn ints(&mut self, at: usize) -> TractResult<Vec<i64>> {
        let dims = self.dims(at)?;
        dims.iter().map(|dim| Ok(dim.to_i64()?)).collect()
    }

    /// Returns the sizes of a list, all of which must be known.
    pub(super) fn sizes(&mut self, at: usize) -> TractResult<Vec<usize>> {
        let ints = self.ints(at)?;
        ints.into_iter()
            .map(|int| Ok(usize::try_from(int)?))
            .collect()
    }

    /// Returns the numbers of a list, if it is present.
    pub(super) fn doubles(&mut self, at: usize) -> TractResult<Option<Vec<f64>>> {
        Ok(match self.body(at)? {
            BodyValue::DoubleList(values) => Some(values.clone()),
            BodyValue::Null => None,
            _ => bail!("argument {at} is not a list of numbers"),
        })
    }

    /// Returns one of `rank` dimensions; negative numbers count from the end.
    pub(super) fn axis(&mut self, at: usize, rank: usize) -> TractResult<usize> {
        let axis = self.int(at)?;
        axis_of(axis, rank)
    }

    /// Returns the dimensions of a list, or all dimensions if the list is null or empty.
    pub(super) fn axes(&mut self, at: usize, rank: usize) -> TractResult<Vec<usize>> {
        if self.ints(at)?.is_empty() {
            return Ok((0..rank).collect());
        }
        self.listed_axes(at, rank)
    }

    /// Returns the dimensions of a list.
    pub(super) fn listed_axes(&mut self, at: usize, rank: usize) -> TractResult<Vec<usize>> {
        let axes = self.ints(at)?.into_iter();
        axes.map(|axis| axis_of(axis, rank)).collect()
    }

    /// Returns a number as a tensor of one element, even if it is known only at run time.
    pub(super) fn scalar(&mut self, at: usize, dtype: DType, rank: usize) -> TractResult<OutletId> {
        if let FrameSlot::Number(number) = self.slot(at)? {
            let wire = self.frame.number_as_tensor(&number)?;
            let wire = self.frame.builder.cast(wire, dtype)?;
            return self.frame.builder.with_rank(wire.outlet, rank);
        }
        if let FrameSlot::Int(dim) = self.slot(at)? {
            let outlet = self.frame.builder.size(&dim, dtype)?;
            return self.frame.builder.with_rank(outlet, rank);
        }
        let value = self.double(at)?;
        Ok(self.frame.builder.scalar(value, dtype, rank)?.outlet)
    }

    /// Returns the kind of a number argument, as the dtype that stands for the kind.
    pub(super) fn scalar_kind(&mut self, at: usize) -> TractResult<DType> {
        Ok(match self.slot(at)? {
            FrameSlot::Int(_) => DType::Int64,
            FrameSlot::Bool(_) => DType::Bool,
            FrameSlot::Number(RuntimeNumber { wire, .. }) => wire.dtype,
            FrameSlot::Double(_) => DType::Float32,
            _ => bail!("argument {at} is not a number"),
        })
    }

    /// Returns the dtype of an output.
    pub(super) fn out_dtype(&self, at: usize) -> TractResult<DType> {
        self.frame.dtype(self.arg(at)?)
    }

    /// Returns the position of the only output: the last argument, or the one before it if both are
    /// the same.
    pub(super) fn out(&self) -> usize {
        let last = self.args.len().saturating_sub(1);
        let before = last.saturating_sub(1);
        if self.args.get(last) == self.args.get(before) {
            before
        } else {
            last
        }
    }

    /// Sets the only output, cast to its dtype.
    pub(super) fn set_result(&mut self, wire: Wire) -> TractResult<()> {
        self.set_output(self.out(), wire)
    }

    /// Returns the graph under construction.
    pub(super) fn builder(&mut self) -> &mut Builder {
        &mut self.frame.builder
    }

    /// Adds one of this project's own operators, with one output of this dtype and shape.
    pub(super) fn kernel(
        &mut self,
        name: &'static str,
        dtype: DType,
        shape: &[TDim],
        inputs: &[OutletId],
        function: impl Fn(&[TValue]) -> TractResult<Tensor> + Send + Sync + 'static,
    ) -> TractResult<Wire> {
        let builder = &mut self.frame.builder;
        builder.kernel(name, dtype, shape, inputs, function)
    }

    /// Adds an operator with one output.
    pub(super) fn wire(
        &mut self,
        op: impl Into<Box<dyn TypedOp>>,
        inputs: &[OutletId],
    ) -> TractResult<OutletId> {
        self.frame.builder.wire(op, inputs)
    }

    /// Adds an elementwise operator of two values, with broadcasting.
    pub(super) fn binary(
        &mut self,
        op: Box<dyn BinMiniOp>,
        a: OutletId,
        b: OutletId,
    ) -> TractResult<OutletId> {
        self.frame.builder.binary(op, a, b)
    }

    /// Sets an output, cast to its dtype.
    pub(super) fn set_output(&mut self, at: usize, wire: Wire) -> TractResult<()> {
        let value = self.arg(at)?;
        self.check_room(at, &self.shape(wire)?)?;
        self.frame.set_tensor(value, wire)
    }

    /// Rejects a shape that exceeds the space reserved for an output, as the runtime does.
    ///
    /// Operators that create tensors from numbers call this before they create them.
    pub(super) fn check_room(&self, at: usize, shape: &[TDim]) -> TractResult<()> {
        let value = self.arg(at)?;
        // ExecuTorch's own operators return caches as values without reserved space.
        let Some(tensor) = self.frame.method.values[value].tensor() else {
            return Ok(());
        };
        if !self.name.starts_with("aten::") {
            return Ok(());
        }
        let mut known = shape.iter().map(|size| size.to_usize().ok());
        let needs = known.try_fold(1_usize, |all, size| Some(all.saturating_mul(size?)));
        let Some(needs) = needs else {
            return Ok(());
        };
        let sizes = tensor.sizes.iter();
        let room = sizes.fold(1_u64, |all, size| all.saturating_mul(*size));
        let needs = u64::try_from(needs)?;
        ensure!(
            needs <= room,
            "output too large: {needs} elements, but the program has room for {room}"
        );
        Ok(())
    }

    /// Sets the outputs of a list.
    pub(super) fn set_list_output(&mut self, at: usize, wires: Vec<Wire>) -> TractResult<()> {
        let values = match self.body(at)? {
            BodyValue::TensorList(values) => values.clone(),
            _ => bail!("argument {at} is not a list of tensors"),
        };
        ensure!(
            values.len() == wires.len(),
            "wrong number of outputs: got {}, expected {}",
            wires.len(),
            values.len()
        );
        for (value, wire) in values.into_iter().zip(wires) {
            self.frame.set_tensor(value, wire)?;
        }
        Ok(())
    }

    pub(super) fn shape(&self, wire: Wire) -> TractResult<Vec<TDim>> {
        self.frame.builder.shape(wire.outlet)
    }

    pub(super) fn rank(&self, wire: Wire) -> TractResult<usize> {
        self.frame.builder.rank(wire.outlet)
    }
}

/// Returns one of `rank` dimensions; negative numbers count from the end. A tensor without
/// dimensions counts as one with one.
pub(super) fn axis_of(axis: i64, rank: usize) -> TractResult<usize> {
    axis_within(axis, rank.max(1), rank)
}
