//! The interface to run the steps of a decoder, implemented by sessions in this process and by
//! clients of other processes.
//!
//! Invariant: the steps of one [`Steps`] run one after the other, each on the state that the
//! previous one left.

use std::error::Error;

use super::recognise::DecoderModel;
use super::shape::StepTokens;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{EngineError, RunStart, Session};

/// The outputs of a step.
pub type StepResult = Result<Vec<Tensor>, StepError>;

/// Runs a model step by step and keeps its carried state between steps.
pub trait Steps {
    /// Runs a step. The outputs are those of [`DecoderModel::carrying`]'s visible signature. A
    /// failed step loses the state; the next step must begin anew.
    fn step(&mut self, model: &DecoderModel, begins: RunStart, fed: StepTokens<'_>) -> StepResult;
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The state of earlier steps was evicted, and the step did not run. It can be retried from the
    /// beginning.
    #[error("the session's state was evicted")]
    Evicted,
    /// The model failed on these inputs.
    #[error("{cause}")]
    Run {
        /// The engine's error.
        cause: Box<dyn Error + Send + Sync>,
        /// True if the input values caused it, such as a token or a position out of range.
        by_values: bool,
    },
    /// Another failure.
    #[error("{0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

impl StepError {
    /// Creates [`StepError::Failed`].
    pub fn failed(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed(Box::new(error))
    }

    /// Creates [`StepError::Run`].
    pub fn run(error: impl Error + Send + Sync + 'static, by_values: bool) -> Self {
        Self::Run {
            cause: Box::new(error),
            by_values,
        }
    }
}

/// Steps of a session with a single user.
#[derive(Debug)]
pub struct SessionStepRunner<S>(pub S);

impl<S: Session> Steps for SessionStepRunner<S> {
    fn step(&mut self, model: &DecoderModel, begins: RunStart, fed: StepTokens<'_>) -> StepResult {
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
    fn step(&mut self, model: &DecoderModel, begins: RunStart, fed: StepTokens<'_>) -> StepResult {
        self.as_mut().step(model, begins, fed)
    }
}
