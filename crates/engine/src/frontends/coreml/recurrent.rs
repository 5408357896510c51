//! Core ML recurrent layers (LSTM, GRU, RNN).
//!
//! The product with the input sequence is computed for all steps at once. A custom operator runs
//! the steps.
//!
//! Gate order follows the weights: input, forget, output, cell for LSTM; reset, output, update for
//! GRU. Where the documentation is silent, the code follows coremltools' tests. The clip applies to
//! the memory, the output gate's peephole uses the new memory, and a GRU's reset gate applies
//! before the product unless `reset_after` is set.

use tract_onnx::tract_core::internal::*;

use super::held::Operand;
use super::{Lowering, Operation, OperationTable, Results};
use crate::graph::builder::{Wire, ranked};
use crate::graph::calling::CallArg;
use crate::graph::kernel::Kernel;
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["lstm"], lstm),
    (&["gru"], |lowering, operation| {
        let bias = lowering.optional_tensor(operation, "bias")?;
        let input_bias = lowering.optional_tensor(operation, "input_bias")?;
        let after = lowering.bool(operation, "reset_after", false)?;
        // With `reset_after`, the bias of the product with the state is also reset. Otherwise both
        // biases are added at once.
        let (outside, inside) = if after {
            (input_bias, bias)
        } else {
            (sum_of_biases(lowering, bias, input_bias)?, None)
        };
        let cell = Cell {
            kind: Kind::Gru { after },
            gate: activation(lowering, operation, "recurrent_activation", "sigmoid")?,
            candidate: activation(lowering, operation, "activation", "tanh")?,
            output: Activation::Linear,
            clip: None,
        };
        single_direction(lowering, operation, &cell, [outside, inside])
    }),
    (&["rnn"], |lowering, operation| {
        let bias = lowering.optional_tensor(operation, "bias")?;
        let activation = activation(lowering, operation, "activation", "tanh")?;
        let cell = Cell {
            kind: Kind::Plain,
            gate: activation,
            candidate: activation,
            output: activation,
            clip: None,
        };
        single_direction(lowering, operation, &cell, [bias, None])
    }),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Gru {
        /// Whether the reset gate applies after the product with the state.
        after: bool,
    },
    Lstm,
}

/// The activation of a gate, with Core ML's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activation {
    HardSigmoid,
    Linear,
    Relu,
    Sigmoid,
    Tanh,
}

/// The parameters that are the same for all steps.
#[derive(Debug, Clone)]
struct Cell {
    kind: Kind,
    gate: Activation,
    candidate: Activation,
    output: Activation,
    /// Maximum absolute value of the memory.
    clip: Option<f32>,
}

/// The weights of one direction.
struct DirectionWeights {
    input: Wire,
    state: Wire,
    /// Biases of the products with the sequence and with the state.
    bias: [Option<Wire>; 2],
    peephole: Option<Wire>,
    is_reverse: bool,
}

impl Kind {
    fn gates(self) -> usize {
        match self {
            Self::Plain => 1,
            Self::Gru { .. } => 3,
            Self::Lstm => 4,
        }
    }
}

impl Activation {
    fn apply(self, x: f32) -> f32 {
        match self {
            Self::HardSigmoid => (0.2 * x + 0.5).clamp(0.0, 1.0),
            Self::Relu if x < 0.0 => 0.0,
            // NaN stays NaN.
            Self::Linear | Self::Relu => x,
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Tanh => x.tanh(),
        }
    }
}

fn activation(
    lowering: &Lowering<'_, '_>,
    operation: &Operation,
    name: &str,
    default: &str,
) -> TractResult<Activation> {
    let found = lowering.text(operation, name, default)?;
    Ok(match found.to_ascii_lowercase().as_str() {
        "hard_sigmoid" | "sigmoid_hard" => Activation::HardSigmoid,
        "linear" => Activation::Linear,
        "relu" => Activation::Relu,
        "sigmoid" => Activation::Sigmoid,
        // Its factors are 1 where they cannot be set.
        "tanh" | "scaled_tanh" => Activation::Tanh,
        _ => bail!("unsupported activation `{found}`"),
    })
}

fn sum_of_biases(
    lowering: &mut Lowering<'_, '_>,
    a: Option<Wire>,
    b: Option<Wire>,
) -> TractResult<Option<Wire>> {
    match (a, b) {
        (Some(a), Some(b)) => lowering.binary("add", a, b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

/// Lowers a recurrence in one direction without a memory besides its state.
fn single_direction(
    lowering: &mut Lowering<'_, '_>,
    operation: &Operation,
    cell: &Cell,
    bias: [Option<Wire>; 2],
) -> Results {
    let is_reverse = match lowering.text(operation, "direction", "forward")?.as_str() {
        "forward" => false,
        "reverse" => true,
        other => bail!("unsupported direction `{other}`"),
    };
    let x = lowering.tensor(operation, "x")?;
    let side = DirectionWeights {
        input: lowering.tensor(operation, "weight_ih")?,
        state: lowering.tensor(operation, "weight_hh")?,
        bias,
        peephole: None,
        is_reverse,
    };
    let states = [lowering.tensor(operation, "initial_h")?];
    let every = lowering.bool(operation, "output_sequence", false)?;
    let given = run(lowering, cell, &side, x, &states, every)?;
    Ok(given.into_iter().map(Operand::Tensor).collect())
}

fn lstm(lowering: &mut Lowering<'_, '_>, operation: &Operation) -> Results {
    let clip = lowering.optional(operation, "clip")?;
    let clip = match clip {
        #[expect(clippy::cast_possible_truncation, reason = "clamps only")]
        Some(_) => Some(lowering.float(operation, "clip", 0.0)? as f32),
        None => None,
    };
    let cell = Cell {
        kind: Kind::Lstm,
        gate: activation(lowering, operation, "recurrent_activation", "sigmoid")?,
        candidate: activation(lowering, operation, "cell_activation", "tanh")?,
        output: activation(lowering, operation, "activation", "tanh")?,
        clip,
    };
    let ways: &[(&str, bool)] = match lowering.text(operation, "direction", "forward")?.as_str() {
        "forward" => &[("", false)],
        "reverse" => &[("", true)],
        "bidirectional" => &[("", false), ("_back", true)],
        other => bail!("unsupported direction `{other}`"),
    };
    let x = lowering.tensor(operation, "x")?;
    let initial = ["initial_h", "initial_c"].map(|name| lowering.tensor(operation, name));
    let [h, c] = initial;
    let initial = [h?, c?];
    let every = lowering.bool(operation, "output_sequence", false)?;
    let mut parts = vec![Vec::new(); 3];
    for (at, (suffix, is_reverse)) in ways.iter().enumerate() {
        let mut optional = |name: &str| {
            let name = format!("{name}{suffix}");
            lowering.optional_tensor(operation, &name)
        };
        let side = DirectionWeights {
            input: optional("weight_ih")?.context("missing weights of the input")?,
            state: optional("weight_hh")?.context("missing weights of the state")?,
            bias: [optional("bias")?, None],
            peephole: optional("peephole")?,
            is_reverse: *is_reverse,
        };
        let size = hidden(lowering, &cell, &side)?;
        let mut states = initial;
        for state in &mut states {
            let rank = lowering.shape(*state)?.len();
            ensure!(rank == 2, "invalid rank of a state: expected 2, got {rank}");
            let builder = &mut lowering.frame.builder;
            let (start, end) = (at * size, (at + 1) * size);
            state.outlet = builder.slice(state.outlet, 1, start, end)?;
        }
        let given = run(lowering, &cell, &side, x, &states, every)?;
        for (parts, wire) in parts.iter_mut().zip(given) {
            parts.push(wire.outlet);
        }
    }
    let mut given = Vec::new();
    for (parts, axis) in parts.iter().zip([2, 1, 1]) {
        let outlet = lowering.frame.builder.concat(parts, axis)?;
        let dtype = DType::Float32;
        given.push(Operand::Tensor(Wire { outlet, dtype }));
    }
    Ok(given)
}

/// Returns the size of a state.
fn hidden(lowering: &Lowering<'_, '_>, cell: &Cell, side: &DirectionWeights) -> TractResult<usize> {
    let shape = lowering.shape(side.state)?;
    let gates = cell.kind.gates();
    let size = match shape.as_slice() {
        [rows, size] if *rows == size.clone() * gates => size.to_usize()?,
        _ => bail!("invalid shape of the state weights: got {shape:?} for {gates} gates"),
    };
    ensure!(size > 0, "the state is empty");
    Ok(size)
}

/// Runs all steps in one direction. Returns each step's output (or the last one), then the final
/// states.
fn run(
    lowering: &mut Lowering<'_, '_>,
    cell: &Cell,
    side: &DirectionWeights,
    x: Wire,
    states: &[Wire],
    every: bool,
) -> TractResult<Vec<Wire>> {
    let float = DType::Float32;
    let size = hidden(lowering, cell, side)?;
    let args = vec![x.into(), side.input.into(), CallArg::from(side.bias[0])];
    let gates = lowering.aten("aten::linear.out", args, float)?;
    let shape = lowering.shape(gates)?;
    let wide = size * cell.kind.gates();
    let [steps, batch, last] = ranked(&shape, "a sequence")?;
    ensure!(
        *last == wide.to_dim(),
        "wrong number of gates: got {last}, expected {wide}"
    );
    for state in states {
        let found = lowering.shape(*state)?;
        ensure!(
            found.len() == 2 && found[1] == size.to_dim() && found[0] == *batch,
            "invalid shape of a state: got {found:?} for a batch of {batch} and {size} elements"
        );
    }
    let mut inputs = vec![gates.outlet];
    let state = lowering.permuted(side.state, &[1, 0])?;
    let mut parts = vec![Some(state)];
    parts.extend(states.iter().copied().map(Some));
    let optional = [side.bias[1], side.peephole];
    parts.extend(optional);
    for part in parts.into_iter().flatten() {
        inputs.push(lowering.frame.builder.cast(part, float)?.outlet);
    }
    for (part, count) in optional.iter().zip([wide, 3 * size]) {
        if let Some(part) = part {
            let found = lowering.shape(*part)?;
            ensure!(
                found == [count.to_dim()],
                "invalid shape of a bias or peephole: {found:?}"
            );
        }
    }
    let steps = if every { steps.clone() } else { 1.to_dim() };
    let mut facts = tvec!(f32::fact([steps, batch.clone(), size.to_dim()]));
    for _ in states {
        facts.push(f32::fact([batch.clone(), size.to_dim()]));
    }
    let steps = Steps {
        cell: cell.clone(),
        size,
        is_reverse: side.is_reverse,
        every,
        has: optional.map(|part| part.is_some()),
    };
    let kernel = Kernel::new("Recurrence", facts, move |inputs| steps.run(inputs));
    let given = lowering.frame.builder.wire_all(kernel, &inputs)?;
    let wires = given.iter().map(|&outlet| Wire::new(outlet, float));
    Ok(wires.collect())
}

/// The operator that runs the steps.
#[derive(Debug, Clone)]
struct Steps {
    cell: Cell,
    size: usize,
    is_reverse: bool,
    every: bool,
    /// Whether the state's product has a bias, and whether a peephole exists.
    has: [bool; 2],
}

impl Steps {
    /// Runs all steps.
    ///
    /// Inputs: the gates' products with the sequence, the state weights (one row for each state
    /// element), and the initial states. A bias of the state's product and a peephole follow if
    /// they exist.
    fn run(&self, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let read = |at: usize| -> TractResult<Vec<f32>> {
            let input = inputs.get(at).context("missing inputs")?;
            Ok(input.try_as_plain_ram()?.as_slice::<f32>()?.to_vec())
        };
        let (gates, weights) = (inputs[0].try_as_plain_ram()?, read(1)?);
        let gates = gates.as_slice::<f32>()?;
        let mut hidden = read(2)?;
        let has_memory = self.cell.kind == Kind::Lstm;
        let mut memory = if has_memory { read(3)? } else { Vec::new() };
        let mut next = if has_memory { 4 } else { 3 };
        let mut optional = |is_there: bool| {
            if !is_there {
                return Ok(Vec::new());
            }
            next += 1;
            read(next - 1)
        };
        let (bias, peephole) = (optional(self.has[0])?, optional(self.has[1])?);
        let [steps, batch, wide] = inputs[0].shape() else {
            bail!(
                "invalid rank of a sequence: expected 3, got {}",
                inputs[0].rank()
            );
        };
        let (steps, batch, wide, size) = (*steps, *batch, *wide, self.size);
        ensure!(
            hidden.len() == batch * size && weights.len() == wide * size,
            "wrong size of the states: {} elements for a batch of {batch}",
            hidden.len()
        );
        let rows = if self.every { steps } else { 1 };
        let mut outputs = vec![0.0; rows * batch * size];
        let mut sums = vec![0.0; wide];
        for step in 0..steps {
            let at = if self.is_reverse {
                steps - 1 - step
            } else {
                step
            };
            for row in 0..batch {
                let gates = &gates[(at * batch + row) * wide..][..wide];
                let hidden = &mut hidden[row * size..][..size];
                match self.cell.kind {
                    Kind::Plain => {
                        add_products(&mut sums, gates, hidden, &weights);
                        for (h, sum) in hidden.iter_mut().zip(&sums) {
                            *h = self.cell.output.apply(*sum);
                        }
                    }
                    Kind::Gru { .. } => self.gru(gates, hidden, &weights, &bias, &mut sums),
                    Kind::Lstm => {
                        add_products(&mut sums, gates, hidden, &weights);
                        let memory = &mut memory[row * size..][..size];
                        self.lstm(hidden, memory, &peephole, &sums);
                    }
                }
                if self.every {
                    outputs[(at * batch + row) * size..][..size].copy_from_slice(hidden);
                }
            }
        }
        if !self.every {
            outputs.copy_from_slice(&hidden);
        }
        let mut given = tvec!(
            Tensor::from_shape(&[rows, batch, size], &outputs)?,
            Tensor::from_shape(&[batch, size], &hidden)?
        );
        if has_memory {
            given.push(Tensor::from_shape(&[batch, size], &memory)?);
        }
        Ok(given)
    }

    /// Runs one LSTM step of a row; `sums` are the gates before activation.
    fn lstm(&self, hidden: &mut [f32], memory: &mut [f32], peephole: &[f32], sums: &[f32]) {
        let size = self.size;
        for at in 0..size {
            let seen = |gate: usize, memory: f32| {
                let weight = peephole.get(gate * size + at).copied().unwrap_or(0.0);
                sums[gate * size + at] + weight * memory
            };
            let input = self.cell.gate.apply(seen(0, memory[at]));
            let forget = self.cell.gate.apply(seen(1, memory[at]));
            let candidate = self.cell.candidate.apply(sums[3 * size + at]);
            let mut kept = forget * memory[at] + input * candidate;
            if let Some(clip) = self.cell.clip.filter(|_| !kept.is_nan()) {
                kept = kept.min(clip).max(-clip);
            }
            memory[at] = kept;
            let output = self.cell.gate.apply(seen(2, kept));
            hidden[at] = output * self.cell.output.apply(kept);
        }
    }

    /// Runs one GRU step of a row.
    fn gru(
        &self,
        gates: &[f32],
        hidden: &mut [f32],
        weights: &[f32],
        bias: &[f32],
        sums: &mut [f32],
    ) {
        let size = self.size;
        let zero = vec![0.0; gates.len()];
        let start = if bias.is_empty() { &zero } else { bias };
        add_products(sums, start, hidden, weights);
        let gate = |gate: usize, at: usize, sums: &[f32]| {
            let place = gate * size + at;
            self.cell.gate.apply(gates[place] + sums[place])
        };
        let reset: Vec<f32> = (0..size).map(|at| gate(0, at, sums)).collect();
        let update: Vec<f32> = (0..size).map(|at| gate(2, at, sums)).collect();
        if self.cell.kind == (Kind::Gru { after: true }) {
            for (at, reset) in reset.iter().enumerate() {
                sums[size + at] *= reset;
            }
        } else {
            let left: Vec<f32> = reset.iter().zip(&*hidden).map(|(r, h)| r * h).collect();
            add_products(sums, start, &left, weights);
        }
        for at in 0..size {
            let candidate = self
                .cell
                .candidate
                .apply(gates[size + at] + sums[size + at]);
            hidden[at] = (1.0 - update[at]) * candidate + update[at] * hidden[at];
        }
    }
}

/// Computes `sums = start + state · weights`, with a row of weights for each state element.
fn add_products(sums: &mut [f32], start: &[f32], state: &[f32], weights: &[f32]) {
    sums.copy_from_slice(start);
    for (x, row) in state.iter().zip(weights.chunks_exact(sums.len())) {
        for (sum, weight) in sums.iter_mut().zip(row) {
            *sum += x * weight;
        }
    }
}
