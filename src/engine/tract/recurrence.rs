//! What a graph of the library carries from step to step of a recurrence, and must not carry from run to
//! run.
//!
//! The library keeps the last hidden state of a `Scan` (LSTM, GRU, RNN, Scan and Loop of ONNX become
//! one) in the state of the plan, and goes on from there in the next run: meant for streams, wrong for
//! models whose every run is whole. A recurrence inside a recurrence goes on in the same way from one
//! step of the outer one to the next. Invariant: in a graph that went through [`start_anew`], every
//! run and every outer step begins with the initial state that the model says.

use tract_onnx::prelude::{TractError, TractResult, TypedModel};
use tract_onnx::tract_core::internal::Op;
use tract_onnx::tract_core::ops::gru_seq::GruSeq;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::scan::{OptScan, Scan};

/// Makes every recurrence of `model`, also of the graphs within it, begin anew in each run. To be called
/// before the graph is optimised: what is made of a recurrence inherits this.
pub(super) fn start_anew(model: &mut TypedModel) {
    for node in &mut model.nodes {
        if let Some(scan) = node.op_as_mut::<Scan>() {
            scan.reset_every_turn = true;
            start_anew(&mut scan.body);
        } else if let Some(sequence) = node.op_as_mut::<GruSeq>() {
            sequence.reset_every_turn = true;
        } else if let Some(branches) = node.op_as_mut::<IfThenElse>() {
            start_anew(&mut branches.then_body);
            start_anew(&mut branches.else_body);
        }
    }
}

/// How what an operator keeps between runs is kept from the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// It begins anew by itself; what else it keeps are packed weights.
    Resets,
    /// It would go on where the last run ended: its state has to be made again.
    Keeps,
}

/// What is to be done about an operator that has a state. Fails if it is a recurrence that
/// [`start_anew`] has not seen, which would answer wrongly from the second run on.
pub(super) fn memory(operator: &dyn Op) -> TractResult<Memory> {
    let resets = if let Some(scan) = operator.downcast_ref::<OptScan>() {
        scan.reset_every_turn
    } else if let Some(scan) = operator.downcast_ref::<Scan>() {
        scan.reset_every_turn
    } else if let Some(sequence) = operator.downcast_ref::<GruSeq>() {
        sequence.reset_every_turn
    } else {
        return Ok(Memory::Keeps);
    };
    if resets {
        return Ok(Memory::Resets);
    }
    Err(TractError::msg(format!(
        "`{}` would go on from where the run before it ended",
        operator.name()
    )))
}
