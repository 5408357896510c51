//! An operator ([`Overwrite`]) that writes values in place into a tensor that a program keeps, such
//! as a KV cache.
//!
//! A cache of a language model has many positions, and a run writes one of them. Copying the cache
//! would cost more than the run itself.
//!
//! Invariant: a tensor is written in place only if nobody else references it. The overwritten
//! values are kept until the run ends, so that a failed run can be undone.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use tract_onnx::tract_core::internal::*;

/// Computes from the inputs the position at which an operator starts writing.
type Start = dyn Fn(&[TValue]) -> TractResult<usize> + Send + Sync;

/// Writes its second input over a part of its first, along an axis.
#[derive(Clone)]
pub(crate) struct Overwrite {
    axis: usize,
    start: Arc<Start>,
    before: Arc<Mutex<UndoState>>,
}

/// The state to restore after a failed run.
enum UndoState {
    /// The operator has not run, or its write is final.
    Nothing,
    /// These values, starting at this position of the tensor.
    Part {
        tensor: usize,
        start: usize,
        values: Tensor,
    },
    /// The operator wrote to a copy of this tensor, which is shared, or failed before writing.
    Other(TValue),
}

impl Overwrite {
    /// Creates an operator that writes along this axis. `start` computes the first position from
    /// all inputs and rejects invalid ones.
    pub(crate) fn new(
        axis: usize,
        start: impl Fn(&[TValue]) -> TractResult<usize> + Send + Sync + 'static,
    ) -> Self {
        Self {
            axis,
            start: Arc::new(start),
            before: Arc::new(Mutex::new(UndoState::Nothing)),
        }
    }

    /// Makes the last write final after a successful run.
    pub(crate) fn commit(&self) {
        self.replace(UndoState::Nothing);
    }

    /// Undoes the last write in the tensors that a run left, by their addresses.
    pub(crate) fn undo(&self, left: &mut HashMap<usize, TValue>) -> TractResult<()> {
        match self.replace(UndoState::Nothing) {
            UndoState::Nothing => {}
            UndoState::Other(tensor) => {
                left.extend(address(&tensor).map(|address| (address, tensor)));
            }
            UndoState::Part {
                tensor,
                start,
                values,
            } => {
                let Some(written) = left.remove(&tensor) else {
                    bail!("the overwritten tensor is missing");
                };
                let mut written = written.into_tensor();
                let end = start + values.shape()[self.axis];
                written.assign_slice(start..end, &values, .., self.axis)?;
                left.insert(tensor, written.into_tvalue());
            }
        }
        Ok(())
    }

    fn replace(&self, with: UndoState) -> UndoState {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        mem::replace(&mut *before, with)
    }

    /// Returns the start and the end of the write, after checking the inputs.
    fn span(&self, inputs: &[TValue]) -> TractResult<(usize, usize)> {
        let [tensor, values, ..] = inputs else {
            bail!("expected at least two inputs, got {}", inputs.len());
        };
        let start = (self.start)(inputs)?;
        let (of_tensor, of_values) = (tensor.shape(), values.shape());
        ensure!(
            tensor.datum_type() == values.datum_type()
                && of_tensor.len() == of_values.len()
                && self.axis < of_tensor.len(),
            "cannot write {values:?} into {tensor:?} along axis {}",
            self.axis
        );
        let sizes = of_tensor.iter().zip(of_values).enumerate();
        let others_fit = sizes
            .filter(|(at, _)| *at != self.axis)
            .all(|(_, (a, b))| a == b);
        let end = start.checked_add(of_values[self.axis]);
        match end.filter(|end| others_fit && *end <= of_tensor[self.axis]) {
            Some(end) => Ok((start, end)),
            None => bail!(
                "cannot write a shape {of_values:?} from {start} on into a shape {of_tensor:?}"
            ),
        }
    }
}

/// Returns the address of a tensor's elements, if it has any.
pub(crate) fn address(tensor: &Tensor) -> Option<usize> {
    let elements = tensor.as_plain_ram()?.as_bytes();
    (!elements.is_empty()).then(|| elements.as_ptr().addr())
}

/// Returns `true` if only overwriting operators use this input, one after the other, and the graph
/// returns the result. Then nothing else needs it, and a failed run loses nothing.
pub(crate) fn is_overwritten(model: &TypedModel, input: OutletId) -> bool {
    let mut outlet = input;
    loop {
        let node = model.node(outlet.node);
        let written = node.outputs[outlet.slot]
            .successors
            .iter()
            .find(|reader| reader.slot == 0 && model.node(reader.node).op_is::<Overwrite>());
        let Some(written) = written else {
            return false;
        };
        outlet = written.node.into();
        if model.outputs.contains(&outlet) {
            return true;
        }
    }
}

impl fmt::Debug for Overwrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overwrite along axis {}", self.axis)
    }
}

impl PartialEq for Overwrite {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.before, &other.before)
    }
}

impl Eq for Overwrite {}

impl Op for Overwrite {
    fn name(&self) -> StaticName {
        "Overwrite".into()
    }

    op_as_typed_op!();
}

impl EvalOp for Overwrite {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, mut inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let span = self.span(&inputs);
        let Some(tensor) = inputs.first() else {
            bail!("inputs are missing");
        };
        let (start, end) = match span {
            Ok(span) => span,
            Err(error) => {
                // This may be the last reference to the tensor, so it is kept for the undo.
                self.replace(UndoState::Other(tensor.clone()));
                return Err(error);
            }
        };
        let before = match address(tensor) {
            Some(address) if tensor.is_exclusive() => UndoState::Part {
                tensor: address,
                start,
                values: tensor.slice(self.axis, start, end)?,
            },
            _ => UndoState::Other(tensor.clone()),
        };
        self.replace(before);
        // Nothing fails from here on.
        let values = inputs.remove(1);
        let mut tensor = inputs.remove(0).into_tensor();
        tensor.assign_slice(start..end, &values, .., self.axis)?;
        Ok(tvec!(tensor.into_tvalue()))
    }
}

impl TypedOp for Overwrite {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(tvec!(inputs[0].without_value()))
    }

    as_op!();
}
