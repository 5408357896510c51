//! A streaming detokenizer: decodes token ids to text one by one, as a model generates them.
//!
//! Invariant: returned text is never withdrawn and never ends within a character. All pieces
//! together are the text of all ids. An incomplete character is held back for a few ids only.

use std::sync::Arc;

use super::{Tokenizer, TokenizerError};

/// Maximum number of ids that are held back. A character has at most four bytes, and a token at
/// least one, so bytes that are incomplete after this number never become a character.
const MAX_HELD_IDS: usize = 8;

/// Number of trailing prompt ids that influence how the first answer begins.
const PROMPT_CONTEXT_IDS: usize = 6;

/// The decoding state of one text.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    /// Bytes of an incomplete character, if tokens are plain byte sequences.
    pending_bytes: Vec<u8>,
    /// Ids of the last piece, followed by the ids that are held back.
    ids: Vec<u32>,
    /// Number of these ids that belong to the last piece.
    emitted_ids: usize,
    /// The text of the last piece's ids.
    prefix: String,
}

impl Detokenizer {
    /// Begins a text; `skip_special` leaves out control tokens.
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        Self {
            tokenizer,
            skip_special,
            pending_bytes: Vec::new(),
            ids: Vec::new(),
            emitted_ids: 0,
            prefix: String::new(),
        }
    }

    /// Begins a text that continues a prompt. Decoders of the SentencePiece kind drop the space
    /// before a text's first word, but a continuation must keep it.
    pub fn after(mut self, prompt: &[u32]) -> Result<Self, TokenizerError> {
        if !self.tokenizer.is_exact() {
            let tail = &prompt[prompt.len().saturating_sub(PROMPT_CONTEXT_IDS)..];
            self.ids = tail
                .iter()
                .copied()
                .filter(|id| self.is_text(*id))
                .collect();
            self.emitted_ids = self.ids.len();
            self.prefix = self.tokenizer.decode(&self.ids, self.skip_special)?;
        }
        Ok(self)
    }

    /// Returns the text that the next id completes, which is often empty.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        if !self.is_text(id) {
            return Ok(String::new());
        }
        if self.tokenizer.is_exact() {
            let bytes = self.tokenizer.vocabulary().bytes(id).unwrap_or(&[]);
            self.pending_bytes.extend_from_slice(bytes);
            return Ok(take_complete(&mut self.pending_bytes));
        }
        self.ids.push(id);
        let text = self.tokenizer.decode(&self.ids, self.skip_special)?;
        let may_be_held = self.ids.len() - self.emitted_ids < MAX_HELD_IDS;
        let is_half = text.ends_with('\u{fffd}') && !self.is_whole();
        if may_be_held && (is_half || text.len() <= self.prefix.len()) {
            return Ok(String::new());
        }
        self.emit(&text)
    }

    /// Returns the text that was held back, even if it is not a whole character.
    pub fn finish(&mut self) -> Result<String, TokenizerError> {
        if self.tokenizer.is_exact() {
            let held = std::mem::take(&mut self.pending_bytes);
            return Ok(String::from_utf8_lossy(&held).into_owned());
        }
        if self.ids.len() == self.emitted_ids {
            return Ok(String::new());
        }
        let text = self.tokenizer.decode(&self.ids, self.skip_special)?;
        self.emit(&text)
    }

    /// Returns the part of `text`, the text of all kept ids, beyond the last piece.
    fn emit(&mut self, text: &str) -> Result<String, TokenizerError> {
        let piece = match text.strip_prefix(self.prefix.as_str()) {
            Some(piece) => piece.to_owned(),
            // Later bytes made earlier characters invalid. Text that was returned stays.
            None => self
                .tokenizer
                .decode(&self.ids[self.emitted_ids..], self.skip_special)?,
        };
        self.ids.drain(..self.emitted_ids);
        self.emitted_ids = self.ids.len();
        self.prefix = self.tokenizer.decode(&self.ids, self.skip_special)?;
        Ok(piece)
    }

    /// Returns whether the ids held back form whole characters. A literal U+FFFD counts as one.
    fn is_whole(&self) -> bool {
        let vocabulary = self.tokenizer.vocabulary();
        let held = self.ids[self.emitted_ids..].iter();
        let bytes: Vec<u8> = held
            .flat_map(|id| vocabulary.bytes(*id).unwrap_or_default())
            .copied()
            .collect();
        std::str::from_utf8(&bytes).is_ok()
    }

    fn is_text(&self, id: u32) -> bool {
        let vocabulary = self.tokenizer.vocabulary();
        vocabulary.bytes(id).is_some() && !(self.skip_special && vocabulary.is_special(id))
    }
}

/// Removes and returns the whole characters in `held`. Bytes that can never become a character are
/// returned as U+FFFD, as in decoding everything at once.
fn take_complete(held: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest = &held[..];
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                rest = &[];
                break;
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                rest = after;
                let Some(invalid) = error.error_len() else {
                    break;
                };
                text.push('\u{fffd}');
                rest = &rest[invalid..];
            }
        }
    }
    *held = rest.to_vec();
    text
}
