//! Ids to text, one after another as a model gives them.
//!
//! Invariant: what is given out is never taken back and never half a character; all pieces and the last
//! one together are the text of all ids. A held-back beginning of a character has no more than a few ids.

use std::sync::Arc;

use super::{Tokenizer, TokenizerError};

/// Ids that are held back at most: a character has four bytes, and a token at least one. What is still no
/// character then never becomes one.
const MOST_HELD: usize = 8;

/// Last ids of a prompt that decide how the first answer begins.
const CONTEXT: usize = 6;

/// The state of one text in the making.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    /// Bytes without a text yet, where a token is nothing but its bytes.
    held: Vec<u8>,
    /// Ids of the last piece, and those after it that are held back.
    ids: Vec<u32>,
    /// How many of them are of the last piece.
    told: usize,
    /// The text of those.
    prefix: String,
}

impl Detokenizer {
    /// The beginning of a text; `skip_special` leaves out tokens that only control.
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        Self {
            tokenizer,
            skip_special,
            held: Vec::new(),
            ids: Vec::new(),
            told: 0,
            prefix: String::new(),
        }
    }

    /// The same as the continuation of a prompt: decoders of SentencePiece's kind leave out the space
    /// before a text's first word, which a continuation must keep.
    pub fn after(mut self, prompt: &[u32]) -> Result<Self, TokenizerError> {
        if !self.tokenizer.is_exact() {
            let tail = &prompt[prompt.len().saturating_sub(CONTEXT)..];
            self.ids = tail
                .iter()
                .copied()
                .filter(|id| self.is_text(*id))
                .collect();
            self.told = self.ids.len();
            self.prefix = self.tokenizer.decode(&self.ids, self.skip_special)?;
        }
        Ok(self)
    }

    /// The text that the next id completes; often none yet.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        if !self.is_text(id) {
            return Ok(String::new());
        }
        if self.tokenizer.is_exact() {
            let bytes = self.tokenizer.vocabulary().bytes(id).unwrap_or(&[]);
            self.held.extend_from_slice(bytes);
            return Ok(complete(&mut self.held));
        }
        self.ids.push(id);
        let text = self.tokenizer.decode(&self.ids, self.skip_special)?;
        let may_be_held = self.ids.len() - self.told < MOST_HELD;
        let is_half = text.ends_with('\u{fffd}') && !self.is_whole();
        if may_be_held && (is_half || text.len() <= self.prefix.len()) {
            return Ok(String::new());
        }
        self.tell(&text)
    }

    /// The rest of the text: what was held back, though it is no whole character.
    pub fn finish(&mut self) -> Result<String, TokenizerError> {
        if self.tokenizer.is_exact() {
            let held = std::mem::take(&mut self.held);
            return Ok(String::from_utf8_lossy(&held).into_owned());
        }
        if self.ids.len() == self.told {
            return Ok(String::new());
        }
        let text = self.tokenizer.decode(&self.ids, self.skip_special)?;
        self.tell(&text)
    }

    /// Gives out what `text`, that of all ids at hand, has beyond the last piece.
    fn tell(&mut self, text: &str) -> Result<String, TokenizerError> {
        let piece = match text.strip_prefix(self.prefix.as_str()) {
            Some(piece) => piece.to_owned(),
            // Bytes that made characters are invalid with those that follow. What is told stays told.
            None => self
                .tokenizer
                .decode(&self.ids[self.told..], self.skip_special)?,
        };
        self.ids.drain(..self.told);
        self.told = self.ids.len();
        self.prefix = self.tokenizer.decode(&self.ids, self.skip_special)?;
        Ok(piece)
    }

    /// Whether the ids that are held back are whole characters: U+FFFD is one, too.
    fn is_whole(&self) -> bool {
        let vocabulary = self.tokenizer.vocabulary();
        let held = self.ids[self.told..].iter();
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

/// Takes the whole characters out of `held`; what can never become one is told as U+FFFD, as when all is
/// decoded at once.
fn complete(held: &mut Vec<u8>) -> String {
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
