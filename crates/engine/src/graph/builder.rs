//! Builds a tract graph; every method checks the shapes and dtypes of the values that it adds.
//!
//! float16 and bfloat16 values are stored as float32 and rounded where the program rounds. A
//! [`Wire`] records the dtype that it stands for. Invariant: the values of a wire can be
//! represented in its dtype.

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

use super::datum_type;
use super::kernel::Kernel;
use crate::tensor::DType;

/// A size of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputSize {
    /// A fixed size.
    Known(u64),
    /// Any size up to a bound; sizes with the same name are equal.
    Any {
        /// Name of the symbol.
        name: String,
        /// Largest allowed size.
        most: u64,
    },
}

/// A value in the graph, with its dtype in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wire {
    /// The value in tract's graph.
    pub(crate) outlet: OutletId,
    /// The dtype in the program.
    pub(crate) dtype: DType,
}

impl Wire {
    /// Creates a wire of this dtype.
    pub(crate) fn new(outlet: OutletId, dtype: DType) -> Self {
        Self { outlet, dtype }
    }

    /// Creates a wire of float32 numbers.
    pub(crate) fn float(outlet: OutletId) -> Self {
        Self::new(outlet, DType::Float32)
    }
}

/// A graph under construction.
pub(crate) struct Builder {
    /// tract's model.
    pub(crate) model: TypedModel,
    scope: String,
    count: usize,
}

impl Builder {
    /// Creates an empty graph.
    pub(crate) fn new() -> Self {
        Self {
            model: TypedModel::default(),
            scope: String::new(),
            count: 0,
        }
    }

    /// Sets the prefix of the names of the nodes that are added from now on.
    pub(crate) fn set_scope(&mut self, scope: String) {
        self.scope = scope;
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("{} #{}", self.scope, self.count)
    }

    /// Adds an operator with one output.
    pub(crate) fn wire(
        &mut self,
        op: impl Into<Box<dyn TypedOp>>,
        inputs: &[OutletId],
    ) -> TractResult<OutletId> {
        let outlets = self.wire_all(op, inputs)?;
        Ok(outlets[0])
    }

    /// Adds an operator.
    pub(crate) fn wire_all(
        &mut self,
        op: impl Into<Box<dyn TypedOp>>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let name = self.name();
        let outlets = self.model.wire_node(name, op, inputs)?;
        ensure!(!outlets.is_empty(), "an operator has no outputs");
        Ok(outlets)
    }

    /// Adds one of this project's own operators, with one output of this dtype and shape.
    pub(crate) fn kernel(
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

    /// Returns a size of an input; an unknown size becomes a symbol with its bound.
    pub(crate) fn dim(&mut self, size: &InputSize) -> TractResult<TDim> {
        match size {
            InputSize::Known(size) => Ok(i64::try_from(*size)?.to_dim()),
            InputSize::Any { name, most } => {
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

    /// Adds an input of the graph.
    pub(crate) fn source(
        &mut self,
        name: String,
        dtype: DType,
        shape: &[TDim],
    ) -> TractResult<Wire> {
        let outlet = self.model.add_source(name, datum_type(dtype).fact(shape))?;
        Ok(Wire { outlet, dtype })
    }

    /// Adds a constant. Its datum type must be tract's type for `dtype`.
    pub(crate) fn constant(&mut self, value: Arc<Tensor>, dtype: DType) -> TractResult<Wire> {
        ensure!(
            value.datum_type() == datum_type(dtype),
            "the type of a constant does not match its dtype"
        );
        let name = self.name();
        let outlet = self.model.add_const(name, value)?;
        Ok(Wire { outlet, dtype })
    }

    /// Adds a number as a tensor of one element and this rank.
    pub(crate) fn scalar(&mut self, value: f64, dtype: DType, rank: usize) -> TractResult<Wire> {
        let value = number(value, dtype)?;
        let value = value.broadcast_into_rank(rank)?;
        self.constant(Arc::new(value), dtype)
    }

    /// Adds a float32 constant of one element and this rank.
    pub(crate) fn float(&mut self, value: f32, rank: usize) -> TractResult<OutletId> {
        Ok(self.scalar(value.into(), DType::Float32, rank)?.outlet)
    }

    /// Returns the shape of a value.
    pub(crate) fn shape(&self, outlet: OutletId) -> TractResult<Vec<TDim>> {
        Ok(self.model.outlet_fact(outlet)?.shape.to_tvec().to_vec())
    }

    /// Returns the number of dimensions of a value.
    pub(crate) fn rank(&self, outlet: OutletId) -> TractResult<usize> {
        Ok(self.model.outlet_fact(outlet)?.rank())
    }

    /// Returns the content of a value if it is constant.
    pub(crate) fn constant_value(&self, outlet: OutletId) -> TractResult<Option<Arc<Tensor>>> {
        Ok(self.model.outlet_fact(outlet)?.konst.clone())
    }

    /// Casts a value to another dtype: floats to integers by truncation, anything to booleans by
    /// `!= 0`.
    pub(crate) fn cast(&mut self, wire: Wire, dtype: DType) -> TractResult<Wire> {
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
        if needs_rounding(wire.dtype, dtype) {
            outlet = self.round(outlet, dtype)?;
        }
        Ok(Wire { outlet, dtype })
    }

    /// Rounds a value computed in float32 to its dtype.
    pub(crate) fn rounded(&mut self, outlet: OutletId, dtype: DType) -> TractResult<Wire> {
        self.cast(Wire::float(outlet), dtype)
    }

    fn round(&mut self, outlet: OutletId, dtype: DType) -> TractResult<OutletId> {
        if dtype == DType::Float16 {
            let half = self.wire(cast(DatumType::F16), &[outlet])?;
            return self.wire(cast(DatumType::F32), &[half]);
        }
        let shape = self.shape(outlet)?;
        let round = |inputs: &[TValue]| map_float32(&inputs[0], |x| bf16::from_f32(x).to_f32());
        Ok(self
            .kernel("ToBfloat16", dtype, &shape, &[outlet], round)?
            .outlet)
    }

    /// Adds one of tract's elementwise operators.
    pub(crate) fn unary(&mut self, op: ElementWiseOp, input: OutletId) -> TractResult<OutletId> {
        self.wire(op, &[input])
    }

    /// Adds an elementwise operator of two values with the same datum type, with broadcasting.
    pub(crate) fn binary(
        &mut self,
        op: Box<dyn BinMiniOp>,
        a: OutletId,
        b: OutletId,
    ) -> TractResult<OutletId> {
        let [a, b] = self.same_rank([a, b])?;
        self.wire(TypedBinOp(op, None), &[a, b])
    }

    /// Brings values to the rank of the one with the most dimensions, by adding leading dimensions.
    pub(crate) fn same_rank<const N: usize>(
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

    /// Adds leading dimensions of size 1 to a value, up to this rank.
    pub(crate) fn with_rank(&mut self, outlet: OutletId, rank: usize) -> TractResult<OutletId> {
        let mut outlet = outlet;
        for _ in self.rank(outlet)?..rank {
            outlet = self.wire(AxisOp::Add(0), &[outlet])?;
        }
        Ok(outlet)
    }

    /// Returns the shape of values broadcast with each other.
    pub(crate) fn broadcast_shape(&self, outlets: &[OutletId]) -> TractResult<Vec<TDim>> {
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

    /// Broadcasts a value to a shape.
    pub(crate) fn expand(&mut self, outlet: OutletId, shape: &[TDim]) -> TractResult<OutletId> {
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

    /// Reshapes a value; elements are in row-major order.
    pub(crate) fn reshape(&mut self, outlet: OutletId, shape: &[TDim]) -> TractResult<OutletId> {
        let from = self.shape(outlet)?;
        if from == shape {
            return Ok(outlet);
        }
        let volume = |dims: &[TDim]| dims.iter().cloned().product::<TDim>().reduce();
        let (had, wanted) = (volume(&from), volume(shape));
        ensure!(
            had == wanted,
            "cannot reshape {had} elements into {wanted} elements"
        );
        // Leave out the dimensions that stay the same at both ends.
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
            // Only dimensions of size 1 are added or removed.
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

    /// Permutes dimensions: dimension `at` of the result is dimension `perm[at]` of the value.
    pub(crate) fn transpose(&mut self, outlet: OutletId, perm: &[usize]) -> TractResult<OutletId> {
        let rank = self.rank(outlet)?;
        let mut sorted = perm.to_vec();
        sorted.sort_unstable();
        ensure!(
            sorted.into_iter().eq(0..rank),
            "invalid permutation of {rank} dimensions: {perm:?}"
        );
        let mut outlet = outlet;
        for op in perm_to_ops(perm) {
            outlet = self.wire(op, &[outlet])?;
        }
        Ok(outlet)
    }

    /// Takes a range of one dimension.
    #[expect(clippy::needless_pass_by_value, reason = "accepts numbers and sizes")]
    pub(crate) fn slice(
        &mut self,
        outlet: OutletId,
        axis: usize,
        start: impl ToDim,
        end: impl ToDim,
    ) -> TractResult<OutletId> {
        let (start, end) = (start.to_dim(), end.to_dim());
        let shape = self.shape(outlet)?;
        ensure!(axis < shape.len(), "dimension {axis} does not exist");
        if start == TDim::Val(0) && end == shape[axis] {
            return Ok(outlet);
        }
        if let (Some(start), Some(end), Some(size)) =
            (start.as_i64(), end.as_i64(), shape[axis].as_i64())
        {
            ensure!(
                0 <= start && start <= end && end <= size,
                "invalid range {start}..{end} of a dimension of size {size}"
            );
        }
        self.wire(Slice { axis, start, end }, &[outlet])
    }

    /// Concatenates values along a dimension.
    pub(crate) fn concat(&mut self, outlets: &[OutletId], axis: usize) -> TractResult<OutletId> {
        match outlets {
            [] => bail!("no tensors to concatenate"),
            [only] => Ok(*only),
            _ => self.wire(TypedConcat { axis }, outlets),
        }
    }

    /// Reduces these dimensions to size 1, or removes them.
    pub(crate) fn reduce(
        &mut self,
        reducer: Reducer,
        outlet: OutletId,
        axes: &[usize],
        keep: bool,
    ) -> TractResult<OutletId> {
        let rank = self.rank(outlet)?;
        ensure!(
            axes.iter().all(|&axis| axis < rank),
            "invalid dimensions to reduce: {axes:?} of {rank}"
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
    pub(crate) fn remove(&mut self, outlet: OutletId, axes: &[usize]) -> TractResult<OutletId> {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        axes.dedup();
        let mut outlet = outlet;
        for axis in axes.into_iter().rev() {
            outlet = self.wire(AxisOp::Rm(axis), &[outlet])?;
        }
        Ok(outlet)
    }

    /// Adds a size known at run time as a tensor without dimensions.
    pub(crate) fn size(&mut self, dim: &TDim, dtype: DType) -> TractResult<OutletId> {
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

/// Fails unless a shape has this rank; `of` names its tensor.
pub(crate) fn check_rank<T>(shape: &[T], rank: usize, of: &str) -> TractResult<()> {
    let found = shape.len();
    ensure!(
        found == rank,
        "invalid rank of {of}: expected {rank}, got {found}"
    );
    Ok(())
}

/// Returns the sizes of a shape of this rank; `of` names its tensor.
pub(crate) fn ranked<'s, const RANK: usize, T>(
    shape: &'s [T],
    of: &str,
) -> TractResult<&'s [T; RANK]> {
    check_rank(shape, RANK, of)?;
    shape.try_into().context("the rank was checked")
}

/// Returns one of `rank` dimensions; negative numbers count from the end.
pub(crate) fn axis_of(axis: i64, rank: usize) -> TractResult<usize> {
    axis_within(axis, rank, rank)
}

/// Like [`axis_of`], for a tensor of this rank that has `count` dimensions to choose from.
pub(crate) fn axis_within(axis: i64, count: usize, rank: usize) -> TractResult<usize> {
    let count = i64::try_from(count)?;
    ensure!(
        -count <= axis && axis < count,
        "dimension {axis} is out of range for rank {rank}"
    );
    Ok(usize::try_from(if axis < 0 { axis + count } else { axis })?)
}

/// Returns dimensions of a tensor of this rank; negative numbers count from the end.
pub(crate) fn axes_of(axes: &[i64], rank: usize) -> TractResult<Vec<usize>> {
    axes.iter().map(|axis| axis_of(*axis, rank)).collect()
}

/// Returns a number as a tensor without dimensions, in tract's datum type for `dtype`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the program's numbers fit their dtype"
)]
pub(crate) fn number(value: f64, dtype: DType) -> TractResult<Tensor> {
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

/// Returns whether converting a value from `from` to `to` may need rounding.
fn needs_rounding(from: DType, to: DType) -> bool {
    match to {
        DType::Float16 => !matches!(from, DType::Bool | DType::Int8 | DType::Uint8),
        DType::Bfloat16 => from != DType::Bool,
        _ => false,
    }
}

/// Applies a function to float32 elements.
pub(crate) fn map_float32(input: &Tensor, function: impl Fn(f32) -> f32) -> TractResult<Tensor> {
    let mut output = input.deep_clone();
    let mut view = output.try_as_plain_ram_mut()?;
    for x in view.as_slice_mut::<f32>()? {
        *x = function(*x);
    }
    Ok(output)
}

/// Converts floats to integers by truncation.
fn truncate(input: &Tensor, to: DatumType) -> TractResult<Tensor> {
    let doubles = input.cast_to::<f64>()?;
    let view = doubles.try_as_plain_ram()?;
    let doubles = view.as_slice::<f64>()?;
    #[expect(clippy::cast_possible_truncation, reason = "truncates on purpose")]
    let whole: Vec<i64> = doubles.iter().map(|x| *x as i64).collect();
    let whole = Tensor::from_shape(input.shape(), &whole)?;
    Ok(whole.cast_to_dt(to)?.into_owned())
}
