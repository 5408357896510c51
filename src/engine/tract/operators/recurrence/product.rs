//! Products with R, by a small plan of the library: it has the best code for each shape, and packs a
//! stored R once.

use std::ops::Range;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Slice;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::plan::SimplePlan;

use super::cell::Number;

/// A product with some rows of R.
#[derive(Debug, Clone)]
pub(super) struct Product {
    plan: Arc<TypedSimplePlan>,
    /// Whether R is part of the plan, not an input.
    is_stored: bool,
}

impl Product {
    /// A product of a batch of states with these rows of R.
    pub(super) fn new(weights: &TypedFact, rows: Range<usize>, batch: &TDim) -> TractResult<Self> {
        let (dtype, stored) = (weights.datum_type, weights.konst.as_ref());
        let size = weights.shape[1].clone();
        let mut model = TypedModel::default();
        let batch = match batch.as_i64() {
            Some(batch) => batch.to_dim(),
            None => model.symbols.sym("batch").to_dim(),
        };
        let state = model.add_source("state", dtype.fact([batch, size]))?;
        let weights = if let Some(stored) = stored {
            model.add_const("weights", stored.slice(0, rows.start, rows.end)?)?
        } else {
            let whole = model.add_source("whole", weights.without_value())?;
            model.wire_node("weights", Slice::new(0, rows.start, rows.end), &[whole])?[0]
        };
        let product = EinSum::new("nk,gk->ng".parse()?, dtype);
        let outputs = model.wire_node("product", product, &[state, weights])?;
        model.select_output_outlets(&outputs)?;
        Ok(Self {
            plan: SimplePlan::new(model.into_optimized()?)?,
            is_stored: stored.is_some(),
        })
    }

    /// The product with this R, which matters only if none is stored.
    pub(super) fn start(&self, weights: &TValue) -> TractResult<Multiplier> {
        Ok(Multiplier {
            state: self.plan.spawn()?,
            weights: (!self.is_stored).then(|| weights.clone()),
        })
    }
}

/// A product that is being used.
pub(super) struct Multiplier {
    state: TypedSimpleState,
    weights: Option<TValue>,
}

impl Multiplier {
    /// The product with some states of this size.
    pub(super) fn multiply<T: Number>(&mut self, states: &[T], size: usize) -> TractResult<Tensor> {
        let states = Tensor::from_shape(&[states.len() / size.max(1), size], states)?;
        let mut inputs = tvec!(states.into_tvalue());
        inputs.extend(self.weights.clone());
        let outputs = self.state.run(inputs)?;
        Ok(args_1!(outputs).into_tensor())
    }
}
