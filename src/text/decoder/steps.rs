//! Who runs the steps of a decoder.
//!
//! Invariant: steps of one [`Steps`] run one after the other, each on what the one before has left.

use std::error::Error;

use super::recognise::DecoderModel;
use super::shape::Fed;
use crate::engine::{Begins, Session};
use crate::tensor::Tensor;

/// Runs a model step by step, keeping what it carries between them.
pub trait Steps {
    /// Runs a step. Outputs are those of [`DecoderModel::carrying`]'s visible signature. A failed step
    /// leaves nothing to go on from: the next one begins anew.
    fn step(
        &mut self,
        model: &DecoderModel,
        begins: Begins,
        fed: Fed<'_>,
    ) -> Result<Vec<Tensor>, StepError>;
}

/// Why a step gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// What the steps before have left was taken away; the step did not run. Begun anew, it may.
    #[error("what was kept for it was taken away")]
    Taken,
    /// It failed.
    #[error("{0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

impl StepError {
    /// It failed so.
    pub fn failed(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// Steps of a session that nobody else uses.
#[derive(Debug)]
pub struct SessionSteps<S>(pub S);

impl<S: Session> Steps for SessionSteps<S> {
    fn step(
        &mut self,
        model: &DecoderModel,
        begins: Begins,
        fed: Fed<'_>,
    ) -> Result<Vec<Tensor>, StepError> {
        let inputs = model.inputs(&[fed]).map_err(StepError::failed)?;
        let answer = self.0.begin(begins).and_then(|()| self.0.run(&inputs));
        match answer {
            Ok(answer) => Ok(answer.outputs),
            Err(error) => Err(StepError::Failed(Box::new(error))),
        }
    }
}

impl Steps for Box<dyn Steps + '_> {
    fn step(
        &mut self,
        model: &DecoderModel,
        begins: Begins,
        fed: Fed<'_>,
    ) -> Result<Vec<Tensor>, StepError> {
        self.as_mut().step(model, begins, fed)
    }
}
