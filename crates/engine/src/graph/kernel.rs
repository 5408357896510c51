//! Operators of this crate inside the library's graph ([`Kernel`]), for computations that the
//! library lacks.
//!
//! A kernel is a function over whole tensors, with the facts of its outputs. Between runs it keeps
//! only its weights, so the library may run it while planning if all inputs are known.

use std::fmt;
use std::sync::Arc;

use tract_onnx::tract_core::internal::*;

type KernelFunction = dyn Fn(&EvalContext, &[TValue]) -> TractResult<TVec<TValue>> + Send + Sync;

/// The outputs of a kernel.
#[derive(Clone)]
enum KernelOutput {
    /// Tensors of these facts.
    Facts(Vec<TypedFact>),
    /// One tensor with the shape of its inputs, which all have the same shape. Each element depends
    /// only on the elements at its position, so the library may transpose the operator's axes.
    Elements(DatumType),
    /// One tensor with the shape of the first input. Other inputs may have size 1 along any
    /// dimension (broadcasting).
    Repeated(DatumType),
}

/// An operator of this crate.
#[derive(Clone)]
pub(crate) struct Kernel {
    name: &'static str,
    function: Arc<KernelFunction>,
    gives: KernelOutput,
    binds: bool,
    held: usize,
}

impl Kernel {
    /// Creates an operator with outputs of these facts.
    pub(crate) fn new<V: IntoTValue>(
        name: &'static str,
        facts: TVec<TypedFact>,
        function: impl Fn(&[TValue]) -> TractResult<TVec<V>> + Send + Sync + 'static,
    ) -> Self {
        Self::with_context(name, facts, move |_, inputs| function(inputs))
    }

    /// Like [`new`](Self::new), for a function that needs the values of the run's symbols.
    pub(crate) fn with_context<V: IntoTValue>(
        name: &'static str,
        facts: TVec<TypedFact>,
        function: impl Fn(&EvalContext, &[TValue]) -> TractResult<TVec<V>> + Send + Sync + 'static,
    ) -> Self {
        Self::of_values(name, facts, move |context, inputs| {
            let outputs = function(context, inputs)?.into_iter();
            Ok(outputs.map(IntoTValue::into_tvalue).collect())
        })
    }

    /// Like [`with_context`](Self::with_context), for a function that returns the library's values.
    pub(crate) fn of_values(
        name: &'static str,
        facts: TVec<TypedFact>,
        function: impl Fn(&EvalContext, &[TValue]) -> TractResult<TVec<TValue>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            function: Arc::new(function),
            gives: KernelOutput::Facts(facts.into_vec()),
            binds: false,
            held: 0,
        }
    }

    /// Creates an operator with an output of its inputs' shape, computed element by element.
    pub(crate) fn of_elements<V: IntoTValue>(
        name: &'static str,
        dtype: DatumType,
        function: impl Fn(&[TValue]) -> TractResult<TVec<V>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, tvec!(), function).giving(KernelOutput::Elements(dtype))
    }

    fn giving(mut self, gives: KernelOutput) -> Self {
        self.gives = gives;
        self
    }

    /// Sets the number of bytes of weights that the function keeps.
    pub(crate) fn with_weight_bytes(mut self, bytes: usize) -> Self {
        self.held = bytes;
        self
    }

    /// Creates an operator with an output of its first input's shape, computed element by element.
    /// The other inputs are broadcast along dimensions of size 1.
    pub(crate) fn repeating<V: IntoTValue>(
        name: &'static str,
        dtype: DatumType,
        function: impl Fn(&[TValue]) -> TractResult<TVec<V>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, tvec!(), function).giving(KernelOutput::Repeated(dtype))
    }

    /// Returns the bytes of weights that the function keeps, and an address that is the same for
    /// all copies that share it.
    pub(crate) fn held(&self) -> (usize, usize) {
        (Arc::as_ptr(&self.function).addr(), self.held)
    }

    /// Declares that running the operator binds the symbols in its facts.
    pub(crate) fn binding(mut self) -> Self {
        self.binds = true;
        self
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.function, &other.function)
    }
}

impl Eq for Kernel {}

impl Op for Kernel {
    fn name(&self) -> StaticName {
        self.name.into()
    }

    fn mints_runtime_symbols(&self) -> bool {
        self.binds
    }

    op_as_typed_op!();
}

impl EvalOp for Kernel {
    op_out_of_plan!();

    fn eval(&self, context: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        (self.function)(context, &inputs)
    }
}

impl TypedOp for Kernel {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        match &self.gives {
            KernelOutput::Facts(facts) => Ok(facts.iter().cloned().collect()),
            KernelOutput::Elements(dtype) | KernelOutput::Repeated(dtype) => {
                Ok(tvec!(dtype.fact(inputs[0].shape.clone())))
            }
        }
    }

    fn change_axes(
        &self,
        model: &TypedModel,
        node: &TypedNode,
        _: InOut,
        change: &AxisOp,
    ) -> TractResult<Option<AxisChangeConsequence>> {
        let turns = match self.gives {
            KernelOutput::Facts(_) => false,
            KernelOutput::Elements(_) => true,
            // Dimensions cannot be merged if an input has size 1 in only one of them.
            KernelOutput::Repeated(_) => matches!(change, AxisOp::Move(..)),
        };
        Ok(turns.then(|| AxisChangeConsequence::new(model, node, None, change)))
    }

    as_op!();
}
