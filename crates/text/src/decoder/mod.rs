//! Text decoders: models that process tokens step by step and predict the next one.
//!
//! [`DecoderModel::recognise`] derives a decoder's shape from its signature. [`TokenDecoder`] feeds
//! it; its steps ([`Steps`]) may run in a process of the command line, in a session of a server, or
//! in a test. Invariant: however a step ends, the held tokens are those that were fed. A decoder
//! returns the logits after the last of them, or an error.

mod arguments;
mod cached;
mod constants;
mod embedded;
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

pub use embedded::{EmbeddedParts, EmbeddedSteps, PictureRows, RunsModel, TokenEmbedding};
pub use error::{DecodeError, NotADecoder};
pub use recognise::DecoderModel;
pub use rows::LaneRow;
pub use shape::StepTokens;
pub use steps::{SessionStepRunner, StepError, StepResult, Steps};
pub use token_decoder::TokenDecoder;

/// A model with a memory of the tokens it was fed (KV cache).
pub trait Decoder {
    /// Returns the number of tokens that have a logit.
    fn vocabulary(&self) -> usize;

    /// Returns the context length: the maximum number of held tokens.
    fn context(&self) -> usize;

    /// Returns the tokens held now.
    fn held(&self) -> &[u32];

    /// Truncates the held tokens to the first `length`.
    fn cut(&mut self, length: usize) -> Result<(), DecodeError>;

    /// Feeds tokens after those held, and returns the logits after the last one. Between parts of a
    /// long prompt, `going_on` is polled for whether the caller is still connected.
    fn feed(
        &mut self,
        tokens: &[u32],
        going_on: &dyn Fn() -> bool,
    ) -> Result<&mut [f32], DecodeError>;
}
