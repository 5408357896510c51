//! Products of states with R, the recurrent weights.
//!
//! A stored R of float32 or of bytes is packed for a kernel. Other products run as small plans of
//! the library.
//!
//! Invariant: a plan that failed is not used again.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Slice;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::plan::SimplePlan;

use super::super::fast;
use super::cell::{Cell, CellKind, RecurrentNumber};
use super::quantised::RecurrentBytes;
use pkgtool_kernels::float::{Activation, FloatProduct};
use pkgtool_kernels::{Cpu, Split};

/// A product with some rows of R.
#[derive(Debug, Clone)]
pub(crate) struct RecurrentProduct {
    by: Arc<Weights>,
    /// Number of rows of R.
    rows: usize,
    /// Is `true` if R is stored and finite. Zero times R is zero then.
    is_finite: bool,
}

/// R, as states are multiplied by it.
#[derive(Debug)]
enum Weights {
    Floats(FloatProduct),
    Bytes(RecurrentBytes),
    Planned(PlannedProduct),
}

/// A product as a plan of the library.
struct PlannedProduct {
    plan: Arc<TypedSimplePlan>,
    /// Idle states of the plan, for the next products.
    idle: Mutex<Vec<TypedSimpleState>>,
    /// Is `true` if R is an input of the plan, not part of it.
    reads_weights: bool,
}

impl fmt::Debug for PlannedProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlannedProduct({:?})", self.plan)
    }
}

/// Returns the product with R; for a `GRU` that resets its state before the product, the product of
/// the first two gates and that of the last one.
pub(crate) fn products(
    cell: &Cell,
    weights: &TypedFact,
    batch: &TDim,
) -> TractResult<(RecurrentProduct, Option<RecurrentProduct>)> {
    let size = weights.shape[1].to_usize()?;
    let all = cell.kind.gates() * size;
    if cell.kind == CellKind::Gru && !cell.linear_before_reset {
        let first = RecurrentProduct::new(weights, 0..2 * size, batch)?;
        let last = RecurrentProduct::new(weights, 2 * size..all, batch)?;
        return Ok((first, Some(last)));
    }
    Ok((RecurrentProduct::new(weights, 0..all, batch)?, None))
}

impl RecurrentProduct {
    /// Creates the product of a batch of states with these rows of R.
    pub(crate) fn new(weights: &TypedFact, rows: Range<usize>, batch: &TDim) -> TractResult<Self> {
        let stored = weights.konst.as_ref();
        let stored = stored.map(|stored| stored.slice(0, rows.start, rows.end));
        let stored = stored.transpose()?;
        let (by, is_finite) = match (weights.datum_type, &stored) {
            (DatumType::F32, Some(stored)) if stored.len() > 0 => {
                let numbers = stored.try_as_plain_ram()?;
                let numbers = numbers.as_slice::<f32>()?;
                let (inputs, outputs, cpu) = (stored.shape()[1], rows.len(), Cpu::chosen());
                let packed =
                    FloatProduct::new(cpu, inputs, outputs, numbers, None, Activation::None);
                let is_finite = numbers.iter().all(|weight| weight.is_finite());
                (Weights::Floats(packed.map_err(TractError::msg)?), is_finite)
            }
            _ => {
                let planned = PlannedProduct::new(weights, stored, rows.clone(), batch)?;
                (Weights::Planned(planned), false)
            }
        };
        Ok(Self {
            by: Arc::new(by),
            rows: rows.len(),
            is_finite,
        })
    }

    /// Creates the product with bytes.
    pub(crate) fn of_bytes(product: RecurrentBytes) -> Self {
        Self {
            rows: product.outputs(),
            by: Arc::new(Weights::Bytes(product)),
            is_finite: true,
        }
    }

    /// Returns the graph that computes the product, if one does.
    pub(crate) fn graph(&self) -> Option<&TypedModel> {
        match &*self.by {
            Weights::Planned(planned) => Some(planned.plan.model()),
            _ => None,
        }
    }

    /// Returns the address and the size of the packed weights, in bytes.
    pub(crate) fn held(&self) -> (usize, usize) {
        let bytes = match &*self.by {
            Weights::Floats(product) => product.bytes(),
            Weights::Bytes(product) => product.bytes(),
            Weights::Planned(_) => 0,
        };
        (Arc::as_ptr(&self.by).addr(), bytes)
    }

    /// Multiplies states of this size with R and writes the sums to `to`. `weights` is the whole R,
    /// if it is not stored.
    pub(crate) fn multiply<T: RecurrentNumber>(
        &self,
        states: &[T],
        size: usize,
        weights: Option<&TValue>,
        to: &mut Vec<T>,
    ) -> TractResult<()> {
        let batch = states.len() / size.max(1);
        to.clear();
        to.resize(batch * self.rows, T::zero());
        // Fast path for the zero state with which most sequences start.
        if self.is_finite && states.iter().all(T::is_zero) {
            return Ok(());
        }
        let single = || T::single(states).context("packed weights are float32");
        match &*self.by {
            Weights::Floats(product) => {
                let (states, to) = (single()?, T::single_mut(to).unwrap_or_default());
                let done = product.run(batch, states, None, to, Split::current());
                done.map_err(TractError::msg)
            }
            Weights::Bytes(product) => {
                let (states, to) = (single()?, T::single_mut(to).unwrap_or_default());
                let done = product.run(states, to, Split::current());
                done.map_err(TractError::msg)
            }
            Weights::Planned(planned) => {
                let states = Tensor::from_shape(&[batch, size], states)?;
                let product = planned.run(states, weights)?;
                let view = product.try_as_plain_ram()?;
                to.copy_from_slice(view.as_slice::<T>()?);
                Ok(())
            }
        }
    }
}

impl PlannedProduct {
    fn new(
        weights: &TypedFact,
        stored: Option<Tensor>,
        rows: Range<usize>,
        batch: &TDim,
    ) -> TractResult<Self> {
        let dtype = weights.datum_type;
        let mut model = TypedModel::default();
        let batch = match batch.as_i64() {
            Some(batch) => batch.to_dim(),
            None => model.symbols.sym("batch").to_dim(),
        };
        let state = model.add_source("state", dtype.fact([batch, weights.shape[1].clone()]))?;
        let reads_weights = stored.is_none();
        let weights = if let Some(stored) = stored {
            model.add_const("weights", stored)?
        } else {
            let whole = model.add_source("whole", weights.without_value())?;
            model.wire_node("weights", Slice::new(0, rows.start, rows.end), &[whole])?[0]
        };
        let product = EinSum::new("nk,gk->ng".parse()?, dtype);
        let outputs = model.wire_node("product", product, &[state, weights])?;
        model.select_output_outlets(&outputs)?;
        Ok(Self {
            plan: SimplePlan::new(fast::optimized(model, |_| None, |_| Ok(()))?)?,
            idle: Mutex::default(),
            reads_weights,
        })
    }

    fn run(&self, states: Tensor, weights: Option<&TValue>) -> TractResult<TValue> {
        let mut inputs = tvec!(states.into_tvalue());
        if self.reads_weights {
            inputs.push(weights.context("computed weights are missing")?.clone());
        }
        let waiting = self.idle().pop();
        let mut state = waiting.map_or_else(|| self.plan.spawn(), Ok)?;
        let outputs = state.run(inputs)?;
        self.idle().push(state);
        Ok(args_1!(outputs))
    }

    fn idle(&self) -> impl std::ops::DerefMut<Target = Vec<TypedSimpleState>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers between -1 and 1.
    fn numbers(count: usize, period: usize) -> Vec<f32> {
        let place = |at: usize| u8::try_from(at % period).expect("it is small");
        (0..count)
            .map(|at| (f32::from(place(at)) * 0.37).sin())
            .collect()
    }

    /// Returns R as a stored tensor.
    fn stored(rows: usize, size: usize) -> TypedFact {
        let weights = Tensor::from_shape(&[rows, size], &numbers(rows * size, 101));
        let weights = weights.expect("it has as many elements").into_arc_tensor();
        TypedFact::try_from(&weights).expect("every tensor has a fact")
    }

    fn run(
        product: &RecurrentProduct,
        weights: &TypedFact,
        states: &[f32],
        size: usize,
    ) -> Vec<f32> {
        let whole = weights.konst.clone().expect("it is stored").into_tvalue();
        let mut found = Vec::new();
        let done = product.multiply(states, size, Some(&whole), &mut found);
        done.expect("it can be multiplied");
        found
    }

    fn assert_close(found: &[f32], expected: &[f32], what: &str) {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() < 1e-4,
                "{what}: {found}, {expected}"
            );
        }
    }

    /// Multiplies rows of R with states, one by one.
    fn expected(weights: &TypedFact, rows: Range<usize>, states: &[f32], size: usize) -> Vec<f32> {
        let weights = weights.konst.as_ref().expect("it is stored");
        let view = weights.try_as_plain_ram().expect("it is plain");
        let weights = view.as_slice::<f32>().expect("they are float32");
        let mut sums = Vec::new();
        for state in states.chunks(size) {
            for row in weights[rows.start * size..rows.end * size].chunks(size) {
                sums.push(
                    row.iter()
                        .zip(state)
                        .map(|(left, right)| left * right)
                        .sum(),
                );
            }
        }
        sums
    }

    /// Covers a stored and a computed R, a part of it and all, with and without a known batch.
    /// Each runs three times, with other states in between.
    #[test]
    fn each_way_to_multiply_gives_the_product_in_every_run() {
        for (rows, size, batch) in [
            (12, 4, 1),
            (9, 3, 2),
            (10, 7, 3),
            (600, 100, 1),
            (600, 100, 2),
        ] {
            let weights = stored(rows, size);
            let part = rows / 3..rows;
            let known = batch.to_dim();
            let unknown = SymbolScope::default().sym("n").to_dim();
            for batch_size in [known, unknown] {
                let product = RecurrentProduct::new(&weights, part.clone(), &batch_size);
                let product = product.expect("it can be planned");
                let computed = TypedFact::dt_shape(DatumType::F32, &*weights.shape);
                let planned = RecurrentProduct::new(&computed, part.clone(), &batch_size);
                let planned = planned.expect("it can be planned");
                assert!(product.graph().is_none() && planned.graph().is_some());
                for round in 0..3 {
                    let states = numbers(batch * size, 17 + round);
                    let what = format!("{rows} x {size}, batch {batch_size}, round {round}");
                    let sums = expected(&weights, part.clone(), &states, size);
                    assert_close(&run(&product, &weights, &states, size), &sums, &what);
                    assert_close(&run(&planned, &weights, &states, size), &sums, &what);
                }
            }
        }
    }

    /// A zero state needs no product, unless R has infinities or NaN.
    #[test]
    fn zeros_times_anything_finite_are_zeros() {
        let batch = 2.to_dim();
        let weights = stored(9, 3);
        let product = RecurrentProduct::new(&weights, 0..9, &batch).expect("it can be planned");
        assert_eq!(run(&product, &weights, &[-0.0; 6], 3), [0.0; 18]);
        for infinite in [f32::INFINITY, f32::NAN] {
            let mut numbers = numbers(27, 101);
            numbers[4] = infinite;
            let weights = Tensor::from_shape(&[9, 3], &numbers).expect("it has as many elements");
            let weights = TypedFact::try_from(&weights.into_arc_tensor()).expect("it has a fact");
            let product = RecurrentProduct::new(&weights, 0..9, &batch).expect("it can be planned");
            let found = run(&product, &weights, &[0.0; 6], 3);
            for (at, found) in found.iter().enumerate() {
                assert_eq!(found.is_nan(), at % 9 == 1, "{infinite} at {at}");
            }
        }
    }
}
