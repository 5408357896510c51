//! Decoders: models that hold tokens and tell what may come next.
//!
//! [`DecoderModel::recognise`] reads the shape of one from its signature, and [`TokenDecoder`] feeds it,
//! whoever runs its steps ([`Steps`]): a process of the command line, a session of a server, a test.
//! Invariant: whatever a step ends with, the tokens that are held are those that were fed, and a decoder
//! gives the logits after the last of them or an error.

mod arguments;
mod cached;
mod constants;
mod error;
mod heads;
mod plain;
mod program;
mod recognise;
mod roles;
mod rows;
mod shape;
mod siblings;
mod steps;
mod token_decoder;

pub use error::{DecodeError, NotADecoder};
pub use recognise::DecoderModel;
pub use rows::LaneRow;
pub use shape::Fed;
pub use steps::{SessionSteps, StepError, Steps};
pub use token_decoder::TokenDecoder;

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
