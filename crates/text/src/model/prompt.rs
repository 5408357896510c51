//! The prompt of a request, with the settings for its answer.

use std::sync::Arc;

use super::TextError;
use super::picture::PromptPictures;
use crate::answer::AnswerFormat;
use crate::chat::ChatPicture;
use crate::constraint::Constraint;
use crate::ends::EndTokens;
use crate::generation::{Detokenize, DetokenizeError, GenerationRequest, Transcripts};
use crate::sampling::Sampling;
use crate::slot::is_slot;
use crate::stop::StopStrings;
use crate::tokenizer::{Detokenizer, SpecialTokens, Tokenizer};

/// Number of prompt tokens that one step feeds. A disconnected client is detected between steps.
const PREFILL_CHUNK_TOKENS: usize = 512;

/// A prepared request that is not bound to a decoder yet.
pub struct PreparedRequest {
    pub(super) text: PromptInput,
    pub(super) pictures: Option<PromptPictures>,
    pub(super) specials: SpecialTokens,
    pub(super) skips_special: bool,
    pub(super) sampling: Sampling,
    pub(super) stops: StopStrings,
    pub(super) ends: EndTokens,
    pub(super) max_tokens: Option<usize>,
    pub(super) choices: usize,
    pub(super) reading: AnswerFormat,
    pub(super) constraint: Option<Constraint>,
}

/// The prompt as text or as token ids.
#[derive(Debug)]
pub(super) enum PromptInput {
    Text(String),
    Tokens(Vec<u32>),
}

impl PreparedRequest {
    /// Returns the prompt's text, unless it was given as token ids.
    pub fn text(&self) -> Option<&str> {
        match &self.text {
            PromptInput::Text(text) => Some(text),
            PromptInput::Tokens(_) => None,
        }
    }

    /// Returns whether the answer reports the probabilities of its tokens.
    pub fn has_logprobs(&self) -> bool {
        self.sampling.logprobs.is_some()
    }

    /// Returns the number of requested answers.
    pub fn choices(&self) -> usize {
        self.choices
    }

    /// Returns the cached tokens of the prompt's beginning; `None` if the cache has none.
    pub fn begun(&self, before: &mut Transcripts) -> Option<Vec<u32>> {
        match (&self.text, self.specials) {
            (PromptInput::Text(text), SpecialTokens::Absent) => {
                let (tokens, _) = before.longest_prefix(text);
                (!tokens.is_empty()).then_some(tokens)
            }
            _ => None,
        }
    }

    /// Encodes the prompt. A beginning that is cached in `before` keeps its original tokens.
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        before: &mut Transcripts,
    ) -> Result<Vec<u32>, TextError> {
        let text = match &self.text {
            PromptInput::Tokens(tokens) => return Ok(tokens.clone()),
            PromptInput::Text(text) => text,
        };
        let (mut tokens, rest) = match self.specials {
            SpecialTokens::Absent => before.longest_prefix(text),
            SpecialTokens::Added => (Vec::new(), text.as_str()),
        };
        let (text, specials) = if tokens.is_empty() {
            (text.as_str(), self.specials)
        } else {
            (rest, SpecialTokens::Absent)
        };
        let encode = |text: &str| Ok(tokenizer.encode(text, specials)?);
        tokens.extend(match &self.pictures {
            None => encode(text)?,
            Some(pictures) => pictures.encode(text, encode)?,
        });
        Ok(tokens)
    }

    /// Returns the pictures of the prompt.
    pub fn pictures(&self) -> &[ChatPicture] {
        self.pictures.as_ref().map_or(&[], |it| &it.given)
    }

    /// Makes the generation request for a prompt that was encoded to these tokens.
    pub fn request(self, prompt: Vec<u32>, tokenizer: &Arc<Tokenizer>) -> GenerationRequest {
        let (own, skips_special) = (Arc::clone(tokenizer), self.skips_special);
        let tail = prompt.iter().rev().filter(|id| !is_slot(**id));
        let mut tail: Vec<u32> = tail.take(16).copied().collect();
        tail.reverse();
        let detokenizer = move || {
            let detokenizer = Detokenizer::new(Arc::clone(&own), skips_special).after(&tail);
            let detokenizer: Box<dyn Detokenize + Send> =
                Box::new(DetokenizerAdapter(detokenizer?));
            Ok::<_, DetokenizeError>(detokenizer)
        };
        GenerationRequest {
            prompt,
            sampling: self.sampling,
            stops: self.stops,
            ends: self.ends,
            max_tokens: self.max_tokens,
            choices: self.choices,
            reading: self.reading,
            constraint: self.constraint,
            vocabulary_size: tokenizer.vocabulary().len(),
            detokenizer: Box::new(detokenizer),
            prefill_chunk: PREFILL_CHUNK_TOKENS,
        }
    }
}

/// Adapts the tokenizer's detokenizer to the trait of the generation loop.
struct DetokenizerAdapter(Detokenizer);

impl Detokenize for DetokenizerAdapter {
    fn push(&mut self, token: u32) -> Result<String, DetokenizeError> {
        Ok(self.0.push(token)?)
    }

    fn finish(&mut self) -> Result<String, DetokenizeError> {
        Ok(self.0.finish()?)
    }
}
