//! The shape of a decoder: what each of its inputs is given, and how many tokens a step may take.
//!
//! Invariant: knows no names of inputs; who recognised the model has looked at them.

use crate::tensor::DType;

/// What a step feeds: tokens behind those that are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed<'a> {
    /// How many are held.
    pub held: usize,
    /// The tokens.
    pub tokens: &'a [u32],
}

/// What an input is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The tokens of the step, [1, n].
    Tokens,
    /// Ones for all that is held with the step, [1, held + n].
    Mask,
    /// The position of each token, [1, n].
    Positions,
    /// The position of each token, `[n]`.
    PositionList,
    /// The position of the first token, `[1]`.
    Start,
    /// The number of the last positions that logits are wanted for, a scalar or `[1]`.
    Wanted { is_list: bool },
    /// Whether what is carried counts, `[1]`.
    UsesCache,
}

/// An input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) role: Role,
    pub(super) dtype: DType,
}

/// Which tokens a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feeding {
    /// Those behind what is held, at most so many.
    New { most: usize },
    /// Any number when it begins, then one by one.
    FirstThenOne,
    /// All of them in every step: nothing is kept.
    All,
    /// All of them in every step, with anything behind them up to this number.
    Padded { length: usize },
}

/// What a run gives for the positions of its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logits {
    /// Those after the last token only.
    Last,
    /// Those of all positions: the wanted ones are among them.
    All,
}

/// How a decoder is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    /// The inputs that are given, in order.
    pub(super) arguments: Vec<Argument>,
    pub(super) feeding: Feeding,
    /// The place of the logits among the outputs that are taken.
    pub(super) place: usize,
    pub(super) logits: Logits,
    /// Whether it can go on from fewer tokens than it was fed.
    pub(super) cuts: bool,
    /// Whether several rows may share a run, as far as the signature tells.
    pub(super) lanes: bool,
}
