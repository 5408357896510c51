//! Events of a running generation, and its result.

use std::time::Duration;

use crate::answer::Piece;
use crate::sampling::Likelihood;

/// An event that is reported to the reader.
#[derive(Debug, Clone, PartialEq)]
pub enum GenerationEvent {
    /// A token was sampled. Reported only if the request asks for probabilities. Its text comes
    /// later, or never.
    Token {
        /// Index of the choice.
        choice: usize,
        /// The token and its probability.
        chosen: Likelihood,
        /// The most likely tokens.
        top: Vec<Likelihood>,
    },
    /// The next piece of an answer.
    Piece {
        /// Index of the choice.
        choice: usize,
        /// The piece.
        piece: Piece,
    },
    /// A choice ended.
    Finish {
        /// Index of the choice.
        choice: usize,
        /// The reason.
        reason: FinishReason,
    },
}

/// The reason why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model sent an end token, a stop string occurred, or the constraint is satisfied.
    Stop,
    /// The answer reached `max_tokens` or the end of the model's context.
    Length,
    /// The model ended the answer with tool calls.
    ToolCalls,
}

impl FinishReason {
    /// Returns the value of `finish_reason`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// Token counts of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GenerationUsage {
    /// Tokens of the prompt, counted once for all choices.
    pub prompt_tokens: usize,
    /// Tokens of all answers, including end tokens.
    pub completion_tokens: usize,
    /// Tokens of the prompt that the model had already processed (prefix cache).
    pub cached_tokens: usize,
}

/// Time that a request spent in the model and in sampling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// Time for the prompt.
    pub prefill: Duration,
    /// Time for the answers.
    pub decode: Duration,
}

impl GenerationUsage {
    /// Returns the answers' tokens per second; `None` if no time was measured or no token was
    /// generated.
    pub fn tokens_per_second(&self, timings: &Timings) -> Option<f64> {
        let seconds = timings.decode.as_secs_f64();
        let tokens = u32::try_from(self.completion_tokens).unwrap_or(u32::MAX);
        (seconds > 0.0 && tokens > 0).then(|| f64::from(tokens) / seconds)
    }
}

/// The result of one choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedChoice {
    /// Its tokens, including the end token.
    pub tokens: Vec<u32>,
    /// The text of all tokens before the end token, including special tokens and any stop string.
    pub text: String,
    /// The reason why it ended; `None` if the caller disconnected first.
    pub finish: Option<FinishReason>,
    /// The number of leading tokens whose text is exactly `text`; `None` if the text ends within a
    /// character.
    pub tokens_in_text: Option<usize>,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// One result for each choice that was begun.
    pub choices: Vec<FinishedChoice>,
    /// Token counts.
    pub usage: GenerationUsage,
    /// Time measurements.
    pub timings: Timings,
}
