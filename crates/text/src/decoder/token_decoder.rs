//! A [`Decoder`] for any recognised decoder shape, which drives single steps.
//!
//! It tracks two counts: the held tokens, which the caller sees, and how many of them the session
//! has processed (`fed`). If the session loses its state (evicted, a failed step, or a cache that
//! cannot be truncated), `fed` drops, and the next step feeds the missing tokens again. Invariant:
//! the session's state covers exactly the first `fed` held tokens.

use super::Decoder;
use super::error::DecodeError;
use super::recognise::DecoderModel;
use super::rows::logits_match;
use super::shape::{FeedingMode, LogitsRange, StepTokens};
use super::steps::{StepError, Steps};
use crate::slot::is_slot;
use pkgtool_engine::RunStart;
use pkgtool_engine::tensor::{DType, Tensor};

/// Maximum number of retries after an eviction within one call.
const MAX_RETRIES: usize = 3;

/// A [`Decoder`] of a recognised model.
#[derive(Debug)]
pub struct TokenDecoder<S> {
    model: DecoderModel,
    steps: S,
    held: Vec<u32>,
    fed: usize,
    /// The initial state of the next step.
    begins: RunStart,
    logits: Vec<f32>,
}

impl<S: Steps> TokenDecoder<S> {
    /// Creates an empty decoder. `steps` must run the model as loaded with
    /// [`DecoderModel::carrying`].
    pub fn new(model: DecoderModel, steps: S) -> Self {
        Self {
            model,
            steps,
            held: Vec::new(),
            fed: 0,
            begins: RunStart::Anew,
            logits: Vec::new(),
        }
    }

    /// Returns the model, including the results of a trial.
    pub fn model(&self) -> &DecoderModel {
        &self.model
    }

    /// Returns the step runner.
    pub fn steps(&mut self) -> &mut S {
        &mut self.steps
    }

    /// Returns the step runner by value.
    pub fn into_steps(self) -> S {
        self.steps
    }

    /// Tests with a few steps whether the internal cache of a program can be truncated, which holds
    /// if it is addressed by position. Afterwards the decoder is empty. Models of other shapes need
    /// no test.
    pub fn try_truncation(&mut self) -> Result<bool, DecodeError> {
        let is_new = matches!(self.model.shape.feeding, FeedingMode::NewTokens { .. });
        let keeps = is_new && self.model.carrying.states.is_empty();
        let room = self.model.context >= 4 && self.model.vocabulary >= 4;
        if self.model.shape.can_truncate || !keeps || !room {
            return Ok(self.model.shape.can_truncate);
        }
        self.model.shape.can_truncate = true;
        let tried = self.test_truncation();
        self.model.shape.can_truncate = matches!(tried, Ok(true));
        self.restart();
        self.held.clear();
        tried
    }

    fn test_truncation(&mut self) -> Result<bool, DecodeError> {
        self.cut(0)?;
        let fresh = self.feed(&[1, 2, 3], &|| true)?.to_vec();
        self.cut(1)?;
        self.feed(&[3, 1], &|| true)?;
        self.cut(1)?;
        let again = self.feed(&[2, 3], &|| true)?;
        Ok(logits_match(&fresh, again))
    }

    /// Marks the session's state as lost.
    fn restart(&mut self) {
        self.fed = 0;
        self.begins = RunStart::Anew;
    }

    /// Returns the number of pending tokens that the next step takes.
    fn step_length(&self) -> usize {
        let left = self.held.len() - self.fed;
        match self.model.shape.feeding {
            FeedingMode::NewTokens { most } => left.min(most),
            FeedingMode::FirstThenOne if self.fed > 0 => left.min(1),
            FeedingMode::FirstThenOne | FeedingMode::AllTokens | FeedingMode::Padded { .. } => left,
        }
    }

    /// Runs the next step.
    fn step(&mut self) -> Result<(), StepError> {
        let from = match self.model.shape.feeding {
            FeedingMode::AllTokens | FeedingMode::Padded { .. } => 0,
            FeedingMode::NewTokens { .. } | FeedingMode::FirstThenOne => self.fed,
        };
        let to = self.fed + self.step_length();
        let shape = &self.model.shape;
        let fed = StepTokens::new(from, &self.held[from..to]);
        let outputs = (self.steps).step(&self.model, self.begins.clone(), fed)?;
        let logits = outputs.get(shape.place);
        let row = match shape.feeding {
            FeedingMode::Padded { .. } => to - 1,
            _ => 0,
        };
        let read =
            logits.ok_or_else(|| DecodeError::Model("the model returned no logits".to_owned()));
        let read = read.and_then(|logits| self.model.logits(logits, row));
        self.logits = read.map_err(StepError::failed)?;
        self.begins = RunStart::AsLeft;
        self.fed = to;
        Ok(())
    }
}

impl DecoderModel {
    /// Returns the logits of a position.
    pub(super) fn logits(&self, logits: &Tensor, row: usize) -> Result<Vec<f32>, DecodeError> {
        let vocabulary = self.vocabulary;
        let size = usize::try_from(logits.dtype().size()).unwrap_or(1);
        let row = match self.shape.logits {
            LogitsRange::All => row,
            LogitsRange::Last => 0,
        };
        let range = row * vocabulary * size..(row + 1) * vocabulary * size;
        let fits = logits.shape().last() == Some(&(vocabulary as u64));
        let bytes = logits.bytes().get(range).filter(|_| fits).ok_or_else(|| {
            DecodeError::Model(format!(
                "the model returned logits {logits:?}: expected {vocabulary} per token"
            ))
        })?;
        Ok(logits_as_f32(logits.dtype(), bytes))
    }
}

impl<S: Steps> Decoder for TokenDecoder<S> {
    fn vocabulary(&self) -> usize {
        self.model.vocabulary
    }

    fn context(&self) -> usize {
        self.model.context
    }

    fn held(&self) -> &[u32] {
        &self.held
    }

    fn cut(&mut self, length: usize) -> Result<(), DecodeError> {
        if length > self.held.len() {
            return Err(DecodeError::Model(format!(
                "cannot keep {length} tokens of {}",
                self.held.len()
            )));
        }
        self.held.truncate(length);
        if self.fed <= length {
            return Ok(());
        }
        if length > 0 && self.model.shape.can_truncate {
            self.fed = length;
            self.begins = RunStart::Cut(length as u64);
        } else {
            self.restart();
        }
        Ok(())
    }

    fn feed(
        &mut self,
        tokens: &[u32],
        going_on: &dyn Fn() -> bool,
    ) -> Result<&mut [f32], DecodeError> {
        self.check(tokens)?;
        let before = self.held.len();
        self.held.extend(tokens);
        let mut again = 0;
        while self.fed < self.held.len() {
            let outcome = if going_on() { Some(self.step()) } else { None };
            match outcome {
                Some(Ok(())) => {}
                Some(Err(StepError::Evicted)) if again < MAX_RETRIES => {
                    again += 1;
                    self.restart();
                }
                Some(Err(error)) => {
                    self.restart();
                    self.held.truncate(before);
                    return Err(self.error(error));
                }
                None => {
                    self.held.truncate(self.fed.max(before));
                    return Err(DecodeError::Disconnected);
                }
            }
        }
        Ok(&mut self.logits)
    }
}

impl<S> TokenDecoder<S> {
    fn check(&self, tokens: &[u32]) -> Result<(), DecodeError> {
        let vocabulary = self.model.vocabulary;
        let has_pictures = self.model.embedding_width().is_some();
        let is_known = |token: u32| match usize::try_from(token) {
            _ if is_slot(token) => has_pictures,
            token => token.is_ok_and(|token| token < vocabulary),
        };
        let is_unknown = |token: &&u32| !is_known(**token);
        if let Some(&token) = tokens.iter().find(is_unknown) {
            return Err(DecodeError::Token { token, vocabulary });
        }
        if tokens.is_empty() {
            return Err(DecodeError::Model("no tokens to feed".to_owned()));
        }
        let (tokens, context) = (self.held.len() + tokens.len(), self.model.context);
        if tokens > context {
            return Err(DecodeError::ContextFull { tokens, context });
        }
        Ok(())
    }

    /// Converts the error of a step that followed the held tokens.
    fn error(&self, error: StepError) -> DecodeError {
        let held = self.held.len();
        match error {
            StepError::Evicted => DecodeError::Step(Box::new(StepError::Evicted)),
            StepError::Run { cause, by_values }
                if held > 0 && (by_values || !self.model.is_context_sure) =>
            {
                DecodeError::BeyondContext { held, cause }
            }
            StepError::Run { cause, .. } | StepError::Failed(cause) => {
                match cause.downcast::<DecodeError>() {
                    Ok(own) => *own,
                    Err(cause) => DecodeError::Step(cause),
                }
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "float32 suffices for logits, as models compute in it"
)]
fn logits_as_f32(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let half = |element: &[u8]| [element[0], element[1]];
    match dtype {
        DType::Float16 => {
            let elements = bytes.chunks_exact(2);
            elements
                .map(|it| half::f16::from_le_bytes(half(it)).to_f32())
                .collect()
        }
        DType::Bfloat16 => {
            let elements = bytes.chunks_exact(2);
            elements
                .map(|it| half::bf16::from_le_bytes(half(it)).to_f32())
                .collect()
        }
        DType::Float64 => {
            let elements = bytes.chunks_exact(8);
            elements
                .map(|it| f64::from_le_bytes(it.try_into().expect("eight bytes")) as f32)
                .collect()
        }
        _ => bytemuck::pod_collect_to_vec(bytes),
    }
}
