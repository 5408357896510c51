//! Reductions of nothing: of a tensor without elements, axes below zero are not counted from the end.
//!
//! The answer then has another shape than ONNX says. Seen where the tensor is an input of the model: at
//! once if it is always empty, else when it is given. What becomes empty inside cannot be seen.

use super::{Values, refused};
use crate::engine::EngineError;
use crate::tensor::{Signature, Tensor};

use crate::model::onnx::Node;

/// Why they are refused.
pub(super) const CAUSE: &str =
    "axes below zero are not counted from the end when a tensor without elements is reduced";

/// A reduction whose axes may be below zero.
pub(super) struct Reduction {
    operator: String,
    input: String,
    /// The tensor that holds its axes; an attribute that has them is looked at already.
    axes: Option<String>,
}

/// An input of the model that is reduced over axes below zero.
#[derive(Debug)]
pub(in crate::engine::ort) struct Direct {
    pub(super) operator: String,
    /// The input's place.
    pub(super) input: usize,
    /// The place of its axes, if they are an input too.
    pub(super) axes: Option<usize>,
}

impl Reduction {
    /// The node, if it is one of them.
    pub(super) fn of(node: &Node) -> Option<Self> {
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

    /// The reduction, if it is of an input of the model and the file does not show axes from zero on.
    pub(super) fn over_input(self, values: &Values, signature: &Signature) -> Option<Direct> {
        let stored = self.axes.as_ref().and_then(|name| values.get(name));
        let axes = stored.and_then(|stored| stored.ints.as_deref());
        if axes.is_some_and(|axes| axes.iter().all(|axis| *axis >= 0)) {
            return None;
        }
        let place = |name: &String| {
            let mut inputs = signature.inputs.iter();
            inputs.position(|spec| spec.name == *name)
        };
        Some(Direct {
            input: place(&self.input)?,
            axes: self.axes.as_ref().and_then(place),
            operator: self.operator,
        })
    }
}

impl Direct {
    /// Refuses a run whose input is empty, unless its axes are given and are from zero on.
    pub(in crate::engine::ort) fn check(
        &self,
        inputs: &[Option<&Tensor>],
    ) -> Result<(), EngineError> {
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
