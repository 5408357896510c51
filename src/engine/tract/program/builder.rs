//! Building the library's graph: every operator here gives values the shapes and dtypes it says.
//!
//! float16 and bfloat16 are held as float32 and rounded where the program rounds: a [`Wire`] knows
//! which of them it stands for. Invariant: what a wire holds can be represented in its dtype.

use std::sync::Arc;

use half::{bf16, f16};
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::{MultiBroadcastTo, Slice, TypedConcat};
use tract_onnx::tract_core::ops::binary::{BinMiniOp, TypedBinOp};
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::logic::comp_ne;
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer};

use super::super::kernel::Kernel;
use super::{Size, datum_type};
use crate::tensor::DType;

/// A value in the graph, and the dtype it has to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wire {
    /// Where it comes from.
    pub(super) outlet: OutletId,
    /// What it is to the program.
    pub(super) dtype: DType,
}

/// A graph that grows.
pub(super) struct Builder {
    /// The graph.
    pub(super) model: TypedModel,
    scope: String,
    count: usize,
}

impl Builder {
    /// An empty graph.
    pub(super) fn new() -> Self {
        Self {
            model: TypedModel::default(),
            scope: String::new(),
            count: 0,
        }
    }

    /// What the nodes wired from now on belong to: their names begin with it.
    pub(super) fn enter(&mut self, scope: String) {
        self.scope = scope;
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("{} #{}", self.scope, self.count)
    }

    /// Wires an operator with one output.
    pub(super) fn wire(
        &mut self,
        op: impl Into<Box<dyn TypedOp>>,
        inputs: &[OutletId],
    ) -> TractResult<OutletId> {
        let outlets = self.wire_all(op, inputs)?;
        Ok(outlets[0])
    }

    /// Wires an operator.
    pub(super) fn wire_all(
        &mut self,
        op: impl Into<Box<dyn TypedOp>>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let name = self.name();
        let outlets = self.model.wire_node(name, op, inputs)?;
        ensure!(!outlets.is_empty(), "an operator without outputs");
        Ok(outlets)
    }

    /// Wires an operator of ours whose one output has this dtype and shape.
    pub(super) fn kernel(
        &mut self,
        name: &'static str,
        dtype: DType,
        shape: &[TDim],
        inputs: &[OutletId],
        function: impl Fn(&[TValue]) -> TractResult<Tensor> + Send + Sync + 'static,
    ) -> TractResult<Wire> {
        let fact = datum_type(dtype).fact(shape);
        let kernel = Kernel::new(name, tvec!(fact), move |inputs| {
            Ok(tvec!(function(inputs)?))
        });
        let outlet = self.wire(kernel, inputs)?;
        Ok(Wire { outlet, dtype })
    }

    /// A size of an input, as a symbol with its bound if it is not known.
    pub(super) fn dim(&mut self, size: &Size) -> TractResult<TDim> {
        match size {
            Size::Known(size) => Ok(i64::try_from(*size)?.to_dim()),
            Size::Any { name, most } => {
                let symbols = &self.model.symbols;
                let known = symbols.get(name);
                let symbol = symbols.sym(name);
                if known.is_none() {
                    symbols.add_assertion(format!("{name} >= 1"))?;
                    symbols.add_assertion(format!("{name} <= {most}"))?;
                }
                Ok(symbol.into())
            }
        }
    }

    /// An input of the graph.
    pub(super) fn source(
        &mut self,
        name: String,
        dtype: DType,
        shape: &[TDim],
    ) -> TractResult<Wire> {
        let outlet = self.model.add_source(name, datum_type(dtype).fact(shape))?;
        Ok(Wire { outlet, dtype })
    }

    /// A constant. Its datum type must be that of `dtype` here.
    pub(super) fn constant(&mut self, value: Arc<Tensor>, dtype: DType) -> TractResult<Wire> {
        ensure!(
            value.datum_type() == datum_type(dtype),
            "a constant of another type"
        );
        let name = self.name();
        let outlet = self.model.add_const(name, value)?;
        Ok(Wire { outlet, dtype })
    }

    /// A number as a tensor of one element and this rank.
    pub(super) fn scalar(&mut self, value: f64, dtype: DType, rank: usize) -> TractResult<Wire> {
        let value = number(value, dtype)?;
        let value = value.broadcast_into_rank(rank)?;
        self.constant(Arc::new(value), dtype)
    }

    /// A float32 constant of one element and this rank.
    pub(super) fn float(&mut self, value: f32, rank: usize) -> TractResult<OutletId> {
        Ok(self.scalar(value.into(), DType::Float32, rank)?.outlet)
    }

    /// The shape of a value.
    pub(super) fn shape(&self, outlet: OutletId) -> TractResult<Vec<TDim>> {
        Ok(self.model.outlet_fact(outlet)?.shape.to_tvec().to_vec())
    }

    /// How many dimensions a value has.
    pub(super) fn rank(&self, outlet: OutletId) -> TractResult<usize> {
        Ok(self.model.outlet_fact(outlet)?.rank())
    }

    /// The value of a constant.
    pub(super) fn known(&self, outlet: OutletId) -> TractResult<Option<Arc<Tensor>>> {
        Ok(self.model.outlet_fact(outlet)?.konst.clone())
    }

    /// The same elements as another dtype: floats to integers towards zero, anything to booleans by
    /// `!= 0`.
    pub(super) fn cast(&mut self, wire: Wire, dtype: DType) -> TractResult<Wire> {
        if wire.dtype == dtype {
            return Ok(wire);
        }
        let (from, to) = (datum_type(wire.dtype), datum_type(dtype));
        let mut outlet = wire.outlet;
        if to == DatumType::Bool {
            let rank = self.rank(outlet)?;
            let zero = self.scalar(0.0, wire.dtype, rank)?.outlet;
            outlet = self.binary(comp_ne(), outlet, zero)?;
        } else if from.is_float() && to.is_integer() {
            let shape = self.shape(outlet)?;
            let truncated = move |inputs: &[TValue]| truncate(&inputs[0], to);
            outlet = self
                .kernel("ToInteger", dtype, &shape, &[outlet], truncated)?
                .outlet;
        } else if from != to {
            outlet = self.wire(cast(to), &[outlet])?;
        }
        if narrows(wire.dtype, dtype) {
            outlet = self.round(outlet, dtype)?;
        }
        Ok(Wire { outlet, dtype })
    }

    /// What was computed in float32 as the dtype it should have.
    pub(super) fn rounded(&mut self, outlet: OutletId, dtype: DType) -> TractResult<Wire> {
        self.cast(
            Wire {
                outlet,
                dtype: DType::Float32,
            },
            dtype,
        )
    }

    fn round(&mut self, outlet: OutletId, dtype: DType) -> TractResult<OutletId> {
        if dtype == DType::Float16 {
            let half = self.wire(cast(DatumType::F16), &[outlet])?;
            return self.wire(cast(DatumType::F32), &[half]);
        }
        let shape = self.shape(outlet)?;
        let round = |inputs: &[TValue]| map_f32(&inputs[0], |x| bf16::from_f32(x).to_f32());
        Ok(self
            .kernel("ToBfloat16", dtype, &shape, &[outlet], round)?
            .outlet)
    }

    /// An elementwise operator of the library.
    pub(super) fn unary(&mut self, op: ElementWiseOp, input: OutletId) -> TractResult<OutletId> {
        self.wire(op, &[input])
    }

    /// An elementwise operator of two values of one datum type, with broadcasting.
    pub(super) fn binary(
        &mut self,
        op: Box<dyn BinMiniOp>,
        a: OutletId,
        b: OutletId,
    ) -> TractResult<OutletId> {
        let [a, b] = self.same_rank([a, b])?;
        self.wire(TypedBinOp(op, None), &[a, b])
    }

    /// Values with as many dimensions as the one with most, new ones before the old.
    pub(super) fn same_rank<const N: usize>(
        &mut self,
        outlets: [OutletId; N],
    ) -> TractResult<[OutletId; N]> {
        let mut most = 0;
        for outlet in outlets {
            most = most.max(self.rank(outlet)?);
        }
        let mut aligned = outlets;
        for outlet in &mut aligned {
            *outlet = self.with_rank(*outlet, most)?;
        }
        Ok(aligned)
    }

    /// A value with dimensions of size 1 before its own, up to this rank.
    pub(super) fn with_rank(&mut self, outlet: OutletId, rank: usize) -> TractResult<OutletId> {
        let mut outlet = outlet;
        for _ in self.rank(outlet)?..rank {
            outlet = self.wire(AxisOp::Add(0), &[outlet])?;
        }
        Ok(outlet)
    }

    /// The shape of values broadcast with each other.
    pub(super) fn broadcast_shape(&self, outlets: &[OutletId]) -> TractResult<Vec<TDim>> {
        let shapes = outlets.iter().map(|outlet| self.shape(*outlet));
        let shapes: Vec<_> = shapes.collect::<TractResult<_>>()?;
        let rank = shapes.iter().map(Vec::len).max().unwrap_or(0);
        let mut joined = vec![TDim::Val(1); rank];
        for shape in shapes {
            let offset = rank - shape.len();
            for (at, dim) in shape.into_iter().enumerate() {
                let known = &mut joined[offset + at];
                if known.is_one() {
                    *known = dim;
                } else if !dim.is_one() && *known != dim {
                    bail!("sizes {known} and {dim} do not broadcast");
                }
            }
        }
        Ok(joined)
    }

    /// A value broadcast to a shape.
    pub(super) fn expand(&mut self, outlet: OutletId, shape: &[TDim]) -> TractResult<OutletId> {
        let outlet = self.with_rank(outlet, shape.len())?;
        if self.shape(outlet)? == shape {
            return Ok(outlet);
        }
        self.wire(
            MultiBroadcastTo {
                shape: ShapeFact::from_dims(shape.iter().cloned()),
            },
            &[outlet],
        )
    }

    /// The same elements, row major, in another shape.
    pub(super) fn reshape(&mut self, outlet: OutletId, shape: &[TDim]) -> TractResult<OutletId> {
        let from = self.shape(outlet)?;
        if from == shape {
            return Ok(outlet);
        }
        let volume = |dims: &[TDim]| dims.iter().cloned().product::<TDim>().reduce();
        let (had, wanted) = (volume(&from), volume(shape));
        ensure!(
            had == wanted,
            "{had} elements cannot take a shape of {wanted}"
        );
        // Dimensions that stay at both ends need not be named.
        let most = from.len().min(shape.len());
        let head = (0..most).take_while(|&at| from[at] == shape[at]).count();
        let tail = (0..most - head)
            .take_while(|&at| from[from.len() - 1 - at] == shape[shape.len() - 1 - at])
            .count();
        let before: TVec<TDim> = from[head..from.len() - tail].into();
        let after: TVec<TDim> = shape[head..shape.len() - tail].into();
        self.reshape_part(outlet, head, before, after)
    }

    fn reshape_part(
        &mut self,
        outlet: OutletId,
        at: usize,
        before: TVec<TDim>,
        after: TVec<TDim>,
    ) -> TractResult<OutletId> {
        let mut outlet = outlet;
        if before.is_empty() || after.is_empty() {
            // Only dimensions of size 1 come or go.
            for _ in &before {
                outlet = self.wire(AxisOp::Rm(at), &[outlet])?;
            }
            for _ in &after {
                outlet = self.wire(AxisOp::Add(at), &[outlet])?;
            }
            return Ok(outlet);
        }
        self.wire(AxisOp::Reshape(at, before, after), &[outlet])
    }

    /// Dimension `at` of the result is dimension `perm[at]` of the value.
    pub(super) fn transpose(&mut self, outlet: OutletId, perm: &[usize]) -> TractResult<OutletId> {
        let rank = self.rank(outlet)?;
        let mut sorted = perm.to_vec();
        sorted.sort_unstable();
        ensure!(
            sorted.into_iter().eq(0..rank),
            "{perm:?} is no order of {rank} dimensions"
        );
        let mut outlet = outlet;
        for op in perm_to_ops(perm) {
            outlet = self.wire(op, &[outlet])?;
        }
        Ok(outlet)
    }

    /// A range of one dimension.
    #[expect(clippy::needless_pass_by_value, reason = "numbers and sizes alike")]
    pub(super) fn slice(
        &mut self,
        outlet: OutletId,
        axis: usize,
        start: impl ToDim,
        end: impl ToDim,
    ) -> TractResult<OutletId> {
        let (start, end) = (start.to_dim(), end.to_dim());
        let shape = self.shape(outlet)?;
        ensure!(axis < shape.len(), "there is no dimension {axis}");
        if start == TDim::Val(0) && end == shape[axis] {
            return Ok(outlet);
        }
        if let (Some(start), Some(end), Some(size)) =
            (start.as_i64(), end.as_i64(), shape[axis].as_i64())
        {
            ensure!(
                0 <= start && start <= end && end <= size,
                "{start}..{end} is no range of a dimension of {size}"
            );
        }
        self.wire(Slice { axis, start, end }, &[outlet])
    }

    /// Values one after another along a dimension.
    pub(super) fn concat(&mut self, outlets: &[OutletId], axis: usize) -> TractResult<OutletId> {
        match outlets {
            [] => bail!("there is nothing to concatenate"),
            [only] => Ok(*only),
            _ => self.wire(TypedConcat { axis }, outlets),
        }
    }

    /// Reduces these dimensions to size 1, or away.
    pub(super) fn reduce(
        &mut self,
        reducer: Reducer,
        outlet: OutletId,
        axes: &[usize],
        keep: bool,
    ) -> TractResult<OutletId> {
        let rank = self.rank(outlet)?;
        ensure!(
            axes.iter().all(|&axis| axis < rank),
            "{axes:?} of {rank} dimensions"
        );
        let mut axes: TVec<usize> = axes.into();
        axes.sort_unstable();
        axes.dedup();
        if axes.is_empty() {
            return Ok(outlet);
        }
        let mut outlet = self.wire(
            Reduce {
                axes: axes.clone(),
                reducer,
            },
            &[outlet],
        )?;
        if !keep {
            for axis in axes.into_iter().rev() {
                outlet = self.wire(AxisOp::Rm(axis), &[outlet])?;
            }
        }
        Ok(outlet)
    }

    /// Removes dimensions of size 1.
    pub(super) fn remove(&mut self, outlet: OutletId, axes: &[usize]) -> TractResult<OutletId> {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        axes.dedup();
        let mut outlet = outlet;
        for axis in axes.into_iter().rev() {
            outlet = self.wire(AxisOp::Rm(axis), &[outlet])?;
        }
        Ok(outlet)
    }

    /// A size that a run knows, as a tensor without dimensions.
    pub(super) fn size(&mut self, dim: &TDim, dtype: DType) -> TractResult<OutletId> {
        if let Ok(value) = dim.to_i64() {
            #[expect(clippy::cast_precision_loss, reason = "sizes are below 2^53")]
            return Ok(self.scalar(value as f64, dtype, 0)?.outlet);
        }
        let name = self.name();
        let value = Const::new(Arc::new(tensor0(dim.clone())))?;
        let outlet = self.model.wire_node(name, value, &[])?[0];
        self.wire(cast(datum_type(dtype)), &[outlet])
    }
}

/// A number as a tensor without dimensions, of the datum type that stands for `dtype` here.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what the program says fits its dtype"
)]
pub(super) fn number(value: f64, dtype: DType) -> TractResult<Tensor> {
    Ok(match dtype {
        DType::Float16 => tensor0(f16::from_f64(value).to_f32()),
        DType::Bfloat16 => tensor0(bf16::from_f64(value).to_f32()),
        DType::Float32 => tensor0(value as f32),
        DType::Float64 => tensor0(value),
        DType::Bool => tensor0(value != 0.0),
        _ => {
            let value = tensor0(value as i64);
            value.cast_to_dt(datum_type(dtype))?.into_owned()
        }
    })
}

/// Whether a value of `from` may need rounding to become one of `to`.
fn narrows(from: DType, to: DType) -> bool {
    match to {
        DType::Float16 => !matches!(from, DType::Bool | DType::Int8 | DType::Uint8),
        DType::Bfloat16 => from != DType::Bool,
        _ => false,
    }
}

/// Applies a function to float32 elements.
pub(super) fn map_f32(input: &Tensor, function: impl Fn(f32) -> f32) -> TractResult<Tensor> {
    let mut output = input.deep_clone();
    let mut view = output.try_as_plain_ram_mut()?;
    for x in view.as_slice_mut::<f32>()? {
        *x = function(*x);
    }
    Ok(output)
}

/// Floats as integers, towards zero.
fn truncate(input: &Tensor, to: DatumType) -> TractResult<Tensor> {
    let doubles = input.cast_to::<f64>()?;
    let view = doubles.try_as_plain_ram()?;
    let doubles = view.as_slice::<f64>()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "towards zero is what is wanted"
    )]
    let whole: Vec<i64> = doubles.iter().map(|x| *x as i64).collect();
    let whole = Tensor::from_shape(input.shape(), &whole)?;
    Ok(whole.cast_to_dt(to)?.into_owned())
}
