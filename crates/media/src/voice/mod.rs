//! Speech: phonemes of English texts and their ids, files with voices, and pieces of a text that a model takes at once.

#[cfg(feature = "english")]
mod english;
#[cfg(not(feature = "english"))]
#[path = "english_absent.rs"]
mod english;
mod files;
#[cfg(feature = "english")]
mod letters;
mod pieces;
mod symbols;

pub use english::english;
pub(crate) use files::Voice;
pub use files::voice_names;
pub(crate) use pieces::{MAX_PHONEMES, pause, pieces};
pub(crate) use symbols::{SymbolFile, SymbolTable};

/// Context of the steps for one piece of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceContext<'a> {
    /// The phonemes of the piece that the model knows.
    pub(crate) phonemes: &'a str,
    pub(crate) symbols: &'a SymbolTable,
    /// The voice, if the model takes one.
    pub(crate) voice: Option<&'a Voice>,
}
