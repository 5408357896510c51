//! Reductions of empty tensors: negative axes are not counted from the end then.
//!
//! The result has a wrong shape. This is detected for tensors that are inputs of the model: at load
//! time if the input is always empty, otherwise at each run. Intermediate tensors that become empty
//! are not detected.

use super::{StoredValues, refused};
use crate::EngineError;
use crate::tensor::{Signature, Tensor};

use pkgtool_model::onnx::OnnxNode;

/// The reason for rejecting them.
pub(super) const CAUSE: &str =
    "negative axes are not counted from the end when an empty tensor is reduced";

/// A reduction whose axes may be negative.
pub(super) struct Reduction {
    operator: String,
    input: String,
    /// The tensor with its axes. Axes in an attribute have already been checked.
    axes: Option<String>,
}

/// An input of the model that is reduced over possibly negative axes.
#[derive(Debug)]
pub(in crate::ort) struct InputReduction {
    pub(super) operator: String,
    /// The position of the input.
    pub(super) input: usize,
    /// The position of the axes, if they are an input too.
    pub(super) axes: Option<usize>,
}

impl Reduction {
    /// Returns the reduction in a node, if it is one.
    pub(super) fn of(node: &OnnxNode) -> Option<Self> {
        if !node.operator.starts_with("Reduce") {
            return None;
        }
        let axes = node.has_input(1).then(|| node.inputs[1].clone());
        let attribute = node.attribute("axes");
        let is_below = attribute.is_some_and(|axes| axes.ints.iter().any(|axis| *axis < 0));
        (axes.is_some() || is_below).then(|| Self {
            operator: node.operator.clone(),
            input: node.inputs[0].clone(),
            axes,
        })
    }

    /// Returns the reduction if it reads an input of the model and the file does not prove that all
    /// axes are non-negative.
    pub(super) fn over_input(
        self,
        values: &StoredValues,
        signature: &Signature,
    ) -> Option<InputReduction> {
        let stored = self.axes.as_ref().and_then(|name| values.get(name));
        let axes = stored.and_then(|stored| stored.ints.as_deref());
        if axes.is_some_and(|axes| axes.iter().all(|axis| *axis >= 0)) {
            return None;
        }
        let place = |name: &String| {
            let mut inputs = signature.inputs.iter();
            inputs.position(|spec| spec.name == *name)
        };
        Some(InputReduction {
            input: place(&self.input)?,
            axes: self.axes.as_ref().and_then(place),
            operator: self.operator,
        })
    }
}

impl InputReduction {
    /// Rejects a run whose input is empty, unless its axes are given and non-negative.
    pub(in crate::ort) fn check(&self, inputs: &[Option<&Tensor>]) -> Result<(), EngineError> {
        let given = |place: usize| inputs.get(place).copied().flatten();
        let axes = self.axes.and_then(given);
        let is_right = axes.is_some_and(|axes| axes.to_f64().all(|axis| axis >= 0.0));
        match given(self.input) {
            Some(input) if input.is_empty() && !is_right => {
                Err(refused(vec![self.operator.clone()], CAUSE.to_owned()))
            }
            _ => Ok(()),
        }
    }
}
