//! Operators of ours in the library's graph, for what the library has none of.
//!
//! A kernel is a function over whole tensors and the facts of what it gives. It keeps nothing between
//! runs but weights that it was made with, so the library may run it while it plans, where all inputs are
//! known.

use std::fmt;
use std::sync::Arc;

use tract_onnx::tract_core::internal::*;

type Function = dyn Fn(&[TValue]) -> TractResult<TVec<TValue>> + Send + Sync;

/// What an operator gives.
#[derive(Clone)]
enum Gives {
    /// Tensors of these facts.
    Facts(Vec<TypedFact>),
    /// One tensor of the shape of its inputs, which are all of one shape, each element from those at its
    /// place: the library may turn its axes.
    Elements(DatumType),
    /// One tensor of the shape of its first input; others may have one element where that has many.
    Repeated(DatumType),
}

/// An operator of ours.
#[derive(Clone)]
pub(in crate::engine::tract) struct Kernel {
    name: &'static str,
    function: Arc<Function>,
    gives: Gives,
    binds: bool,
    held: usize,
}

impl Kernel {
    /// An operator that gives tensors of these facts.
    pub(in crate::engine::tract) fn new<V: IntoTValue>(
        name: &'static str,
        facts: TVec<TypedFact>,
        function: impl Fn(&[TValue]) -> TractResult<TVec<V>> + Send + Sync + 'static,
    ) -> Self {
        let function = move |inputs: &[TValue]| {
            let outputs = function(inputs)?.into_iter();
            Ok(outputs.map(IntoTValue::into_tvalue).collect())
        };
        Self {
            name,
            function: Arc::new(function),
            gives: Gives::Facts(facts.into_vec()),
            binds: false,
            held: 0,
        }
    }

    /// An operator that gives a tensor of its inputs' shape, each element from those at its place.
    pub(super) fn of_elements<V: IntoTValue>(
        name: &'static str,
        dtype: DatumType,
        function: impl Fn(&[TValue]) -> TractResult<TVec<V>> + Send + Sync + 'static,
    ) -> Self {
        let gives = Gives::Elements(dtype);
        Self {
            gives,
            ..Self::new(name, tvec!(), function)
        }
    }

    /// The same operator, whose function keeps this many bytes of weights.
    pub(in crate::engine::tract) fn holding(mut self, bytes: usize) -> Self {
        self.held = bytes;
        self
    }

    /// An operator that gives a tensor of its first input's shape, each element from those at its place, where
    /// others' elements are repeated along what they have one of.
    pub(super) fn repeating<V: IntoTValue>(
        name: &'static str,
        dtype: DatumType,
        function: impl Fn(&[TValue]) -> TractResult<TVec<V>> + Send + Sync + 'static,
    ) -> Self {
        let gives = Gives::Repeated(dtype);
        Self {
            gives,
            ..Self::new(name, tvec!(), function)
        }
    }

    /// How many bytes of weights its function keeps, and an address that is the same for all who share it.
    pub(super) fn held(&self) -> (usize, usize) {
        (Arc::as_ptr(&self.function).addr(), self.held)
    }

    /// The same operator, whose run tells the value of symbols in its facts.
    pub(super) fn binding(mut self) -> Self {
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

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        (self.function)(&inputs)
    }
}

impl TypedOp for Kernel {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        match &self.gives {
            Gives::Facts(facts) => Ok(facts.iter().cloned().collect()),
            Gives::Elements(dtype) | Gives::Repeated(dtype) => {
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
            Gives::Facts(_) => false,
            Gives::Elements(_) => true,
            // Dimensions of which one has many cannot be taken together.
            Gives::Repeated(_) => matches!(change, AxisOp::Move(..)),
        };
        Ok(turns.then(|| AxisChangeConsequence::new(model, node, None, change)))
    }

    as_op!();
}
