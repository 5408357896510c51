//! A prompt that was made of a request, and how it is to be answered.

use std::sync::Arc;

use super::TextError;
use crate::text::answer::Reading;
use crate::text::constraint::Constraint;
use crate::text::ends::Ends;
use crate::text::generation::{Detokenize, Fault, Request, Transcripts};
use crate::text::sampling::Sampling;
use crate::text::stop::StopStrings;
use crate::text::tokenizer::{Detokenizer, Specials, Tokenizer};

/// Tokens of a prompt that are fed at once: between these it is seen that a client has gone.
const PREFILL: usize = 512;

/// What is to be answered, before it is known who answers it.
pub struct Prompted {
    pub(super) text: Given,
    pub(super) specials: Specials,
    pub(super) skips_special: bool,
    pub(super) sampling: Sampling,
    pub(super) stops: StopStrings,
    pub(super) ends: Ends,
    pub(super) max_tokens: Option<usize>,
    pub(super) choices: usize,
    pub(super) reading: Reading,
    pub(super) constraint: Option<Constraint>,
}

/// What is given of a prompt.
#[derive(Debug)]
pub(super) enum Given {
    Text(String),
    Tokens(Vec<u32>),
}

impl Prompted {
    /// The prompt's text, where it was given as one.
    pub fn text(&self) -> Option<&str> {
        match &self.text {
            Given::Text(text) => Some(text),
            Given::Tokens(_) => None,
        }
    }

    /// Whether tokens are told with their probabilities.
    pub fn has_logprobs(&self) -> bool {
        self.sampling.logprobs.is_some()
    }

    /// How many answers are wanted.
    pub fn choices(&self) -> usize {
        self.choices
    }

    /// The tokens that the prompt's beginning had before; `None` where nothing was said before.
    pub fn begun(&self, before: &mut Transcripts) -> Option<Vec<u32>> {
        match (&self.text, self.specials) {
            (Given::Text(text), Specials::Absent) => {
                let (tokens, _) = before.beginning(text);
                (!tokens.is_empty()).then_some(tokens)
            }
            _ => None,
        }
    }

    /// The prompt's tokens, where something of it was said before with those it had then.
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        before: &mut Transcripts,
    ) -> Result<Vec<u32>, TextError> {
        let text = match &self.text {
            Given::Tokens(tokens) => return Ok(tokens.clone()),
            Given::Text(text) => text,
        };
        let (mut tokens, rest) = match self.specials {
            Specials::Absent => before.beginning(text),
            Specials::Added => (Vec::new(), text.as_str()),
        };
        if tokens.is_empty() {
            return Ok(tokenizer.encode(text, self.specials)?);
        }
        tokens.extend(tokenizer.encode(rest, Specials::Absent)?);
        Ok(tokens)
    }

    /// The request to a model that is fed these tokens.
    pub fn request(self, prompt: Vec<u32>, tokenizer: &Arc<Tokenizer>) -> Request {
        let (own, skips_special) = (Arc::clone(tokenizer), self.skips_special);
        let tail = prompt[prompt.len().saturating_sub(16)..].to_vec();
        let detokenizer = move || {
            let detokenizer = Detokenizer::new(Arc::clone(&own), skips_special).after(&tail);
            let detokenizer: Box<dyn Detokenize + Send> = Box::new(Told(detokenizer?));
            Ok::<_, Fault>(detokenizer)
        };
        Request {
            prompt,
            sampling: self.sampling,
            stops: self.stops,
            ends: self.ends,
            max_tokens: self.max_tokens,
            choices: self.choices,
            reading: self.reading,
            constraint: self.constraint,
            vocabulary: tokenizer.vocabulary().len(),
            detokenizer: Box::new(detokenizer),
            prefill: PREFILL,
        }
    }
}

/// The package's own text of tokens.
struct Told(Detokenizer);

impl Detokenize for Told {
    fn push(&mut self, token: u32) -> Result<String, Fault> {
        Ok(self.0.push(token)?)
    }

    fn finish(&mut self) -> Result<String, Fault> {
        Ok(self.0.finish()?)
    }
}
