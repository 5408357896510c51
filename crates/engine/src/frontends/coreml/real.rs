//! Helpers for common operator calls on real numbers. Results are float32.

use tract_onnx::tract_core::internal::*;

use super::{CoremlLowering, Operation};
use crate::graph::builder::Wire;
use crate::graph::calling::CallArg;
use crate::tensor::DType;

/// Maximum number of elements of a tensor created from numbers or from a smaller tensor.
const MAX_CREATED_ELEMENTS: i64 = 1 << 30;

impl CoremlLowering<'_, '_> {
    /// Applies a function to a tensor (for example `exp`).
    pub(super) fn function(&mut self, name: &str, x: Wire) -> TractResult<Wire> {
        self.aten(&format!("aten::{name}.out"), vec![x.into()], DType::Float32)
    }

    /// Computes `add`, `sub`, `mul` or `div` of a tensor and a tensor or number.
    pub(super) fn binary(
        &mut self,
        name: &str,
        x: Wire,
        y: impl Into<CallArg>,
    ) -> TractResult<Wire> {
        let y = y.into();
        let full = match y {
            CallArg::Tensor(_) => format!("aten::{name}.out"),
            _ => format!("aten::{name}.Scalar_out"),
        };
        let mut args = vec![x.into(), y];
        if matches!(name, "add" | "sub") {
            args.push(CallArg::from(1));
        }
        self.aten(&full, args, DType::Float32)
    }

    /// Clamps a tensor to a range.
    pub(super) fn clamped(
        &mut self,
        x: Wire,
        low: Option<f64>,
        high: Option<f64>,
    ) -> TractResult<Wire> {
        let args = vec![x.into(), low.into(), high.into()];
        self.aten("aten::clamp.out", args, DType::Float32)
    }

    /// Sums over these dimensions.
    pub(super) fn sum(&mut self, x: Wire, axes: &[i64], keep: bool) -> TractResult<Wire> {
        let args = vec![x.into(), axes.into(), keep.into(), CallArg::None];
        self.aten("aten::sum.IntList_out", args, DType::Float32)
    }

    /// Selects between two tensors by a condition.
    pub(super) fn select(&mut self, condition: Wire, a: Wire, b: Wire) -> TractResult<Wire> {
        let args = vec![condition.into(), a.into(), b.into()];
        self.aten("aten::where.self_out", args, a.dtype)
    }

    /// Reshapes a tensor of one dimension to this rank, along `axis`.
    pub(super) fn along(&mut self, x: Wire, axis: usize, rank: usize) -> TractResult<Wire> {
        let shape = self.shape(x)?;
        ensure!(
            shape.len() == 1 && axis < rank,
            "cannot place a tensor of shape {shape:?} along dimension {axis} of {rank}"
        );
        let mut outlet = x.outlet;
        for at in 0..rank {
            if at != axis {
                outlet = self.frame.builder.wire(AxisOp::Add(at), &[outlet])?;
            }
        }
        Ok(Wire { outlet, ..x })
    }

    /// Reshapes a tensor.
    pub(super) fn reshaped(&mut self, x: Wire, shape: &[TDim]) -> TractResult<Wire> {
        let outlet = self.frame.builder.reshape(x.outlet, shape)?;
        Ok(Wire { outlet, ..x })
    }

    /// Permutes the dimensions of a tensor.
    pub(super) fn permuted(&mut self, x: Wire, order: &[usize]) -> TractResult<Wire> {
        let outlet = self.frame.builder.transpose(x.outlet, order)?;
        Ok(Wire { outlet, ..x })
    }

    /// Returns the declared sizes of an operation's result, and whether any of them is unknown.
    /// Unknown sizes become new symbols.
    pub(super) fn declared_sizes(
        &mut self,
        operation: &Operation,
        at: usize,
    ) -> TractResult<(Vec<TDim>, bool)> {
        let (_, ty) = operation
            .outputs
            .get(at)
            .context("the result is not declared")?;
        let symbols = &self.frame.builder.model.symbols;
        let dims = ty.dims.iter().map(|dim| match dim {
            Some(size) => Ok(i64::try_from(*size)?.to_dim()),
            None => Ok(symbols.new_with_prefix("count").into()),
        });
        let dims = dims.collect::<TractResult<_>>()?;
        Ok((dims, ty.dims.contains(&None)))
    }
}

/// Rejects a shape that is too large to create from numbers.
pub(super) fn check_size(shape: &[TDim]) -> TractResult<()> {
    let known: Vec<i64> = shape.iter().filter_map(|size| size.to_i64().ok()).collect();
    ensure!(
        known.iter().all(|size| *size >= 0),
        "invalid shape {shape:?}"
    );
    let count = known
        .iter()
        .fold(1_i64, |count, size| count.saturating_mul(*size));
    ensure!(
        count <= MAX_CREATED_ELEMENTS,
        "tensor too large: {count} elements, at most {MAX_CREATED_ELEMENTS} are supported"
    );
    Ok(())
}
