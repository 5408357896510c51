//! Products with constant matrices as operators of the library's graph.

use std::fmt;
use std::sync::Arc;

use tract_onnx::tract_core::internal::*;

use crate::engine::tract::pool::on_pool;
use crate::kernels::float::Product;

/// Rows times a matrix in float32: `[…, inputs]` to `[…, outputs]`, and where there are two inputs the second, of
/// the output's shape, is added.
#[derive(Clone)]
pub(in crate::engine::tract) struct Multiply {
    outputs: usize,
    kernel: Arc<Product>,
}

impl Multiply {
    /// The operator, which gives so many numbers a row.
    pub(super) fn new(outputs: usize, kernel: Product) -> Self {
        Self {
            outputs,
            kernel: Arc::new(kernel),
        }
    }

    /// Where its packed weights are, and how many bytes they take.
    pub(in crate::engine::tract) fn holds(&self) -> (usize, usize) {
        (Arc::as_ptr(&self.kernel).addr(), self.kernel.bytes())
    }

    fn run(&self, inputs: &[TValue]) -> TractResult<Tensor> {
        let mut shape: TVec<usize> = inputs[0].shape().into();
        let last = shape.last_mut().context("rows without numbers")?;
        *last = self.outputs;
        let rows = shape[..shape.len() - 1].iter().product();
        let mut output = Tensor::zero::<f32>(&shape)?;
        {
            let input = inputs[0].try_as_plain_ram()?;
            let input = input.as_slice::<f32>()?;
            let added = inputs.get(1).map(|added| added.try_as_plain_ram());
            let added = added.transpose()?;
            let added = added.as_ref().map(PlainView::as_slice::<f32>);
            let added = added.transpose()?;
            let mut view = output.try_as_plain_ram_mut()?;
            let values = view.as_slice_mut::<f32>()?;
            let ran = on_pool(|split| self.kernel.run(rows, input, added, values, split));
            ran.map_err(TractError::msg)?;
        }
        Ok(output)
    }
}

impl fmt::Debug for Multiply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Multiply(to {})", self.outputs)
    }
}

impl PartialEq for Multiply {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.kernel, &other.kernel)
    }
}

impl Eq for Multiply {}

impl Op for Multiply {
    fn name(&self) -> StaticName {
        "Multiply".into()
    }

    op_as_typed_op!();
}

impl EvalOp for Multiply {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        Ok(tvec!(self.run(&inputs)?.into_tvalue()))
    }
}

impl TypedOp for Multiply {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let mut shape = inputs[0].shape.to_tvec();
        let last = shape.last_mut().context("rows without numbers")?;
        *last = self.outputs.to_dim();
        if let Some(added) = inputs.get(1) {
            ensure!(
                added.shape.dims() == &*shape,
                "a sum of {shape:?} and {:?}",
                added.shape
            );
        }
        Ok(tvec!(inputs[0].datum_type.fact(shape)))
    }

    as_op!();
}
