//! The state of one choice: what was said, the source of chance, buffers.
//!
//! Invariant: one draw a token, from a stream of its own, so that neighbours that come and go change
//! nothing. Steps in order: penalties, biases, temperature, `top_k`, `top_p`, `min_p`.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::exponential::exponential;
use super::history::History;
use super::keep::{self, Candidate};
use super::likelihood::{self, Likelihood};
use super::{Sampling, SamplingError};

/// How many weights are summed up at a time.
const BLOCK: usize = 256;

/// Temperatures below this take the likeliest token: nothing else would be drawn.
const GREEDY: f32 = 1e-4;

/// Draws the tokens of one choice.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: Sampling,
    history: History,
    chance: ChaCha8Rng,
    kept: Vec<Candidate>,
    sums: Vec<f64>,
    top: Vec<Likelihood>,
    raw: Vec<f32>,
}

/// A token that was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chosen<'s> {
    /// The token.
    pub token: u32,
    /// How likely the model held it to be; where it was asked for.
    pub logprob: Option<f32>,
    /// The likeliest tokens, likeliest first; as many as were asked for.
    pub top: &'s [Likelihood],
}

impl Sampler {
    /// For the choice at place `choice` of a request with this seed, of a model with so many tokens.
    pub fn new(
        settings: Sampling,
        seed: u64,
        choice: usize,
        prompt: &[u32],
        vocabulary: usize,
    ) -> Result<Self, SamplingError> {
        let beyond = |(token, _): &&(u32, f32)| *token as usize >= vocabulary;
        if let Some((token, _)) = settings.logit_bias.iter().find(beyond) {
            return Err(SamplingError::Token {
                token: *token,
                last: vocabulary.saturating_sub(1),
            });
        }
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut chance = ChaCha8Rng::from_seed(key);
        chance.set_stream(choice as u64);
        Ok(Self {
            history: History::new(&settings, prompt),
            settings,
            chance,
            kept: Vec::new(),
            sums: Vec::new(),
            top: Vec::new(),
            raw: Vec::new(),
        })
    }

    /// Draws the next token. `allowed` has a bit for each token that may come, lowest first; tokens
    /// behind its end may not. Logits are changed in place.
    pub fn choose(
        &mut self,
        logits: &mut [f32],
        allowed: Option<&[u32]>,
    ) -> Result<Chosen<'_>, SamplingError> {
        let most = largest(logits)?;
        let normaliser = self.settings.logprobs.map(|count| {
            self.raw.clear();
            self.raw.extend_from_slice(logits);
            let normaliser = most + likelihood::normaliser(logits, most);
            likelihood::likeliest(logits, count, &mut self.top);
            for one in &mut self.top {
                one.logprob -= normaliser;
            }
            normaliser
        });
        if let Some(allowed) = allowed {
            forbid(logits, allowed);
        }
        let token = self.draw(logits)?;
        self.history.said(token);
        Ok(Chosen {
            token,
            logprob: normaliser.map(|normaliser| self.raw[token as usize] - normaliser),
            top: &self.top,
        })
    }

    fn draw(&mut self, logits: &mut [f32]) -> Result<u32, SamplingError> {
        self.history.apply(logits);
        for (token, bias) in &self.settings.logit_bias {
            // A slice may be shorter than the vocabulary that was spoken of.
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit = (*logit + bias).min(f32::MAX);
            }
        }
        let most = largest(logits)?;
        if self.settings.temperature < GREEDY {
            return first(logits, |logit| logit >= most);
        }
        let chance = uniform(self.chance.next_u64());
        if self.settings.top_k == 0 && self.settings.top_p >= 1.0 {
            let least = keep::least(&self.settings, most);
            return self.among_all(logits, most, least, chance);
        }
        keep::keep(&self.settings, logits, most, &mut self.kept);
        let total: f64 = self.kept.iter().map(|one| f64::from(one.weight)).sum();
        let mut left = total * chance;
        let drawn = self.kept.iter().find(|one| {
            left -= f64::from(one.weight);
            left < 0.0
        });
        // Rounding may leave a hair behind the last one.
        let drawn = drawn.or_else(|| self.kept.iter().rev().find(|one| one.weight > 0.0));
        drawn.map(|one| one.token).ok_or(SamplingError::Nothing {
            tokens: logits.len(),
        })
    }

    /// A draw among all that are at least `least`, without a list of them.
    fn among_all(
        &mut self,
        logits: &[f32],
        most: f32,
        least: f32,
        chance: f64,
    ) -> Result<u32, SamplingError> {
        let scale = 1.0 / self.settings.temperature;
        let weight = |logit: f32| {
            let weight = exponential((logit - most) * scale);
            if logit >= least { weight } else { 0.0 }
        };
        self.sums.clear();
        self.sums.extend(logits.chunks(BLOCK).map(|block| {
            let mut lanes = [0.0_f32; 16];
            for row in block.chunks(lanes.len()) {
                for (lane, logit) in lanes.iter_mut().zip(row) {
                    *lane += weight(*logit);
                }
            }
            lanes.iter().copied().map(f64::from).sum::<f64>()
        }));
        let mut left = self.sums.iter().sum::<f64>() * chance;
        let block = self.sums.iter().position(|sum| {
            let here = left < *sum;
            if !here {
                left -= sum;
            }
            here
        });
        // Rounding may leave a hair behind the last block that has any weight.
        let block = block.or_else(|| self.sums.iter().rposition(|sum| *sum > 0.0));
        let start = block.map_or(0, |block| block * BLOCK);
        let mut drawn = None;
        for (place, logit) in logits[start..].iter().take(BLOCK).enumerate() {
            let weight = f64::from(weight(*logit));
            if weight > 0.0 {
                drawn = Some(start + place);
                left -= weight;
                if left < 0.0 {
                    break;
                }
            }
        }
        let token = drawn.ok_or(SamplingError::Nothing {
            tokens: logits.len(),
        })?;
        Ok(u32::try_from(token).expect("vocabularies are counted in 32 bits"))
    }
}

/// The largest logit. -∞ is a token that the model rules out; there must be one that it does not.
fn largest(logits: &[f32]) -> Result<f32, SamplingError> {
    // In lanes, so that the compiler compares several at a time.
    let mut lanes = [f32::NEG_INFINITY; 16];
    let mut sound = [true; 16];
    let rows = logits.chunks_exact(lanes.len());
    let rest = rows.remainder();
    let mut see = |place: usize, logit: f32| {
        // False for NaN, too.
        sound[place] &= logit < f32::INFINITY;
        if logit > lanes[place] {
            lanes[place] = logit;
        }
    };
    for row in rows {
        for (place, logit) in row.iter().enumerate() {
            see(place, *logit);
        }
    }
    for (place, logit) in rest.iter().enumerate() {
        see(place, *logit);
    }
    let most = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let sound = sound.into_iter().all(|sound| sound);
    if !sound {
        let token = logits
            .iter()
            .position(|logit| logit.is_nan() || *logit == f32::INFINITY);
        let token = token.expect("one was seen");
        let value = logits[token];
        return Err(SamplingError::NotFinite { token, value });
    }
    if most == f32::NEG_INFINITY {
        let tokens = logits.len();
        return Err(SamplingError::Nothing { tokens });
    }
    Ok(most)
}

fn first(logits: &[f32], is: impl Fn(f32) -> bool) -> Result<u32, SamplingError> {
    let place = logits.iter().position(|logit| is(*logit));
    let token = place.ok_or(SamplingError::Nothing {
        tokens: logits.len(),
    })?;
    Ok(u32::try_from(token).expect("vocabularies are counted in 32 bits"))
}

/// Rules out the tokens without a bit.
fn forbid(logits: &mut [f32], allowed: &[u32]) {
    let mut words = allowed.iter().copied();
    for part in logits.chunks_mut(32) {
        match words.next().unwrap_or(0) {
            0 => part.fill(f32::NEG_INFINITY),
            u32::MAX => {}
            word => {
                for (bit, logit) in part.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

/// From 0 to below 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn uniform(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
