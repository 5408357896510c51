//! One choice (one of the `n` answers to a request): samples a token from logits, decodes it, and
//! splits the text into pieces.
//!
//! Invariant: this module does not depend on a model. The result is the same whether the caller
//! feeds tokens for one conversation or for several at once. A finished choice takes no more
//! logits.

use super::error::GenerationError;
use super::event::{FinishReason, FinishedChoice, GenerationEvent};
use super::{Detokenize, GenerationRequest};
use crate::answer::AnswerParser;
use crate::constraint::Constraint;
use crate::sampling::{Likelihood, Sampler};
use crate::stop::StopScan;

/// The state of one choice.
pub struct Choice {
    place: usize,
    sampler: Sampler,
    constraint: Option<Constraint>,
    detokenizer: Box<dyn Detokenize + Send>,
    stops: StopScan,
    answer: AnswerParser,
    tokens: Vec<u32>,
    text: String,
    finish: Option<FinishReason>,
    whole: Option<usize>,
}

impl Choice {
    /// Begins the choice with the index `place`. All choices of a request share one seed.
    pub fn new(
        request: &GenerationRequest,
        place: usize,
        seed: u64,
        vocabulary: usize,
    ) -> Result<Self, GenerationError> {
        let tokens = vocabulary.min(request.vocabulary_size);
        let settings = request.sampling.clone();
        let detokenizer = (request.detokenizer)().map_err(GenerationError::Detokenize)?;
        Ok(Self {
            place,
            sampler: Sampler::new(settings, seed, place, &request.prompt, tokens)?,
            constraint: request.constraint.as_ref().map(Constraint::copy),
            detokenizer,
            stops: request.stops.scan(),
            answer: AnswerParser::new(&request.reading),
            tokens: Vec::new(),
            text: String::new(),
            finish: None,
            whole: None,
        })
    }

    /// Samples the next token from the logits after the last one. Returns the token to feed next,
    /// or `None` when the choice is finished.
    pub fn next(
        &mut self,
        request: &GenerationRequest,
        most: usize,
        logits: &mut [f32],
        events: &mut Vec<GenerationEvent>,
    ) -> Result<Option<u32>, GenerationError> {
        // Some models pad their logits beyond the vocabulary for speed.
        let known = logits.len().min(request.vocabulary_size);
        let is_held = !self.answer.is_reasoning();
        let mut constraint = self.constraint.as_mut().filter(|_| is_held);
        let allowed = match constraint.as_mut() {
            Some(constraint) => Some(constraint.allowed()?),
            None => None,
        };
        let chosen = self.sampler.choose(&mut logits[..known], allowed)?;
        let token = chosen.token;
        if let Some(logprob) = chosen.logprob {
            events.push(GenerationEvent::Token {
                choice: self.place,
                chosen: Likelihood { token, logprob },
                top: chosen.top.to_vec(),
            });
        }
        self.tokens.push(token);
        if request.ends.has(token) {
            self.close(FinishReason::Stop, 1, events)?;
            return Ok(None);
        }
        let mut is_whole = false;
        if let Some(constraint) = constraint {
            constraint.take(token)?;
            is_whole = constraint.is_finished();
        }
        let text = self.detokenizer.push(token);
        let text = text.map_err(GenerationError::Detokenize)?;
        self.push_text(&text, events);
        if self.stops.stopped() || is_whole {
            self.close(FinishReason::Stop, 0, events)?;
        } else if self.tokens.len() >= most {
            self.close(FinishReason::Length, 0, events)?;
        } else {
            return Ok(Some(token));
        }
        Ok(None)
    }

    /// Ends the choice because the model's context is full.
    pub fn end_at_context(
        &mut self,
        events: &mut Vec<GenerationEvent>,
    ) -> Result<(), GenerationError> {
        self.close(FinishReason::Length, 0, events)
    }

    /// Returns the reason why the choice ended, if it did.
    pub fn finish(&self) -> Option<FinishReason> {
        self.finish
    }

    /// Returns the number of tokens sampled so far.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the tokens and the text of the choice.
    pub fn into_finished(self) -> FinishedChoice {
        FinishedChoice {
            tokens: self.tokens,
            text: self.text,
            finish: self.finish,
            tokens_in_text: self.whole,
        }
    }

    fn push_text(&mut self, text: &str, events: &mut Vec<GenerationEvent>) {
        self.text.push_str(text);
        let given = self.stops.push(text);
        self.emit(&given, events);
    }

    fn emit(&mut self, given: &str, events: &mut Vec<GenerationEvent>) {
        let choice = self.place;
        let pieces = self.answer.push(given).into_iter();
        events.extend(pieces.map(|piece| GenerationEvent::Piece { choice, piece }));
    }

    /// Ends the choice. The last `silent` tokens have no text.
    fn close(
        &mut self,
        reason: FinishReason,
        silent: usize,
        events: &mut Vec<GenerationEvent>,
    ) -> Result<(), GenerationError> {
        let rest = self.detokenizer.finish();
        let rest = rest.map_err(GenerationError::Detokenize)?;
        if rest.is_empty() {
            self.whole = Some(self.tokens.len() - silent);
        }
        self.push_text(&rest, events);
        if !self.stops.stopped() {
            let held = self.stops.finish();
            self.emit(&held, events);
        }
        let choice = self.place;
        let is_cut = reason == FinishReason::Length;
        let pieces = self.answer.finish(is_cut).into_iter();
        events.extend(pieces.map(|piece| GenerationEvent::Piece { choice, piece }));
        let reason = if reason == FinishReason::Stop && self.answer.calls() > 0 {
            FinishReason::ToolCalls
        } else {
            reason
        };
        self.finish = Some(reason);
        events.push(GenerationEvent::Finish { choice, reason });
        Ok(())
    }
}
