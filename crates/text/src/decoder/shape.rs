//! The shape of a decoder: the role of each input, and how many tokens a step may take.
//!
//! Invariant: this module does not depend on input names; recognition has resolved them.

use pkgtool_engine::tensor::{DType, Tensor};

/// The tokens that a step feeds after those that are held.
#[derive(Debug, Clone, Copy)]
pub struct StepTokens<'a> {
    /// Number of held tokens.
    pub held: usize,
    /// The tokens.
    pub tokens: &'a [u32],
    /// Their embeddings, [1, n, width], for a decoder that takes embeddings.
    pub embeddings: Option<&'a Tensor>,
}

impl<'a> StepTokens<'a> {
    /// Creates a step for a decoder that takes tokens.
    pub fn new(held: usize, tokens: &'a [u32]) -> Self {
        Self {
            held,
            tokens,
            embeddings: None,
        }
    }
}

/// The role of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecoderRole {
    /// The tokens of the step, [1, n].
    Tokens,
    /// The embeddings of these tokens, [1, n, width].
    Embeddings { width: usize },
    /// Ones for all held and new tokens, [1, held + n].
    Mask,
    /// The position of each token, [1, n].
    Positions,
    /// The position of each token, `[n]`.
    PositionList,
    /// The position of the first token, `[1]`.
    StartPosition,
    /// The number of final positions to compute logits for, a scalar or `[1]`.
    LogitsToKeep { is_list: bool },
    /// A flag that enables the cache inputs, `[1]`.
    UsesCache,
}

/// An input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DecoderInput {
    pub(super) role: DecoderRole,
    pub(super) dtype: DType,
}

/// The tokens that a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedingMode {
    /// The new tokens, up to a maximum per step.
    NewTokens { most: usize },
    /// Any number in the first step, then one per step.
    FirstThenOne,
    /// All tokens in every step, since the model has no cache.
    AllTokens,
    /// All tokens in every step, padded to this length.
    Padded { length: usize },
}

/// The positions that a run returns logits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogitsRange {
    /// Only the last position.
    Last,
    /// All positions.
    All,
}

/// The calling convention of a decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DecoderShape {
    /// The inputs in order, without cache tensors.
    pub(super) arguments: Vec<DecoderInput>,
    pub(super) feeding: FeedingMode,
    /// Index of the logits among the visible outputs.
    pub(super) place: usize,
    pub(super) logits: LogitsRange,
    /// True if the cache can be truncated to fewer tokens.
    pub(super) can_truncate: bool,
    /// True if the signature allows several rows in one run.
    pub(super) lanes: bool,
}
