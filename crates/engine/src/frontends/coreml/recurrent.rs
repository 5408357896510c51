//! Core ML recurrent layers (LSTM, GRU, RNN).
//!
//! The product with the input sequence is computed for all steps at once. The recurrence of the
//! vocabulary runs the steps ([`RecurrentRun`]).
//!
//! The order of gates is that of the weights: input, forget, output, cell for LSTM; reset, output,
//! update for GRU. The code reorders them for the vocabulary. Where the documentation is silent, the
//! code follows coremltools' tests. The clip applies to the memory, the output gate's peephole uses
//! the new memory, and a GRU's reset gate applies before the product unless `reset_after` is set.

use tract_onnx::tract_core::internal::*;

use super::held::CoremlOperand;
use super::{CoremlLowering, Operation, OperationTable, Results};
use crate::graph::builder::{Wire, ranked};
use crate::graph::calling::CallArg;
use crate::graph::recurrent::cell::{Cell, CellKind, GateActivation};
use crate::graph::recurrent::product::products;
use crate::graph::recurrent::run::{RecurrentRun, RunSide};
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
        let layer = Layer {
            cell: Cell {
                linear_before_reset: after,
                ..Cell::new(CellKind::Gru)
            },
            activations: vec![
                activation(lowering, operation, "recurrent_activation", "sigmoid")?,
                activation(lowering, operation, "activation", "tanh")?,
            ],
        };
        single_direction(lowering, operation, &layer, [outside, inside])
    }),
    (&["rnn"], |lowering, operation| {
        let bias = lowering.optional_tensor(operation, "bias")?;
        let layer = Layer {
            cell: Cell::new(CellKind::Rnn),
            activations: vec![activation(lowering, operation, "activation", "tanh")?],
        };
        single_direction(lowering, operation, &layer, [bias, None])
    }),
];

/// A recurrent layer: the settings that all directions and steps share.
struct Layer {
    cell: Cell,
    activations: Vec<GateActivation>,
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

impl Layer {
    /// Returns, for each gate of the vocabulary, its place in Core ML's order.
    fn gates(&self) -> &'static [usize] {
        match self.cell.kind {
            CellKind::Rnn => &[0],
            CellKind::Gru => &[2, 0, 1],
            CellKind::Lstm => &[0, 2, 1, 3],
        }
    }
}

fn activation(
    lowering: &CoremlLowering<'_, '_>,
    operation: &Operation,
    name: &str,
    default: &str,
) -> TractResult<GateActivation> {
    let found = lowering.text(operation, name, default)?;
    Ok(match found.to_ascii_lowercase().as_str() {
        "hard_sigmoid" | "sigmoid_hard" => GateActivation::HardSigmoid(0.2, 0.5),
        "linear" => GateActivation::Affine(1.0, 0.0),
        "relu" => GateActivation::Relu,
        "sigmoid" => GateActivation::Sigmoid,
        // Its factors are 1 where they cannot be set.
        "tanh" | "scaled_tanh" => GateActivation::Tanh,
        _ => bail!("unsupported activation `{found}`"),
    })
}

fn sum_of_biases(
    lowering: &mut CoremlLowering<'_, '_>,
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
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    layer: &Layer,
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
    let given = run(lowering, layer, &side, x, &states, every)?;
    Ok(given.into_iter().map(CoremlOperand::Tensor).collect())
}

fn lstm(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let clip = lowering.optional(operation, "clip")?;
    let clip = match clip {
        #[expect(clippy::cast_possible_truncation, reason = "clamps only")]
        Some(_) => Some(lowering.float(operation, "clip", 0.0)? as f32),
        None => None,
    };
    let layer = Layer {
        cell: Cell {
            memory_clip: clip,
            ..Cell::new(CellKind::Lstm)
        },
        activations: vec![
            activation(lowering, operation, "recurrent_activation", "sigmoid")?,
            activation(lowering, operation, "cell_activation", "tanh")?,
            activation(lowering, operation, "activation", "tanh")?,
        ],
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
        let size = hidden(lowering, &layer, &side)?;
        let mut states = initial;
        for state in &mut states {
            let rank = lowering.shape(*state)?.len();
            ensure!(rank == 2, "invalid rank of a state: expected 2, got {rank}");
            let builder = &mut lowering.frame.builder;
            let (start, end) = (at * size, (at + 1) * size);
            state.outlet = builder.slice(state.outlet, 1, start, end)?;
        }
        let given = run(lowering, &layer, &side, x, &states, every)?;
        for (parts, wire) in parts.iter_mut().zip(given) {
            parts.push(wire.outlet);
        }
    }
    let mut given = Vec::new();
    for (parts, axis) in parts.iter().zip([2, 1, 1]) {
        let outlet = lowering.frame.builder.concat(parts, axis)?;
        let dtype = DType::Float32;
        given.push(CoremlOperand::Tensor(Wire { outlet, dtype }));
    }
    Ok(given)
}

/// Returns the size of a state.
fn hidden(
    lowering: &CoremlLowering<'_, '_>,
    layer: &Layer,
    side: &DirectionWeights,
) -> TractResult<usize> {
    let shape = lowering.shape(side.state)?;
    let gates = layer.cell.kind.gates();
    let size = match shape.as_slice() {
        [rows, size] if *rows == size.clone() * gates => size.to_usize()?,
        _ => bail!("invalid shape of the state weights: got {shape:?} for {gates} gates"),
    };
    ensure!(size > 0, "the state is empty");
    Ok(size)
}

/// Returns parts of equal size along the first dimension in the order of the vocabulary's gates.
fn reordered(
    lowering: &mut CoremlLowering<'_, '_>,
    order: &[usize],
    wire: Wire,
    size: usize,
) -> TractResult<OutletId> {
    let builder = &mut lowering.frame.builder;
    let wide = builder.cast(wire, DType::Float32)?.outlet;
    let parts = order
        .iter()
        .map(|gate| builder.slice(wide, 0, gate * size, (gate + 1) * size));
    let parts: Vec<OutletId> = parts.collect::<TractResult<_>>()?;
    builder.concat(&parts, 0)
}

/// Checks the size of a bias or peephole, which has this many elements.
fn check_vector(lowering: &CoremlLowering<'_, '_>, part: Wire, count: usize) -> TractResult<()> {
    let found = lowering.shape(part)?;
    ensure!(
        found == [count.to_dim()],
        "invalid shape of a bias or peephole: {found:?}"
    );
    Ok(())
}

/// Runs all steps in one direction. Returns each step's output (or the last one), then the final
/// states.
fn run(
    lowering: &mut CoremlLowering<'_, '_>,
    layer: &Layer,
    side: &DirectionWeights,
    x: Wire,
    states: &[Wire],
    every: bool,
) -> TractResult<Vec<Wire>> {
    let float = DType::Float32;
    let size = hidden(lowering, layer, side)?;
    let (order, wide) = (layer.gates(), size * layer.cell.kind.gates());
    let given = lowering.shape(side.input)?;
    ensure!(
        given.first() == Some(&wide.to_dim()),
        "wrong number of gates: got {:?}, expected {wide}",
        given.first()
    );
    let weights = Wire::float(reordered(lowering, order, side.input, size)?);
    let mut bias = None;
    if let Some(given) = side.bias[0] {
        check_vector(lowering, given, wide)?;
        bias = Some(Wire::float(reordered(lowering, order, given, size)?));
    }
    let args = vec![x.into(), weights.into(), CallArg::from(bias)];
    let gates = lowering.aten("aten::linear.out", args, float)?;
    let shape = lowering.shape(gates)?;
    let [_, batch, _] = ranked(&shape, "a sequence")?;
    let mut inputs = vec![gates.outlet];
    let mut give = |outlet: OutletId| {
        inputs.push(outlet);
        inputs.len() - 1
    };
    let recurrent = reordered(lowering, order, side.state, size)?;
    let mut initial = [None; 2];
    for (place, state) in initial.iter_mut().zip(states) {
        let found = lowering.shape(*state)?;
        ensure!(
            found.len() == 2 && found[1] == size.to_dim() && found[0] == *batch,
            "invalid shape of a state: got {found:?} for a batch of {batch} and {size} elements"
        );
        let builder = &mut lowering.frame.builder;
        let state = builder.cast(*state, float)?.outlet;
        // The operator's states have the directions first.
        *place = Some(give(builder.wire(AxisOp::Add(0), &[state])?));
    }
    let mut inner_bias = None;
    if let Some(given) = side.bias[1] {
        check_vector(lowering, given, wide)?;
        let inner = reordered(lowering, order, given, size)?;
        let builder = &mut lowering.frame.builder;
        let none = builder.constant(Arc::new(Tensor::zero::<f32>(&[wide])?), float)?;
        inner_bias = Some(give(builder.concat(&[none.outlet, inner], 0)?));
    }
    let mut peepholes = None;
    if let Some(given) = side.peephole {
        check_vector(lowering, given, 3 * size)?;
        peepholes = Some(give(reordered(lowering, &order[..3], given, size)?));
    }
    let builder = &mut lowering.frame.builder;
    let fact = builder.model.outlet_fact(recurrent)?;
    let weights = fact.konst.is_none().then(|| give(recurrent));
    let (product, last) = products(&layer.cell, fact, batch)?;
    let run = RecurrentRun {
        cell: layer.cell.clone(),
        sides: vec![RunSide {
            is_reverse: side.is_reverse,
            activations: layer.activations.clone(),
            from_input: 0,
            weights,
            bias: inner_bias,
            peepholes,
            product,
            last,
        }],
        lengths: None,
        states: initial,
        hidden: size,
        keeps_all: every,
    };
    let made = builder.wire_all(run, &inputs)?;
    // Without the direction, a final state has the shape of the output of the last step.
    let mut given = vec![Wire::float(if every {
        builder.wire(AxisOp::Rm(1), &[made[0]])?
    } else {
        made[1]
    })];
    for state in &made[1..] {
        given.push(Wire::float(builder.wire(AxisOp::Rm(0), &[*state])?));
    }
    Ok(given)
}
