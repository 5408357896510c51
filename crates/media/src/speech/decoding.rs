//! Decoding of one window: the most likely tokens first, then chosen at random while they are doubtful.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "tokens are few"
)]

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

use super::grammar;
use super::tokens::SpeechTokens;

/// Difference between the temperatures of two attempts; the last one has 1.
const WARMER: f32 = 0.2;

/// Ratio of compression above which a text repeats itself.
const MAX_COMPRESSION: f64 = 2.4;

/// Mean logarithm of probabilities below which a text is doubtful.
const MIN_LOGPROB: f64 = -1.0;

/// Probability of no speech above which a doubtful window is silent.
const MAX_NO_SPEECH: f64 = 0.6;

/// How a decoder takes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenFeeding {
    /// All tokens each time.
    All,
    /// One token each time; it keeps the others.
    One,
}

/// How windows are decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecodingRules {
    pub(super) feeding: TokenFeeding,
    /// Maximum number of tokens of a text.
    pub(super) most: usize,
    /// Temperature of the first attempt.
    pub(super) temperature: f32,
}

/// Tokens for the next run of a decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FedTokens {
    pub(super) tokens: Vec<u32>,
    /// Number of tokens before them.
    pub(super) position: usize,
}

/// The text of a window, in tokens.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WindowText {
    pub(super) tokens: Vec<u32>,
    pub(super) temperature: f32,
    pub(super) logprob: f64,
    pub(super) compression: f64,
    pub(super) no_speech: f64,
    pub(super) language: Option<u32>,
}

impl WindowText {
    fn is_doubtful(&self) -> bool {
        !self.is_silent() && (self.compression > MAX_COMPRESSION || self.logprob < MIN_LOGPROB)
    }

    /// Returns whether the window has no speech.
    pub(super) fn is_silent(&self) -> bool {
        self.no_speech > MAX_NO_SPEECH && self.logprob < MIN_LOGPROB
    }
}

/// Attempts to decode a window.
#[derive(Debug)]
pub(super) struct WindowDecoding {
    rules: DecodingRules,
    /// Temperature of this attempt.
    temperature: f32,
    /// Start, language and task.
    prompt: Vec<u32>,
    language: Option<u32>,
    made: Vec<u32>,
    /// Number of tokens that the decoder has taken in this attempt.
    fed: usize,
    sum: f64,
    no_speech: f64,
    chance: ChaCha8Rng,
}

impl WindowDecoding {
    /// Starts with the language, if it is known. `task` is the token of the task.
    pub(super) fn new(
        tokens: &SpeechTokens,
        (language, task): (Option<u32>, Option<u32>),
        rules: DecodingRules,
        seed: u64,
    ) -> Self {
        let mut prompt = vec![tokens.start];
        if !tokens.languages.is_empty() && language.is_some() {
            prompt.extend(language.into_iter().chain(task));
        }
        Self {
            rules,
            temperature: rules.temperature,
            prompt,
            language,
            made: Vec::new(),
            fed: 0,
            sum: 0.0,
            no_speech: 0.0,
            chance: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Returns the tokens for the next run. At position 0, the decoder begins anew.
    pub(super) fn next_tokens(&self) -> FedTokens {
        let all = [&self.prompt[..], &self.made].concat();
        match self.rules.feeding {
            TokenFeeding::All => FedTokens {
                tokens: all,
                position: 0,
            },
            TokenFeeding::One => FedTokens {
                tokens: all.get(self.fed).copied().into_iter().collect(),
                position: self.fed,
            },
        }
    }

    /// Adds the logits of a run, a row for each token that it took. Returns the text after the last one.
    pub(super) fn add(
        &mut self,
        tokens: &SpeechTokens,
        task: Option<u32>,
        rows: &[&[f32]],
        text_of: &dyn Fn(&[u32]) -> Result<String, String>,
    ) -> Result<Option<WindowText>, String> {
        let last = *rows.last().ok_or("the decoder gave no logits")?;
        let fed = self.next_tokens();
        let had_start = fed.position == 0;
        self.fed = fed.position + fed.tokens.len();
        if had_start && let Some(token) = tokens.no_speech {
            self.no_speech = f64::from(probability(rows[0], token));
        }
        if had_start && self.language.is_none() && !tokens.languages.is_empty() {
            let languages = tokens.languages.iter().map(|(_, id)| *id);
            let score = |id: &u32| {
                rows[0]
                    .get(*id as usize)
                    .copied()
                    .unwrap_or(f32::NEG_INFINITY)
            };
            let best = languages.max_by(|a, b| score(a).total_cmp(&score(b)));
            self.language = best;
            self.prompt.extend(best.into_iter().chain(task));
            return Ok(None);
        }
        if self.fed < self.prompt.len() + self.made.len() {
            return Ok(None);
        }
        let mut logits = last.to_vec();
        grammar::apply(tokens, &self.made, &mut logits);
        let token = self.choose(&mut logits)?;
        if token != tokens.end {
            self.made.push(token);
        }
        let is_full = self.made.len() >= self.rules.most;
        if token != tokens.end && !is_full {
            return Ok(None);
        }
        let text = self.text(text_of)?;
        if text.is_doubtful() && self.temperature < 1.0 {
            // Tenths, so that the steps end at 1 in spite of rounding.
            self.temperature = (((self.temperature + WARMER) * 10.0).round() / 10.0).min(1.0);
            self.made.clear();
            (self.fed, self.sum) = (0, 0.0);
            return Ok(None);
        }
        Ok(Some(text))
    }

    /// Chooses a token, and adds the logarithm of its probability.
    fn choose(&mut self, logits: &mut [f32]) -> Result<u32, String> {
        let best = logits
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        let (best, most) = best.map(|(at, value)| (at, *value)).ok_or("no logits")?;
        if !most.is_finite() {
            return Err("the decoder allows no token: its logits are not numbers".to_owned());
        }
        let sum: f64 = logits.iter().map(|it| f64::from(it - most).exp()).sum();
        let temperature = self.temperature;
        let chosen = if temperature == 0.0 {
            best
        } else {
            for logit in logits.iter_mut() {
                *logit = (*logit - most) / temperature;
            }
            let all: f64 = logits.iter().map(|it| f64::from(*it).exp()).sum();
            let mut left = all * (f64::from(self.chance.next_u32()) / f64::from(u32::MAX));
            let found = logits.iter().position(|logit| {
                left -= f64::from(*logit).exp();
                left < 0.0
            });
            for logit in logits.iter_mut() {
                *logit = *logit * temperature + most;
            }
            found.unwrap_or(best)
        };
        self.sum += f64::from(logits[chosen] - most) - sum.ln();
        u32::try_from(chosen).map_err(|error| error.to_string())
    }

    fn text(
        &self,
        text_of: &dyn Fn(&[u32]) -> Result<String, String>,
    ) -> Result<WindowText, String> {
        let text = text_of(&self.made)?;
        Ok(WindowText {
            tokens: self.made.clone(),
            temperature: self.temperature,
            logprob: self.sum / (self.made.len() + 1) as f64,
            compression: compression(text.trim())?,
            no_speech: self.no_speech,
            language: self.language,
        })
    }
}

/// Returns how much shorter a text becomes when it is compressed.
fn compression(text: &str) -> Result<f64, String> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder
        .write_all(text.as_bytes())
        .and_then(|()| encoder.finish());
    let compressed = written.map_err(|error| error.to_string())?;
    Ok(text.len() as f64 / compressed.len().max(1) as f64)
}

fn probability(logits: &[f32], token: u32) -> f32 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|it| (it - most).exp()).sum();
    logits
        .get(token as usize)
        .map_or(0.0, |it| (it - most).exp() / sum)
}
