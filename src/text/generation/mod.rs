//! Answers to a prompt: what the model holds is used, the rest is fed, tokens are chosen one by one.
//!
//! Invariant: one step feeds one part of the prompt or one token, so that several generations can take
//! turns and none goes on for a caller who has gone. What a decoder holds afterwards is what was fed,
//! for the next turn of the conversation.

mod choice;
mod error;
mod event;
mod transcript;

use std::ops::ControlFlow;
use std::time::Instant;

pub use choice::Choice;
pub use error::{Fault, GenerationError};
pub use event::{Event, Finish, Generated, Said, Timings, Usage};
pub use transcript::Transcripts;

use crate::text::answer::Reading;
use crate::text::constraint::Constraint;
use crate::text::decoder::{DecodeError, Decoder};
use crate::text::ends::Ends;
use crate::text::sampling::Sampling;
use crate::text::stop::StopStrings;

/// Tokens to text, one after another: never half a character.
pub trait Detokenize {
    /// The text that is complete with this token.
    fn push(&mut self, token: u32) -> Result<String, Fault>;

    /// What is left when there are no more tokens: half a character, and nothing where all is told.
    fn finish(&mut self) -> Result<String, Fault>;
}

/// Begins the text of one choice.
pub type NewDetokenizer = Box<dyn Fn() -> Result<Box<dyn Detokenize + Send>, Fault> + Send + Sync>;

/// What is to be generated.
pub struct Request {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// What ends an answer, and is no part of it.
    pub stops: StopStrings,
    /// Tokens that end an answer.
    pub ends: Ends,
    /// Most tokens of an answer; as many as the model holds where there is none.
    pub max_tokens: Option<usize>,
    /// How many answers.
    pub choices: usize,
    /// How answers are taken apart.
    pub reading: Reading,
    /// What answers are held to, behind any reasoning.
    pub constraint: Option<Constraint>,
    /// How many tokens the tokenizer has; the model may have more logits.
    pub vocabulary: usize,
    /// Text of tokens.
    pub detokenizer: NewDetokenizer,
    /// Most tokens of the prompt that one step feeds.
    pub prefill: usize,
}

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Another step follows.
    More,
    /// All choices are over, or the caller has gone.
    Done,
}

/// A request on its way, step by step.
pub struct Generation {
    request: Request,
    seed: u64,
    /// Most tokens of an answer.
    most: usize,
    /// How many tokens of the prompt are fed.
    fed: usize,
    /// The logits after the prompt, where another choice needs them.
    after_prompt: Vec<f32>,
    current: Option<Choice>,
    /// Chosen and not fed yet.
    next: Option<u32>,
    finished: Vec<Said>,
    usage: Usage,
    timings: Timings,
}

impl Generation {
    /// Holds the request against the model, and keeps of what the model holds what the prompt begins
    /// with.
    pub fn begin(request: Request, decoder: &mut dyn Decoder) -> Result<Self, GenerationError> {
        let most = room(&request, decoder.context())?;
        let seed = request.sampling.seed();
        let first = Choice::new(&request, 0, seed, decoder.vocabulary())?;
        let held = decoder.held();
        let common = held
            .iter()
            .zip(&request.prompt)
            .take_while(|(held, new)| held == new);
        // The logits after the prompt are those of a token that is fed.
        let common = common.count().min(request.prompt.len() - 1);
        if held.len() > common {
            decoder.cut(common)?;
        }
        Ok(Self {
            seed,
            most,
            fed: common,
            after_prompt: Vec::new(),
            current: Some(first),
            next: None,
            finished: Vec::new(),
            usage: Usage {
                prompt_tokens: request.prompt.len(),
                completion_tokens: 0,
                cached_tokens: common,
            },
            timings: Timings::default(),
            request,
        })
    }

    /// Feeds a part of the prompt, or chooses a token. `going_on` says whether the caller is still there.
    pub fn step(
        &mut self,
        decoder: &mut dyn Decoder,
        going_on: &dyn Fn() -> bool,
        events: &mut Vec<Event>,
    ) -> Result<Progress, GenerationError> {
        let started = Instant::now();
        let is_prefill = self.fed < self.request.prompt.len();
        let progress = if !going_on() {
            Ok(Progress::Done)
        } else if is_prefill {
            self.prefill(decoder, going_on, events)
        } else {
            self.advance(decoder, going_on, events)
        };
        let progress = match progress {
            Err(GenerationError::Decode(DecodeError::Gone)) => Ok(Progress::Done),
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

    /// What it came to.
    pub fn finish(mut self) -> Generated {
        if let Some(current) = self.current.take().filter(|choice| choice.tokens() > 0) {
            self.finished.push(current.into_said());
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
        events: &mut Vec<Event>,
    ) -> Result<Progress, GenerationError> {
        let rest = &self.request.prompt[self.fed..];
        let part = &rest[..rest.len().min(self.request.prefill.max(1))];
        let logits = decoder.feed(part, going_on)?;
        self.fed += part.len();
        if self.fed < self.request.prompt.len() {
            return Ok(Progress::More);
        }
        if self.request.choices > 1 {
            self.after_prompt = logits.to_vec();
        }
        let choice = self.current.as_mut().expect("it was begun with the first");
        self.next = choice.next(&self.request, self.most, logits, events)?;
        self.after_token(decoder)
    }

    fn advance(
        &mut self,
        decoder: &mut dyn Decoder,
        going_on: &dyn Fn() -> bool,
        events: &mut Vec<Event>,
    ) -> Result<Progress, GenerationError> {
        let Some(choice) = self.current.as_mut() else {
            return Ok(Progress::Done);
        };
        self.next = if let Some(token) = self.next.take() {
            match decoder.feed(&[token], going_on) {
                Ok(logits) => choice.next(&self.request, self.most, logits, events)?,
                // What was said until here is the answer.
                Err(DecodeError::Beyond { .. }) => {
                    choice.cut(events)?;
                    None
                }
                Err(error) => return Err(error.into()),
            }
        } else {
            // A further choice begins behind the prompt.
            let mut logits = self.after_prompt.clone();
            choice.next(&self.request, self.most, &mut logits, events)?
        };
        self.after_token(decoder)
    }

    /// Begins the next choice where one is over.
    fn after_token(&mut self, decoder: &mut dyn Decoder) -> Result<Progress, GenerationError> {
        if self.next.is_some() {
            return Ok(Progress::More);
        }
        let over = self.current.take();
        self.finished.extend(over.map(Choice::into_said));
        let place = self.finished.len();
        if place == self.request.choices {
            return Ok(Progress::Done);
        }
        if decoder.held().len() > self.request.prompt.len() {
            decoder.cut(self.request.prompt.len())?;
        }
        let choice = Choice::new(&self.request, place, self.seed, decoder.vocabulary())?;
        self.current = Some(choice);
        Ok(Progress::More)
    }
}

/// Most tokens of an answer.
fn room(request: &Request, context: usize) -> Result<usize, GenerationError> {
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

/// All of a request, one step after another. `tell` breaks when the caller has gone; `going_on` is asked
/// where nothing is told for long.
pub fn generate(
    decoder: &mut dyn Decoder,
    request: Request,
    going_on: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Generated, GenerationError> {
    let mut generation = Generation::begin(request, decoder)?;
    let mut events = Vec::new();
    loop {
        let progress = generation.step(decoder, going_on, &mut events)?;
        let gone = events.drain(..).any(|event| tell(event).is_break());
        if gone || progress == Progress::Done {
            return Ok(generation.finish());
        }
    }
}
