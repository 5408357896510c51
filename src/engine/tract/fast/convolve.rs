//! Convolutions as operators of the library's graph.

use std::fmt;
use std::sync::Arc;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cnn::PoolSpec;

use crate::engine::tract::images::placed;
use crate::engine::tract::pool::on_pool;
use crate::kernels::float::Convolution;

/// A convolution of `[n, h, w, c]`, or `[n, w, c]`, in float32: an image, and one of the output's shape that is
/// added where there are two inputs.
#[derive(Clone)]
pub(in crate::engine::tract) struct Convolve {
    spec: PoolSpec,
    kernel: Arc<Convolution>,
}

impl Convolve {
    /// The operator. `spec` has channels last and an axis of images.
    pub(super) fn new(spec: PoolSpec, kernel: Convolution) -> Self {
        Self {
            spec,
            kernel: Arc::new(kernel),
        }
    }

    /// Where its packed weights are, and how many bytes they take.
    pub(in crate::engine::tract) fn holds(&self) -> (usize, usize) {
        (Arc::as_ptr(&self.kernel).addr(), self.kernel.bytes())
    }

    fn run(&self, inputs: &[TValue]) -> TractResult<Tensor> {
        let (output_shape, placed) = placed(&self.spec, inputs[0].shape())?;
        let mut output = Tensor::zero::<f32>(&output_shape)?;
        {
            let image = inputs[0].try_as_plain_ram()?;
            let image = image.as_slice::<f32>()?;
            let added = inputs.get(1).map(|added| added.try_as_plain_ram());
            let added = added.transpose()?;
            let added = added.as_ref().map(PlainView::as_slice::<f32>);
            let added = added.transpose()?;
            let mut view = output.try_as_plain_ram_mut()?;
            let values = view.as_slice_mut::<f32>()?;
            let ran = on_pool(|split| self.kernel.run(&placed, image, added, values, split));
            ran.map_err(TractError::msg)?;
        }
        Ok(output)
    }
}

impl fmt::Debug for Convolve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Convolve({:?})", self.spec)
    }
}

impl PartialEq for Convolve {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec && Arc::ptr_eq(&self.kernel, &other.kernel)
    }
}

impl Eq for Convolve {}

impl Op for Convolve {
    fn name(&self) -> StaticName {
        "Convolve".into()
    }

    op_as_typed_op!();
}

impl EvalOp for Convolve {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        Ok(tvec!(self.run(&inputs)?.into_tvalue()))
    }
}

impl TypedOp for Convolve {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let facts = self.spec.output_facts(inputs)?;
        if let Some(added) = inputs.get(1) {
            ensure!(
                added.shape == facts[0].shape,
                "a sum of {:?} and {:?}",
                facts[0].shape,
                added.shape
            );
        }
        Ok(facts)
    }

    as_op!();
}
