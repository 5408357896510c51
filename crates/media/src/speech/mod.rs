//! Speech to text as Whisper does it: window by window, with timestamps.
//!
//! [`SpeechRun`] asks for runs of an encoder and of a decoder until the transcript is complete. It knows tokens as
//! numbers; their texts come from the caller's tokenizer.

mod decoding;
mod grammar;
mod run;
mod tokens;

pub use run::{SpeechOptions, SpeechRun, SpeechStep, TextOfTokens};
pub use tokens::SpeechTokens;
