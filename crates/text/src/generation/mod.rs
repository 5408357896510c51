//! The generation loop: feeds the prompt to a decoder and samples tokens one by one until every
//! choice ends.
//!
//! Invariant: one step feeds one part of the prompt or one token, so several generations can take
//! turns. A generation stops when its caller disconnects. The decoder keeps the fed tokens, so the
//! next turn of the conversation can reuse them.

mod choice;
mod error;
mod event;
mod transcript;

use std::ops::ControlFlow;
use std::time::Instant;

pub use choice::Choice;
pub use error::{DetokenizeError, GenerationError};
pub use event::{
    FinishReason, FinishedChoice, Generated, GenerationEvent, GenerationUsage, Timings,
};
pub use transcript::Transcripts;

use crate::answer::AnswerFormat;
use crate::constraint::Constraint;
use crate::decoder::{DecodeError, Decoder};
use crate::ends::EndTokens;
use crate::sampling::Sampling;
use crate::stop::StopStrings;

/// Decodes a stream of tokens to text. It never returns a part of a character.
pub trait Detokenize {
    /// Returns the text that this token completes.
    fn push(&mut self, token: u32) -> Result<String, DetokenizeError>;

    /// Returns the text that remains after the last token. It is empty unless the tokens end within
    /// a character.
    fn finish(&mut self) -> Result<String, DetokenizeError>;
}

/// Creates the detokenizer of one choice.
pub type NewDetokenizer =
    Box<dyn Fn() -> Result<Box<dyn Detokenize + Send>, DetokenizeError> + Send + Sync>;

/// A prepared request for generation.
pub struct GenerationRequest {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// Sampling settings.
    pub sampling: Sampling,
    /// Stop strings, which end an answer without being part of it.
    pub stops: StopStrings,
    /// Tokens that end an answer.
    pub ends: EndTokens,
    /// Maximum number of tokens of an answer; `None` allows the rest of the model's context.
    pub max_tokens: Option<usize>,
    /// Number of answers.
    pub choices: usize,
    /// Settings for parsing the answers into reasoning, text and tool calls.
    pub reading: AnswerFormat,
    /// Constraint on the answers, applied after any reasoning.
    pub constraint: Option<Constraint>,
    /// Number of tokens in the tokenizer's vocabulary. The model may have more logits.
    pub vocabulary_size: usize,
    /// Creates a detokenizer for each choice.
    pub detokenizer: NewDetokenizer,
    /// Maximum number of prompt tokens that one step feeds.
    pub prefill_chunk: usize,
}

/// The state of a generation after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationProgress {
    /// Another step follows.
    More,
    /// All choices ended, or the caller disconnected.
    Done,
}

/// A request in progress, driven step by step.
pub struct Generation {
    request: GenerationRequest,
    seed: u64,
    /// Maximum number of tokens of an answer.
    most: usize,
    /// Number of prompt tokens that were fed.
    fed_prompt_tokens: usize,
    /// The logits after the prompt, kept for further choices.
    after_prompt: Vec<f32>,
    current: Option<Choice>,
    /// The token that was sampled but not fed yet.
    pending_token: Option<u32>,
    finished: Vec<FinishedChoice>,
    usage: GenerationUsage,
    timings: Timings,
}

impl Generation {
    /// Checks the request against the model, and truncates the decoder's tokens to their common
    /// prefix with the prompt.
    pub fn begin(
        request: GenerationRequest,
        decoder: &mut dyn Decoder,
    ) -> Result<Self, GenerationError> {
        let most = max_answer_tokens(&request, decoder.context())?;
        let seed = request.sampling.seed();
        let first = Choice::new(&request, 0, seed, decoder.vocabulary())?;
        let held = decoder.held();
        let common = held
            .iter()
            .zip(&request.prompt)
            .take_while(|(held, new)| held == new);
        // At least one token must be fed to compute the logits after the prompt.
        let common = common.count().min(request.prompt.len() - 1);
        if held.len() > common {
            decoder.cut(common)?;
        }
        Ok(Self {
            seed,
            most,
            fed_prompt_tokens: common,
            after_prompt: Vec::new(),
            current: Some(first),
            pending_token: None,
            finished: Vec::new(),
            usage: GenerationUsage {
                prompt_tokens: request.prompt.len(),
                completion_tokens: 0,
                cached_tokens: common,
            },
            timings: Timings::default(),
            request,
        })
    }

    /// Feeds a part of the prompt, or samples a token. `going_on` returns whether the caller is
    /// still connected.
    pub fn step(
        &mut self,
        decoder: &mut dyn Decoder,
        going_on: &dyn Fn() -> bool,
        events: &mut Vec<GenerationEvent>,
    ) -> Result<GenerationProgress, GenerationError> {
        let started = Instant::now();
        let is_prefill = self.fed_prompt_tokens < self.request.prompt.len();
        let progress = if !going_on() {
            Ok(GenerationProgress::Done)
        } else if is_prefill {
            self.prefill(decoder, going_on, events)
        } else {
            self.advance(decoder, going_on, events)
        };
        let progress = match progress {
            Err(GenerationError::Decode(DecodeError::Disconnected)) => Ok(GenerationProgress::Done),
            other => other,
        };
        let took = started.elapsed();
        if is_prefill {
            self.timings.prefill += took;
        } else {
            self.timings.decode += took;
        }
        progress
    }

    /// Returns the result of all choices.
    pub fn finish(mut self) -> Generated {
        if let Some(current) = self.current.take().filter(|choice| choice.tokens() > 0) {
            self.finished.push(current.into_finished());
        }
        let tokens = self.finished.iter().map(|said| said.tokens.len());
        self.usage.completion_tokens = tokens.sum();
        Generated {
            choices: self.finished,
            usage: self.usage,
            timings: self.timings,
        }
    }

    fn prefill(
        &mut self,
        decoder: &mut dyn Decoder,
        going_on: &dyn Fn() -> bool,
        events: &mut Vec<GenerationEvent>,
    ) -> Result<GenerationProgress, GenerationError> {
        let rest = &self.request.prompt[self.fed_prompt_tokens..];
        let part = &rest[..rest.len().min(self.request.prefill_chunk.max(1))];
        let logits = decoder.feed(part, going_on)?;
        self.fed_prompt_tokens += part.len();
        if self.fed_prompt_tokens < self.request.prompt.len() {
            return Ok(GenerationProgress::More);
        }
        if self.request.choices > 1 {
            self.after_prompt = logits.to_vec();
        }
        let choice = self.current.as_mut().expect("the first choice exists");
        self.pending_token = choice.next(&self.request, self.most, logits, events)?;
        self.after_token(decoder)
    }

    fn advance(
        &mut self,
        decoder: &mut dyn Decoder,
        going_on: &dyn Fn() -> bool,
        events: &mut Vec<GenerationEvent>,
    ) -> Result<GenerationProgress, GenerationError> {
        let Some(choice) = self.current.as_mut() else {
            return Ok(GenerationProgress::Done);
        };
        self.pending_token = if let Some(token) = self.pending_token.take() {
            match decoder.feed(&[token], going_on) {
                Ok(logits) => choice.next(&self.request, self.most, logits, events)?,
                // The context is full; the answer so far is the result.
                Err(DecodeError::BeyondContext { .. }) => {
                    choice.end_at_context(events)?;
                    None
                }
                Err(error) => return Err(error.into()),
            }
        } else {
            // A further choice begins after the prompt.
            let mut logits = self.after_prompt.clone();
            choice.next(&self.request, self.most, &mut logits, events)?
        };
        self.after_token(decoder)
    }

    /// Begins the next choice when the current one has ended.
    fn after_token(
        &mut self,
        decoder: &mut dyn Decoder,
    ) -> Result<GenerationProgress, GenerationError> {
        if self.pending_token.is_some() {
            return Ok(GenerationProgress::More);
        }
        let over = self.current.take();
        self.finished.extend(over.map(Choice::into_finished));
        let place = self.finished.len();
        if place == self.request.choices {
            return Ok(GenerationProgress::Done);
        }
        if decoder.held().len() > self.request.prompt.len() {
            decoder.cut(self.request.prompt.len())?;
        }
        let choice = Choice::new(&self.request, place, self.seed, decoder.vocabulary())?;
        self.current = Some(choice);
        Ok(GenerationProgress::More)
    }
}

/// Checks the request's counts and returns the maximum number of tokens of an answer.
fn max_answer_tokens(
    request: &GenerationRequest,
    context: usize,
) -> Result<usize, GenerationError> {
    let prompt = request.prompt.len();
    let free = context.saturating_sub(prompt);
    if prompt == 0 {
        return Err(GenerationError::EmptyPrompt);
    }
    if request.choices == 0 {
        return Err(GenerationError::NoChoice);
    }
    if free == 0 {
        return Err(GenerationError::LongPrompt { prompt, context });
    }
    match request.max_tokens {
        None => Ok(free),
        Some(0) => Err(GenerationError::NoTokens),
        Some(max_tokens) if max_tokens > free => Err(GenerationError::LongAnswer {
            prompt,
            max_tokens,
            context,
        }),
        Some(max_tokens) => Ok(max_tokens),
    }
}

/// Runs all steps of a request. `tell` receives the events and breaks when the caller has
/// disconnected. `going_on` is polled during long steps that report no event.
pub fn generate(
    decoder: &mut dyn Decoder,
    request: GenerationRequest,
    going_on: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(GenerationEvent) -> ControlFlow<()>,
) -> Result<Generated, GenerationError> {
    let mut generation = Generation::begin(request, decoder)?;
    let mut events = Vec::new();
    loop {
        let progress = generation.step(decoder, going_on, &mut events)?;
        let gone = events.drain(..).any(|event| tell(event).is_break());
        if gone || progress == GenerationProgress::Done {
            return Ok(generation.finish());
        }
    }
}
