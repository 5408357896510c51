//! What a generation tells while it goes on, and what is known when it is over.

use std::time::Duration;

use crate::text::answer::Piece;
use crate::text::sampling::Likelihood;

/// Something to tell the reader.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A token was chosen; told where probabilities were asked for. Its text comes later, or never.
    Token {
        /// Which choice.
        choice: usize,
        /// The token, and how likely it was.
        chosen: Likelihood,
        /// The likeliest tokens.
        top: Vec<Likelihood>,
    },
    /// More of an answer.
    Piece {
        /// Which choice.
        choice: usize,
        /// What came.
        piece: Piece,
    },
    /// A choice is over.
    Finish {
        /// Which choice.
        choice: usize,
        /// Why.
        reason: Finish,
    },
}

/// Why an answer is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it, a stop string came, or the constraint is fulfilled.
    Stop,
    /// As many tokens as were asked for, or as the model holds.
    Length,
    /// The model ended it, with calls of tools.
    ToolCalls,
}

impl Finish {
    /// As `finish_reason` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// Tokens that a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt, once for all choices.
    pub prompt_tokens: usize,
    /// Of all answers, with those that ended them.
    pub completion_tokens: usize,
    /// Of the prompt, those that the model held already.
    pub cached_tokens: usize,
}

/// Time that a request took in the model and in choosing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// For the prompt.
    pub prefill: Duration,
    /// For the answers.
    pub decode: Duration,
}

impl Usage {
    /// Tokens of the answers in a second; `None` where there was none.
    pub fn tokens_per_second(&self, timings: &Timings) -> Option<f64> {
        let seconds = timings.decode.as_secs_f64();
        let tokens = u32::try_from(self.completion_tokens).unwrap_or(u32::MAX);
        (seconds > 0.0 && tokens > 0).then(|| f64::from(tokens) / seconds)
    }
}

/// What one choice said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its tokens, with the one that ended it.
    pub tokens: Vec<u32>,
    /// The text of those before the end, with all marks; before any stop string was cut off.
    pub text: String,
    /// Why it is over; `None` where the caller had gone before.
    pub finish: Option<Finish>,
    /// How many of the tokens make up the text: `None` where they do not, because it ends within a
    /// character.
    pub whole: Option<usize>,
}

/// What a request came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// One for each choice that was begun.
    pub choices: Vec<Said>,
    /// Tokens it took.
    pub usage: Usage,
    /// Time it took.
    pub timings: Timings,
}
