//! Prevents recurrent operators from carrying state from run to run.
//!
//! The library converts LSTM, GRU, RNN, Scan and Loop of ONNX to a `Scan`. It keeps the last hidden
//! state of a `Scan` in the state of the plan and continues from there in the next run. That is
//! meant for streams and is wrong for models whose runs are independent. An inner recurrence
//! likewise continues from one step of the outer one to the next.
//!
//! Invariant: in a graph that went through [`reset_each_run`], every run and every outer step starts
//! from the initial state of the model.

use tract_onnx::prelude::{TractError, TractResult, TypedModel};
use tract_onnx::tract_core::internal::Op;
use tract_onnx::tract_core::ops::gru_seq::GruSeq;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::scan::{OptScan, Scan};

/// Makes every recurrence of `model`, also of inner graphs, restart in each run. Must be called
/// before the graph is optimised: the optimised operators inherit this property.
pub(crate) fn reset_each_run(model: &mut TypedModel) {
    for node in &mut model.nodes {
        if let Some(scan) = node.op_as_mut::<Scan>() {
            scan.reset_every_turn = true;
            reset_each_run(&mut scan.body);
        } else if let Some(sequence) = node.op_as_mut::<GruSeq>() {
            sequence.reset_every_turn = true;
        } else if let Some(branches) = node.op_as_mut::<IfThenElse>() {
            reset_each_run(&mut branches.then_body);
            reset_each_run(&mut branches.else_body);
        }
    }
}

/// How the state of an operator is kept out of the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateReset {
    /// The operator restarts by itself and otherwise keeps only packed weights.
    Resets,
    /// The operator would continue where the last run ended, so its state must be created again.
    Keeps,
}

/// Classifies an operator that has a state. Fails for a recurrence that [`reset_each_run`] did not
/// process, because its answers would be wrong from the second run on.
pub(crate) fn state_reset(operator: &dyn Op) -> TractResult<StateReset> {
    let resets = if let Some(scan) = operator.downcast_ref::<OptScan>() {
        scan.reset_every_turn
    } else if let Some(scan) = operator.downcast_ref::<Scan>() {
        scan.reset_every_turn
    } else if let Some(sequence) = operator.downcast_ref::<GruSeq>() {
        sequence.reset_every_turn
    } else {
        return Ok(StateReset::Keeps);
    };
    if resets {
        return Ok(StateReset::Resets);
    }
    Err(TractError::msg(format!(
        "`{}` would continue where the previous run ended",
        operator.name()
    )))
}
