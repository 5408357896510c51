//! [`RecurrentRun`]: all steps of a recurrence as one operator.
//!
//! Invariant: the state starts from the inputs and ends with the run. Rows of a batch may have
//! different lengths; a row is unchanged after its last step.

use tract_onnx::tract_core::internal::*;

use super::cell::{Cell, CellKind, CellRow, GateActivation, GateFunctions, RecurrentNumber, add};
use super::product::RecurrentProduct;

/// The operator. The numbers are input indices.
#[derive(Debug, Clone)]
pub(crate) struct RecurrentRun {
    pub(crate) cell: Cell,
    pub(crate) sides: Vec<RunSide>,
    /// The number of steps of each row.
    pub(crate) lengths: Option<usize>,
    /// The initial hidden state and cell state.
    pub(crate) states: [Option<usize>; 2],
    /// Number of elements of a state.
    pub(crate) hidden: usize,
    /// Is `true` if the hidden state after every step is an output.
    pub(crate) keeps_all: bool,
}

/// One direction.
#[derive(Debug, Clone)]
pub(crate) struct RunSide {
    pub(crate) is_reverse: bool,
    pub(crate) activations: Vec<GateActivation>,
    /// The product of the sequence with W.
    pub(crate) from_input: usize,
    /// R, unless it is part of the product.
    pub(crate) weights: Option<usize>,
    pub(crate) bias: Option<usize>,
    pub(crate) peepholes: Option<usize>,
    pub(crate) product: RecurrentProduct,
    /// The product of the reset state, for a `GRU` that resets before the product.
    pub(crate) last: Option<RecurrentProduct>,
}

impl RecurrentRun {
    /// Returns the products of states with R.
    pub(crate) fn products(&self) -> impl Iterator<Item = &RecurrentProduct> {
        let sides = self.sides.iter();
        sides.flat_map(|side| std::iter::once(&side.product).chain(&side.last))
    }

    fn compute<T: RecurrentNumber>(&self, inputs: &[TValue]) -> TractResult<TVec<TValue>> {
        let [steps, batch] = [inputs[0].shape()[0], inputs[0].shape()[1]];
        let lengths = self.lengths(inputs, steps, batch)?;
        let (sides, size) = (self.sides.len(), self.hidden);
        let kept = if self.keeps_all { steps } else { 0 };
        let mut all = Tensor::zero::<T>(&[kept, sides, batch, size])?;
        let mut hidden = Vec::with_capacity(sides * batch * size);
        let mut memory = Vec::with_capacity(sides * batch * size);
        for side in 0..sides {
            let mut walk = DirectionWalk::<T>::new(self, side, inputs, &lengths)?;
            let mut all = all.try_as_plain_ram_mut()?;
            let all = all.as_slice_mut::<T>()?;
            for step in 0..lengths.iter().copied().max().unwrap_or(0) {
                walk.step(step)?;
                if self.keeps_all {
                    walk.keep(step, all);
                }
            }
            walk.forget_empty();
            hidden.extend(walk.hidden);
            memory.extend(walk.memory);
        }
        let shape = [sides, batch, size];
        let mut outputs = tvec!(
            all.into_tvalue(),
            Tensor::from_shape(&shape, &hidden)?.into_tvalue()
        );
        if self.cell.kind == CellKind::Lstm {
            outputs.push(Tensor::from_shape(&shape, &memory)?.into_tvalue());
        }
        Ok(outputs)
    }

    /// Returns the number of steps of each row.
    fn lengths(&self, inputs: &[TValue], steps: usize, batch: usize) -> TractResult<Vec<usize>> {
        let Some(at) = self.lengths else {
            return Ok(vec![steps; batch]);
        };
        let given = inputs[at].cast_to::<i64>()?;
        let given = given.try_as_plain_ram()?;
        let given = given.as_slice::<i64>()?;
        ensure!(
            given.len() == batch,
            "got {} lengths for {batch} sequences",
            given.len()
        );
        let checked = given.iter().map(|length| {
            let fits = usize::try_from(*length)
                .ok()
                .filter(|length| *length <= steps);
            fits.with_context(|| format!("the length {length} of a sequence is not in 0..={steps}"))
        });
        checked.collect()
    }

    /// Returns the initial state of one direction.
    fn state<T: RecurrentNumber>(
        &self,
        input: Option<usize>,
        side: usize,
        inputs: &[TValue],
    ) -> TractResult<Vec<T>> {
        let size = inputs[0].shape()[1] * self.hidden;
        match input {
            Some(at) => part(&inputs[at], side, size),
            None => Ok(vec![T::zero(); size]),
        }
    }
}

/// One direction's iteration over the sequence.
struct DirectionWalk<'a, T: RecurrentNumber> {
    run: &'a RecurrentRun,
    /// The index of the direction.
    at: usize,
    lengths: &'a [usize],
    from_input: &'a [T],
    bias: Option<Vec<T>>,
    peepholes: Option<Vec<T>>,
    functions: GateFunctions<T>,
    /// R, unless it is part of the product.
    weights: Option<&'a TValue>,
    /// Rows that have not reached their end.
    active: Vec<usize>,
    gates: Vec<T>,
    /// The contribution of the states to the gates.
    recurrent: Vec<T>,
    hidden: Vec<T>,
    memory: Vec<T>,
}

impl<'a, T: RecurrentNumber> DirectionWalk<'a, T> {
    fn new(
        run: &'a RecurrentRun,
        at: usize,
        inputs: &'a [TValue],
        lengths: &'a [usize],
    ) -> TractResult<Self> {
        let side = &run.sides[at];
        let width = run.cell.kind.gates() * run.hidden;
        let vector = |input: Option<usize>, length: usize| {
            let found = input.map(|input| part::<T>(&inputs[input], 0, length));
            found.transpose()
        };
        let from_input = elements(&inputs[side.from_input])?;
        let length = inputs[0].shape()[0] * lengths.len() * width;
        ensure!(
            from_input.len() == length,
            "got {} numbers from the input, expected {length}",
            from_input.len()
        );
        Ok(Self {
            run,
            at,
            lengths,
            from_input,
            bias: vector(side.bias, 2 * width)?,
            peepholes: vector(side.peepholes, 3 * run.hidden)?,
            functions: GateFunctions::new(&side.activations)?,
            weights: side.weights.map(|at| &inputs[at]),
            active: Vec::with_capacity(lengths.len()),
            gates: vec![T::zero(); lengths.len() * width],
            recurrent: Vec::new(),
            hidden: run.state(run.states[0], at, inputs)?,
            memory: run.state(run.states[1], at, inputs)?,
        })
    }

    /// Returns the sequence position of a row at this step, unless it has reached its end.
    fn place(&self, row: usize, step: usize) -> Option<usize> {
        let left = self.lengths[row].checked_sub(step + 1)?;
        let is_reverse = self.run.sides[self.at].is_reverse;
        Some(if is_reverse { left } else { step })
    }

    fn step(&mut self, step: usize) -> TractResult<()> {
        let (size, batch) = (self.run.hidden, self.lengths.len());
        let width = self.run.cell.kind.gates() * size;
        let mut active = std::mem::take(&mut self.active);
        active.clear();
        for row in 0..batch {
            if let Some(place) = self.place(row, step) {
                let from = (place * batch + row) * width;
                let gates = &mut self.gates[row * width..(row + 1) * width];
                gates.copy_from_slice(&self.from_input[from..from + width]);
                if let Some(bias) = &self.bias {
                    add(gates, &bias[..width]);
                }
                active.push(row);
            }
        }
        let run = self.run;
        let side = &run.sides[self.at];
        let mut recurrent = std::mem::take(&mut self.recurrent);
        let product = &side.product;
        product.multiply(&self.hidden, size, self.weights, &mut recurrent)?;
        let each = recurrent.len() / batch.max(1);
        if let Some(bias) = &self.bias {
            let bias = &bias[width..width + each];
            let rows = recurrent.chunks_exact_mut(each.max(1));
            rows.for_each(|row| add(row, bias));
        }
        self.active = active;
        if let Some(last) = &side.last {
            self.reset_first(&recurrent, last)?;
            self.recurrent = recurrent;
            return Ok(());
        }
        for &row in &self.active {
            let states = row * size..(row + 1) * size;
            let row = CellRow {
                gates: &mut self.gates[row * width..(row + 1) * width],
                recurrent: &recurrent[row * each..(row + 1) * each],
                hidden: &mut self.hidden[states.clone()],
                memory: &mut self.memory[states],
                peepholes: self.peepholes.as_deref(),
            };
            self.run.cell.step(row, &self.functions)?;
        }
        self.recurrent = recurrent;
        Ok(())
    }

    /// Completes a step of a `GRU` that resets the state before its last product. `recurrent` is
    /// the state's contribution to the first two gates.
    fn reset_first(&mut self, recurrent: &[T], last: &RecurrentProduct) -> TractResult<()> {
        let (cell, size) = (&self.run.cell, self.run.hidden);
        let width = 3 * size;
        let mut reset = self.hidden.clone();
        for &row in &self.active {
            let gates = &mut self.gates[row * width..(row + 1) * width];
            let recurrent = &recurrent[row * 2 * size..(row + 1) * 2 * size];
            cell.open(gates, recurrent, &self.functions)?;
            let by = &gates[size..2 * size];
            let states = &mut reset[row * size..(row + 1) * size];
            for (state, by) in states.iter_mut().zip(by) {
                *state = *state * *by;
            }
        }
        let mut new = Vec::new();
        last.multiply(&reset, size, self.weights, &mut new)?;
        for &row in &self.active {
            let gates = &mut self.gates[row * width..(row + 1) * width];
            let states = row * size..(row + 1) * size;
            add(&mut gates[2 * size..], &new[states.clone()]);
            if let Some(bias) = &self.bias {
                add(&mut gates[2 * size..], &bias[width + 2 * size..]);
            }
            cell.close(gates, &mut self.hidden[states], &self.functions)?;
        }
        Ok(())
    }

    /// Sets the final state of rows without steps to zeros instead of the initial state. The
    /// standard leaves this open; ONNX Runtime does the same.
    fn forget_empty(&mut self) {
        let size = self.run.hidden;
        let has_lengths = self.run.lengths.is_some();
        for (row, _) in (self.lengths.iter().enumerate()).filter(|(_, it)| has_lengths && **it == 0)
        {
            self.hidden[row * size..(row + 1) * size].fill(T::zero());
            self.memory[row * size..(row + 1) * size].fill(T::zero());
        }
    }

    /// Writes the states after a step to their positions in the output of all steps.
    fn keep(&self, step: usize, all: &mut [T]) {
        let (size, batch) = (self.run.hidden, self.lengths.len());
        for row in 0..batch {
            if let Some(place) = self.place(row, step) {
                let to = ((place * self.run.sides.len() + self.at) * batch + row) * size;
                let states = &self.hidden[row * size..(row + 1) * size];
                all[to..to + size].copy_from_slice(states);
            }
        }
    }
}

/// Returns the elements of a tensor.
fn elements<T: RecurrentNumber>(tensor: &Tensor) -> TractResult<&[T]> {
    let view = tensor.try_as_plain_ram()?;
    view.as_slice::<T>()
}

/// Returns part number `at` of a tensor of parts of this length.
fn part<T: RecurrentNumber>(tensor: &Tensor, at: usize, length: usize) -> TractResult<Vec<T>> {
    let values = tensor.try_as_plain_ram()?;
    let values = values.as_slice::<T>()?;
    let found = values.get(at * length..(at + 1) * length);
    let found = found.with_context(|| {
        format!(
            "a tensor of shape {:?} is too small: expected {length} elements",
            tensor.shape()
        )
    })?;
    Ok(found.to_vec())
}

impl PartialEq for RecurrentRun {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for RecurrentRun {}

impl Op for RecurrentRun {
    fn name(&self) -> StaticName {
        "Recurrence".into()
    }

    op_as_typed_op!();
}

impl EvalOp for RecurrentRun {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        if inputs[0].datum_type() == f64::datum_type() {
            self.compute::<f64>(&inputs)
        } else {
            self.compute::<f32>(&inputs)
        }
    }
}

impl TypedOp for RecurrentRun {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let x = inputs[0];
        let (sides, size) = (self.sides.len().to_dim(), self.hidden.to_dim());
        let steps = if self.keeps_all {
            x.shape[0].clone()
        } else {
            0.to_dim()
        };
        let batch = &x.shape[1];
        let last = x
            .datum_type
            .fact([sides.clone(), batch.clone(), size.clone()]);
        let mut facts = tvec!(
            x.datum_type.fact([steps, sides, batch.clone(), size]),
            last.clone()
        );
        if self.cell.kind == CellKind::Lstm {
            facts.push(last);
        }
        Ok(facts)
    }

    as_op!();
}
