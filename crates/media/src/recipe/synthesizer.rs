//! The second model of speech: it takes what was prepared for the first one, and what that one gave.

use std::collections::BTreeMap;

use pkgtool_engine::tensor::{Signature, Tensor};

use super::fit::{InputTarget, run, targets, tensors};
use super::pattern::TensorPattern;
use super::step::BoundStep;
use super::{Match, RecipeStep};
use crate::operators::{Array, Data, StepContext, Symbols};
use crate::voice::PieceContext;

/// A model that makes the sound of a recipe's first model.
#[derive(Debug, Clone)]
pub struct FittedSynthesizer {
    inputs: Vec<InputTarget>,
    /// Names of the outputs, in order.
    pub(super) outputs: Vec<String>,
    symbols: Symbols,
}

/// The inputs of a synthesizer.
pub(super) struct SynthesizerInputs {
    pub(super) inputs: Vec<Tensor>,
    /// Numbers of frames that the durations ask for, and that the model gives.
    pub(super) frames: [usize; 2],
}

impl Match {
    /// Returns the names of inputs that no step makes and the first model does not give.
    pub(super) fn missing(&self, first: &Self, steps: &[&[RecipeStep]]) -> Vec<&str> {
        let is_made = |tensor: &&TensorPattern| {
            let mut steps = steps.iter().copied().flatten();
            let mut outputs = first.outputs.iter();
            steps.any(|step| step.to == tensor.name) || outputs.any(|it| it.name == tensor.name)
        };
        let inputs = self.inputs.iter().filter(|tensor| !is_made(tensor));
        inputs.map(|tensor| tensor.name.as_str()).collect()
    }

    /// Returns the synthesizer that a method of a component is. `symbols` has the sizes of the first model.
    pub(super) fn synthesizer(
        &self,
        (component, signature): (Option<&str>, &Signature),
        mut symbols: Symbols,
    ) -> Option<FittedSynthesizer> {
        if !self.fits(component, signature, &mut symbols) {
            return None;
        }
        Some(FittedSynthesizer {
            inputs: targets(&self.inputs, signature),
            outputs: self.outputs.iter().map(|it| it.name.clone()).collect(),
            symbols,
        })
    }
}

impl FittedSynthesizer {
    /// Converts what is known of a piece of `tokens` ids to the inputs.
    pub(super) fn inputs(
        &self,
        steps: &[BoundStep],
        known: &mut BTreeMap<String, Data>,
        (piece, tokens): (PieceContext<'_>, usize),
    ) -> Result<SynthesizerInputs, String> {
        let mut context = StepContext {
            piece: Some(piece),
            tokens,
            ..StepContext::new(&self.symbols)
        };
        run(steps, known, &mut context)?;
        Ok(SynthesizerInputs {
            inputs: tensors(&self.inputs, known, None)?,
            frames: context.frames,
        })
    }
}

impl Array {
    /// Keeps `part` of `all` values.
    pub(super) fn cut(mut self, [part, all]: [usize; 2]) -> Self {
        let count = self.values.len();
        if part < all {
            self.values.truncate(count / all * part);
            self.shape = vec![self.values.len()];
        }
        self
    }
}
