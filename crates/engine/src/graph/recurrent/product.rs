//! Products of states with R, the recurrent weights.
//!
//! A small stored R is multiplied here, row by row, because a step of a small recurrence takes less
//! time than running a plan. Other products run as small plans of the library, which has the best
//! code for each shape and packs a stored R once.
//!
//! Invariant: a plan that failed is not used again.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Slice;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::plan::SimplePlan;
use tract_onnx::tract_core::tract_data::itertools::izip;

use super::super::fast;
use super::cell::{Cell, CellKind, RecurrentNumber};

/// Maximum number of multiplications of a small product, which is faster to compute than to plan.
const MAX_SMALL_MULTIPLICATIONS: usize = 1 << 12;
/// Number of rows of R that are added at once.
const ROWS_AT_ONCE: usize = 4;

/// A product with some rows of R.
#[derive(Debug, Clone)]
pub(crate) struct RecurrentProduct {
    plan: Arc<TypedSimplePlan>,
    /// Number of rows of R.
    rows: usize,
    /// Idle states of the plan, for the next products.
    idle: Arc<Idle>,
    /// Is `true` if R is part of the plan, `false` if it is an input.
    is_stored: bool,
    /// Is `true` if R is stored and finite. Zero times R is zero then.
    is_finite: bool,
    /// A small stored R, transposed so that the factors of one state element are contiguous.
    turned: Option<Arc<Tensor>>,
}

#[derive(Default)]
struct Idle(Mutex<Vec<TypedSimpleState>>);

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Idle")
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
        let (dtype, stored) = (weights.datum_type, weights.konst.as_ref());
        let size = weights.shape[1].clone();
        let mut model = TypedModel::default();
        let batch = match batch.as_i64() {
            Some(batch) => batch.to_dim(),
            None => model.symbols.sym("batch").to_dim(),
        };
        let state = model.add_source("state", dtype.fact([batch, size]))?;
        let mut turned = None;
        let mut is_finite = false;
        let weights = if let Some(stored) = stored {
            let stored = stored.slice(0, rows.start, rows.end)?;
            if (1..=MAX_SMALL_MULTIPLICATIONS).contains(&stored.len()) {
                turned = Some(stored.clone().permute_axes(&[1, 0])?.into_arc_tensor());
            }
            is_finite = match dtype {
                DatumType::F32 => all_finite::<f32>(&stored)?,
                DatumType::F64 => all_finite::<f64>(&stored)?,
                _ => false,
            };
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
            idle: Arc::default(),
            is_stored: stored.is_some(),
            rows: rows.len(),
            is_finite,
            turned,
        })
    }

    /// Returns the graph that computes the product.
    pub(crate) fn graph(&self) -> &TypedModel {
        self.plan.model()
    }

    /// Returns the transposed R, if the product is computed without the graph.
    pub(crate) fn turned(&self) -> Option<&Arc<Tensor>> {
        self.turned.as_ref()
    }

    /// Multiplies states of this size with R. `weights` is the whole R; it is used only if R is not
    /// stored.
    pub(crate) fn multiply<T: RecurrentNumber>(
        &self,
        states: &[T],
        size: usize,
        weights: &TValue,
    ) -> TractResult<Vec<T>> {
        let batch = states.len() / size.max(1);
        // Fast path for the zero state with which most sequences start.
        if self.is_finite && states.iter().all(T::is_zero) {
            return Ok(vec![T::zero(); batch * self.rows]);
        }
        if let Some(turned) = &self.turned
            && batch * turned.len() <= MAX_SMALL_MULTIPLICATIONS
        {
            let view = turned.try_as_plain_ram()?;
            return Ok(small(states, size, view.as_slice::<T>()?));
        }
        let states = Tensor::from_shape(&[batch, size], states)?;
        let mut inputs = tvec!(states.into_tvalue());
        if !self.is_stored {
            inputs.push(weights.clone());
        }
        let waiting = self.idle().pop();
        let mut state = waiting.map_or_else(|| self.plan.spawn(), Ok)?;
        let outputs = state.run(inputs)?;
        self.idle().push(state);
        let product = args_1!(outputs);
        let view = product.try_as_plain_ram()?;
        Ok(view.as_slice::<T>()?.to_vec())
    }

    fn idle(&self) -> impl std::ops::DerefMut<Target = Vec<TypedSimpleState>> {
        self.idle.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn all_finite<T: RecurrentNumber>(weights: &Tensor) -> TractResult<bool> {
    let view = weights.try_as_plain_ram()?;
    Ok(view
        .as_slice::<T>()?
        .iter()
        .all(|weight| weight.is_finite()))
}

/// Computes the product with a transposed R of at least one element: sums over its rows, computed
/// side by side.
fn small<T: RecurrentNumber>(states: &[T], size: usize, turned: &[T]) -> Vec<T> {
    let width = turned.len() / size;
    let mut sums = vec![T::zero(); states.len() / size * width];
    for (state, sums) in states.chunks_exact(size).zip(sums.chunks_exact_mut(width)) {
        let blocks = turned.chunks(ROWS_AT_ONCE * width);
        for (elements, rows) in state.chunks(ROWS_AT_ONCE).zip(blocks) {
            let &[a, b, c, d] = elements else {
                for (element, row) in elements.iter().zip(rows.chunks_exact(width)) {
                    for (sum, weight) in sums.iter_mut().zip(row) {
                        *sum = *sum + *element * *weight;
                    }
                }
                continue;
            };
            let (front, back) = rows.split_at(2 * width);
            let (first, second) = front.split_at(width);
            let (third, fourth) = back.split_at(width);
            for (sum, p, q, r, s) in izip!(&mut *sums, first, second, third, fourth) {
                *sum = *sum + ((a * *p + b * *q) + (c * *r + d * *s));
            }
        }
    }
    sums
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
        let found = product.multiply(states, size, &whole);
        found.expect("it can be multiplied")
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

    /// Covers small and large products, a part of R and all of it, with and without a known batch.
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
                let mut planned = product.clone();
                planned.turned = None;
                for round in 0..3 {
                    let states = numbers(batch * size, 17 + round);
                    let what = format!("{rows} x {size}, batch {batch_size}, round {round}");
                    let sums = expected(&weights, part.clone(), &states, size);
                    assert_close(&run(&product, &weights, &states, size), &sums, &what);
                    assert_close(&run(&planned, &weights, &states, size), &sums, &what);
                }
                assert_eq!(product.turned.is_some(), rows < 600);
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
