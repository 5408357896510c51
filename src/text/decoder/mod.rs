//! A model that keeps what it was fed and tells what may come next.

use thiserror::Error;

/// A model with a memory of tokens.
pub trait Decoder {
    /// How many tokens it has a logit for.
    fn vocabulary(&self) -> usize;

    /// Most tokens it can hold.
    fn context(&self) -> usize;

    /// Tokens it holds now.
    fn held(&self) -> &[u32];

    /// Keeps the first `length` held tokens.
    fn cut(&mut self, length: usize) -> Result<(), DecodeError>;

    /// Feeds tokens behind those held, gives the logits after the last of them. `going_on` is asked
    /// between parts of a long prompt whether the caller is still there.
    fn feed(
        &mut self,
        tokens: &[u32],
        going_on: &dyn Fn() -> bool,
    ) -> Result<&mut [f32], DecodeError>;
}

/// Why a model gave no logits.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// `going_on` said no.
    #[error("the caller has gone")]
    Gone,
    /// The engine's own words.
    #[error("{0}")]
    Model(String),
}
