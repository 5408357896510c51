//! The recurrent operators `RNN`, `GRU`, `LSTM` and `DynamicQuantizeLSTM`.
//!
//! The tract library runs a recurrence as a loop over a graph. It ignores reverse directions,
//! activations and sequence lengths, and continues from the previous run. Here one product computes
//! the products with W for all steps ([`wire`]), and one operator of [`crate::graph::recurrent`] runs
//! the steps.

mod wire;

use tract_onnx::model::{ParsingContext, optional_inputs, optional_outputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::graph::{attribute, integer, text};
use super::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::recurrent::cell::{Cell, CellKind, GateActivation};

/// Positions of a recurrence's inputs in the standard.
const W: usize = 1;
const R: usize = 2;
const BIAS: usize = 3;
const LENGTHS: usize = 4;
const HIDDEN: usize = 5;
const MEMORY: usize = 6;
const PEEPHOLES: usize = 7;
/// Further inputs of `DynamicQuantizeLSTM`.
const W_SCALE: usize = 8;
const W_ZERO: usize = 9;
const R_SCALE: usize = 10;
const R_ZERO: usize = 11;

/// A recurrent node of the model.
#[derive(Debug, Clone)]
struct Recurrence {
    cell: Cell,
    /// Each direction, with its activations.
    sides: Vec<Side>,
    /// For each input of the standard, the index of the given input.
    inputs: Vec<Option<usize>>,
    /// For `Y`, `Y_h` and `Y_c`, the index of the node's output.
    outputs: Vec<Option<usize>>,
    /// The batch is the first dimension.
    batch_first: bool,
    /// W and R are integers with scales.
    is_quantised: bool,
}

/// One direction.
#[derive(Debug, Clone)]
struct Side {
    is_reverse: bool,
    activations: Vec<GateActivation>,
}

/// Builds the operator of a recurrent node.
pub(crate) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let is_quantised = node.op_type == "DynamicQuantizeLSTM";
    let kind = match node.op_type.as_str() {
        "RNN" => CellKind::Rnn,
        "GRU" => CellKind::Gru,
        _ => CellKind::Lstm,
    };
    let directions: &[bool] = match text(node, "direction") {
        b"" | b"forward" => &[false],
        b"reverse" => &[true],
        b"bidirectional" => &[false, true],
        other => bail!("unknown direction `{}`", String::from_utf8_lossy(other)),
    };
    let cell = Cell {
        clip: attribute(node, "clip")
            .map(|clip| clip.f.abs())
            .filter(|clip| *clip > 0.0),
        input_forget: integer(node, "input_forget", 0) != 0,
        linear_before_reset: integer(node, "linear_before_reset", 0) != 0,
        ..Cell::new(kind)
    };
    let inputs: Vec<Option<usize>> = optional_inputs(node).take(R_ZERO + 1).collect();
    let recurrence = Recurrence {
        sides: sides(node, kind, directions)?,
        inputs,
        outputs: optional_outputs(node).take(3).collect(),
        batch_first: integer(node, "layout", 0) != 0,
        cell,
        is_quantised,
    };
    let given = recurrence.inputs.iter().flatten().count();
    operator("Recurrence", given, recurrence)
}

/// Returns the directions with their activations. All directions share the list of parameters.
fn sides(node: &NodeProto, kind: CellKind, directions: &[bool]) -> TractResult<Vec<Side>> {
    let names: Vec<String> = attribute(node, "activations").map_or_else(Vec::new, |found| {
        let names = found.strings.iter();
        names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    });
    let usual = kind.default_activations();
    let count = usual.len() * directions.len();
    ensure!(
        names.is_empty() || names.len() == count,
        "expected {count} activations, got {}",
        names.len()
    );
    let floats = |name: &str| attribute(node, name).map_or_else(Vec::new, |it| it.floats.clone());
    let mut alphas = floats("activation_alpha").into_iter();
    let mut betas = floats("activation_beta").into_iter();
    let mut places = 0..count;
    let mut sides = Vec::new();
    for is_reverse in directions {
        let mut activations = Vec::new();
        for place in places.by_ref().take(usual.len()) {
            let name = names
                .get(place)
                .map_or(usual[place % usual.len()], String::as_str);
            let activation = GateActivation::named(name, &mut alphas, &mut betas);
            activations.push(activation.with_context(|| {
                format!(
                    "the activation `{name}` of a recurrence is not supported, or lacks its \
                     parameters, which have no default"
                )
            })?);
        }
        sides.push(Side {
            is_reverse: *is_reverse,
            activations,
        });
    }
    Ok(sides)
}

impl Recurrence {
    /// Returns the given input at this position of the standard, if the node has it.
    fn input(&self, place: usize) -> Option<usize> {
        self.inputs.get(place).copied().flatten()
    }

    /// Returns the axis of R along which the elements of a state are.
    fn hidden_axis(&self) -> usize {
        if self.is_quantised { 1 } else { 2 }
    }
}

impl NodeOperator for Recurrence {
    fn outputs(&self) -> usize {
        self.outputs.iter().flatten().count()
    }

    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        // Indices of dimensions: steps, batch, directions, hidden size.
        let [steps, batch] = if self.batch_first { [1, 0] } else { [0, 1] };
        let directions = i64::try_from(self.sides.len())?.to_dim();
        let ranks = [3, 3, 3, 2, 1, 3, 3, 2];
        for (place, rank) in ranks.into_iter().enumerate() {
            if let Some(at) = self.input(place) {
                s.equals(&inputs[at].rank, rank)?;
                if ![LENGTHS, W, R].contains(&place) {
                    s.equals(&inputs[at].datum_type, &inputs[0].datum_type)?;
                }
            }
        }
        s.equals(&inputs[R].shape[0], directions.clone())?;
        let order: [usize; 4] = if self.batch_first {
            [1, 2, 0, 3]
        } else {
            [0, 1, 2, 3]
        };
        if let Some(y) = self.outputs[0] {
            s.equals(&outputs[y].rank, 4)?;
            s.equals(&outputs[y].shape[order[0]], &inputs[0].shape[steps])?;
            s.equals(&outputs[y].shape[order[1]], directions.clone())?;
            s.equals(&outputs[y].shape[order[2]], &inputs[0].shape[batch])?;
        }
        for last in self.outputs[1..].iter().flatten() {
            s.equals(&outputs[*last].rank, 3)?;
            s.equals(&outputs[*last].shape[1 - batch], directions.clone())?;
            s.equals(&outputs[*last].shape[batch], &inputs[0].shape[batch])?;
        }
        for output in outputs {
            s.equals(&output.datum_type, &inputs[0].datum_type)?;
            s.given(&output.rank, move |s, rank| {
                s.equals(
                    &output.shape[usize::try_from(rank - 1)?],
                    &inputs[R].shape[self.hidden_axis()],
                )
            })?;
        }
        Ok(())
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        wire::wire(self, prefix, model, inputs)
    }
}
