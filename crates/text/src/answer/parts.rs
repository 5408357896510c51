//! Pieces of a parsed answer.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Number of random letters in a call id.
const CALL_ID_LETTERS: usize = 24;

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// More content.
    Content(String),
    /// More reasoning.
    Reasoning(String),
    /// The beginning of a tool call.
    Call {
        /// Index among the calls of the answer.
        index: usize,
        /// A generated id, `call_…`.
        id: String,
        /// Name of the tool.
        name: String,
    },
    /// More of a call's arguments, which are a JSON object as text.
    Arguments {
        /// Index of the call.
        index: usize,
        /// The text.
        text: String,
    },
}

/// A parsed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParsedCall {
    pub(super) name: String,
    /// A JSON object.
    pub(super) arguments: String,
}

/// Pieces that were not taken yet. Adjacent pieces of the same kind are merged.
#[derive(Debug, Default)]
pub(super) struct PieceBuffer {
    pieces: Vec<Piece>,
    calls: usize,
}

impl PieceBuffer {
    pub(super) fn content(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.pieces.last_mut() {
            Some(Piece::Content(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Content(text.to_owned())),
        }
    }

    pub(super) fn reasoning(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.pieces.last_mut() {
            Some(Piece::Reasoning(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Reasoning(text.to_owned())),
        }
    }

    pub(super) fn call(&mut self, call: ParsedCall) {
        let index = self.calls;
        self.calls += 1;
        self.pieces.push(Piece::Call {
            index,
            id: new_call_id(),
            name: call.name,
        });
        self.pieces.push(Piece::Arguments {
            index,
            text: call.arguments,
        });
    }

    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    pub(super) fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }
}

/// Returns a unique call id.
fn new_call_id() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut id = "call_".to_owned();
    let mut bits = 0;
    for place in 0..CALL_ID_LETTERS {
        if place % 12 == 0 {
            // The standard library seeds its hash maps from the operating system's random source.
            let mut hasher = RandomState::new().build_hasher();
            hasher.write_usize(place);
            bits = hasher.finish();
        }
        id.push(char::from(LETTERS[usize::try_from(bits % 32).unwrap_or(0)]));
        bits /= 32;
    }
    id
}
