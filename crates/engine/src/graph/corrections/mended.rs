//! [`Corrected`]: wraps an operator of the library and corrects its inputs or its answer when it runs.

use std::fmt;

use tract_onnx::tract_core::internal::*;

/// Runs an operator and corrects its result.
pub(crate) type Correction =
    fn(&dyn TypedOp, &EvalContext, TVec<TValue>) -> TractResult<TVec<TValue>>;

/// A [`Correction`] that may capture values.
type CorrectionWith =
    dyn Fn(&dyn TypedOp, &EvalContext, TVec<TValue>) -> TractResult<TVec<TValue>> + Send + Sync;

/// An operator in a plan, with its correction.
#[derive(Clone)]
pub(crate) struct Corrected {
    inner: Box<dyn TypedOp>,
    mend: Arc<CorrectionWith>,
}

/// Wraps `operator` with its correction, as its replacement.
pub(crate) fn mended(
    operator: &dyn TypedOp,
    mend: impl Fn(&dyn TypedOp, &EvalContext, TVec<TValue>) -> TractResult<TVec<TValue>>
    + Send
    + Sync
    + 'static,
) -> Box<dyn TypedOp> {
    Box::new(Corrected {
        inner: tract_onnx::tract_core::dyn_clone::clone_box(operator),
        mend: Arc::new(mend),
    })
}

/// Wraps `operator` as it is, so that the library's optimiser neither replaces nor fuses it.
pub(crate) fn unchanged(operator: &dyn TypedOp) -> Box<dyn TypedOp> {
    mended(operator, |inner, context, inputs| {
        inner.eval(context, inputs)
    })
}

impl fmt::Debug for Corrected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mended({:?})", self.inner)
    }
}

impl PartialEq for Corrected {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Corrected {}

impl Op for Corrected {
    fn name(&self) -> StaticName {
        self.inner.name()
    }

    op_as_typed_op!();
}

impl EvalOp for Corrected {
    op_out_of_plan!();

    fn eval(&self, context: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        (self.mend)(self.inner.as_ref(), context, inputs)
    }
}

impl TypedOp for Corrected {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        self.inner.output_facts(inputs)
    }

    as_op!();
}
