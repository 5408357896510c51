//! One choice: from logits to a token, to text, to pieces of an answer.
//!
//! Invariant: knows no model; whoever feeds the tokens, one at a time or several conversations at once,
//! gets the same text. After it is over it takes no logits.

use super::error::GenerationError;
use super::event::{Event, Finish, Said};
use super::{Detokenize, Request};
use crate::text::answer::Answer;
use crate::text::constraint::Constraint;
use crate::text::sampling::{Likelihood, Sampler};
use crate::text::stop::StopScan;

/// The state of one choice.
pub struct Choice {
    place: usize,
    sampler: Sampler,
    constraint: Option<Constraint>,
    detokenizer: Box<dyn Detokenize + Send>,
    stops: StopScan,
    answer: Answer,
    tokens: Vec<u32>,
    text: String,
    finish: Option<Finish>,
    whole: Option<usize>,
}

impl Choice {
    /// The beginning of the choice at place `place`. All choices of a request have one seed.
    pub fn new(
        request: &Request,
        place: usize,
        seed: u64,
        vocabulary: usize,
    ) -> Result<Self, GenerationError> {
        let tokens = vocabulary.min(request.vocabulary);
        let settings = request.sampling.clone();
        let detokenizer = (request.detokenizer)().map_err(GenerationError::Detokenize)?;
        Ok(Self {
            place,
            sampler: Sampler::new(settings, seed, place, &request.prompt, tokens)?,
            constraint: request.constraint.as_ref().map(Constraint::copy),
            detokenizer,
            stops: request.stops.scan(),
            answer: Answer::new(&request.reading),
            tokens: Vec::new(),
            text: String::new(),
            finish: None,
            whole: None,
        })
    }

    /// Chooses the next token by the logits after the last one. Gives the token to be fed, unless the
    /// choice is over.
    pub fn next(
        &mut self,
        request: &Request,
        most: usize,
        logits: &mut [f32],
        events: &mut Vec<Event>,
    ) -> Result<Option<u32>, GenerationError> {
        // A model may have more logits than there are tokens: they are there for its speed.
        let known = logits.len().min(request.vocabulary);
        let is_held = !self.answer.is_reasoning();
        let mut constraint = self.constraint.as_mut().filter(|_| is_held);
        let allowed = match constraint.as_mut() {
            Some(constraint) => Some(constraint.allowed()?),
            None => None,
        };
        let chosen = self.sampler.choose(&mut logits[..known], allowed)?;
        let token = chosen.token;
        if let Some(logprob) = chosen.logprob {
            events.push(Event::Token {
                choice: self.place,
                chosen: Likelihood { token, logprob },
                top: chosen.top.to_vec(),
            });
        }
        self.tokens.push(token);
        if request.ends.has(token) {
            self.close(Finish::Stop, 1, events)?;
            return Ok(None);
        }
        let mut is_whole = false;
        if let Some(constraint) = constraint {
            constraint.take(token)?;
            is_whole = constraint.is_finished();
        }
        let text = self.detokenizer.push(token);
        let text = text.map_err(GenerationError::Detokenize)?;
        self.say(&text, events);
        if self.stops.stopped() || is_whole {
            self.close(Finish::Stop, 0, events)?;
        } else if self.tokens.len() >= most {
            self.close(Finish::Length, 0, events)?;
        } else {
            return Ok(Some(token));
        }
        Ok(None)
    }

    /// Ends it, because the model holds no more tokens.
    pub fn cut(&mut self, events: &mut Vec<Event>) -> Result<(), GenerationError> {
        self.close(Finish::Length, 0, events)
    }

    /// Why it is over.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// How many tokens were chosen.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// What it said.
    pub fn into_said(self) -> Said {
        Said {
            tokens: self.tokens,
            text: self.text,
            finish: self.finish,
            whole: self.whole,
        }
    }

    fn say(&mut self, text: &str, events: &mut Vec<Event>) {
        self.text.push_str(text);
        let given = self.stops.push(text);
        self.tell(&given, events);
    }

    fn tell(&mut self, given: &str, events: &mut Vec<Event>) {
        let choice = self.place;
        let pieces = self.answer.push(given).into_iter();
        events.extend(pieces.map(|piece| Event::Piece { choice, piece }));
    }

    /// `silent` of its last tokens have no text.
    fn close(
        &mut self,
        reason: Finish,
        silent: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), GenerationError> {
        let rest = self.detokenizer.finish();
        let rest = rest.map_err(GenerationError::Detokenize)?;
        if rest.is_empty() {
            self.whole = Some(self.tokens.len() - silent);
        }
        self.say(&rest, events);
        if !self.stops.stopped() {
            let held = self.stops.finish();
            self.tell(&held, events);
        }
        let choice = self.place;
        let is_cut = reason == Finish::Length;
        let pieces = self.answer.finish(is_cut).into_iter();
        events.extend(pieces.map(|piece| Event::Piece { choice, piece }));
        let reason = if reason == Finish::Stop && self.answer.calls() > 0 {
            Finish::ToolCalls
        } else {
            reason
        };
        self.finish = Some(reason);
        events.push(Event::Finish { choice, reason });
        Ok(())
    }
}
