//! Values written into a tensor that a program keeps, at its place.
//!
//! A language model's caches hold many positions, and a run writes one of them: a copy of the others for each would
//! cost more than the run. Invariant: a tensor is written to only where nobody else holds it, and what was overwritten
//! is kept until the run has come to its end, so that after a failed one the tensor can be again what it was.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use tract_onnx::tract_core::internal::*;

/// From which place on an operator writes, by its inputs.
type Start = dyn Fn(&[TValue]) -> TractResult<usize> + Send + Sync;

/// Writes its second input over a part of its first, along an axis.
#[derive(Clone)]
pub(super) struct Overwrite {
    axis: usize,
    start: Arc<Start>,
    before: Arc<Mutex<Before>>,
}

/// What a run's writing did away with.
enum Before {
    /// Nothing: it has not run, or there is no way back any more.
    Nothing,
    /// These values, from this place of the tensor on.
    Part {
        tensor: usize,
        start: usize,
        values: Tensor,
    },
    /// Nothing: a copy of this was written to, which somebody else held, or nothing at all.
    Other(TValue),
}

impl Overwrite {
    /// An operator that writes along this axis from the place that `start` finds in all its inputs. `start` refuses
    /// what does not fit.
    pub(super) fn new(
        axis: usize,
        start: impl Fn(&[TValue]) -> TractResult<usize> + Send + Sync + 'static,
    ) -> Self {
        Self {
            axis,
            start: Arc::new(start),
            before: Arc::new(Mutex::new(Before::Nothing)),
        }
    }

    /// Does away with the way back: the run was good.
    pub(super) fn settle(&self) {
        self.replace(Before::Nothing);
    }

    /// Undoes the last writing among tensors that a run has left, by their addresses.
    pub(super) fn undo(&self, left: &mut HashMap<usize, TValue>) -> TractResult<()> {
        match self.replace(Before::Nothing) {
            Before::Nothing => {}
            Before::Other(tensor) => {
                left.extend(address(&tensor).map(|address| (address, tensor)));
            }
            Before::Part {
                tensor,
                start,
                values,
            } => {
                let Some(written) = left.remove(&tensor) else {
                    bail!("what was written to is gone");
                };
                let mut written = written.into_tensor();
                let end = start + values.shape()[self.axis];
                written.assign_slice(start..end, &values, .., self.axis)?;
                left.insert(tensor, written.into_tvalue());
            }
        }
        Ok(())
    }

    fn replace(&self, with: Before) -> Before {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        mem::replace(&mut *before, with)
    }

    /// Whether the tensor can be written to, and where that begins and ends.
    fn span(&self, inputs: &[TValue]) -> TractResult<(usize, usize)> {
        let [tensor, values, ..] = inputs else {
            bail!("{} inputs", inputs.len());
        };
        let start = (self.start)(inputs)?;
        let (of_tensor, of_values) = (tensor.shape(), values.shape());
        ensure!(
            tensor.datum_type() == values.datum_type()
                && of_tensor.len() == of_values.len()
                && self.axis < of_tensor.len(),
            "{values:?} written into {tensor:?} along axis {}",
            self.axis
        );
        let sizes = of_tensor.iter().zip(of_values).enumerate();
        let others_fit = sizes
            .filter(|(at, _)| *at != self.axis)
            .all(|(_, (a, b))| a == b);
        let end = start.checked_add(of_values[self.axis]);
        match end.filter(|end| others_fit && *end <= of_tensor[self.axis]) {
            Some(end) => Ok((start, end)),
            None => bail!("{of_values:?} from {start} on in {of_tensor:?}"),
        }
    }
}

/// Where the elements of a tensor are, if it has any.
pub(super) fn address(tensor: &Tensor) -> Option<usize> {
    let elements = tensor.as_plain_ram()?.as_bytes();
    (!elements.is_empty()).then(|| elements.as_ptr().addr())
}

/// Whether all that becomes of this input is that operators write to it, one after the other, and that the graph gives
/// it back at last: then nobody but they need it, and a failed run loses nothing.
pub(super) fn is_overwritten(model: &TypedModel, input: OutletId) -> bool {
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
            bail!("no inputs");
        };
        let (start, end) = match span {
            Ok(span) => span,
            Err(error) => {
                // Nobody else may hold it any more.
                self.replace(Before::Other(tensor.clone()));
                return Err(error);
            }
        };
        let before = match address(tensor) {
            Some(address) if tensor.is_exclusive() => Before::Part {
                tensor: address,
                start,
                values: tensor.slice(self.axis, start, end)?,
            },
            _ => Before::Other(tensor.clone()),
        };
        self.replace(before);
        // From here on nothing fails.
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
