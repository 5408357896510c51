//! Who runs the steps of a decoder.
//!
//! Invariant: steps of one [`Steps`] run one after the other, each on what the one before has left.

use std::error::Error;

use super::recognise::DecoderModel;
use super::shape::Fed;
use crate::engine::{Begins, EngineError, Session};
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
    /// The model ran and failed with what it was fed.
    #[error("{cause}")]
    Run {
        /// What whoever ran it says.
        cause: Box<dyn Error + Send + Sync>,
        /// Whether it failed because of the values: a token or a position outside its tables.
        by_values: bool,
    },
    /// It failed for another reason.
    #[error("{0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

impl StepError {
    /// It failed so.
    pub fn failed(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed(Box::new(error))
    }

    /// The model ran and failed so.
    pub fn run(error: impl Error + Send + Sync + 'static, by_values: bool) -> Self {
        Self::Run {
            cause: Box::new(error),
            by_values,
        }
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
            Err(error @ EngineError::Input { .. }) => Err(StepError::run(error, true)),
            Err(error @ EngineError::Run { .. }) => Err(StepError::run(error, false)),
            Err(error) => Err(StepError::failed(error)),
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
