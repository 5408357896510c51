//! The sampler of one choice: its token history, its random number generator and its buffers.
//!
//! Invariant: each token takes one random number from a stream of its own, so requests running
//! beside it change nothing. The steps in order: penalties, biases, temperature, `top_k`, `top_p`,
//! `min_p`.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::exponential::exponential;
use super::history::History;
use super::keep::{self, CandidateToken};
use super::likelihood::{self, Likelihood};
use super::{Sampling, SamplingError};

/// Number of weights per partial sum.
const WEIGHTS_PER_BLOCK: usize = 256;

/// Lower temperatures take the most likely token directly; sampling would never pick another one.
const GREEDY_TEMPERATURE: f32 = 1e-4;

/// Samples the tokens of one choice.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: Sampling,
    history: History,
    chance: ChaCha8Rng,
    kept: Vec<CandidateToken>,
    sums: Vec<f64>,
    top: Vec<Likelihood>,
    raw: Vec<f32>,
}

/// A sampled token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledToken<'s> {
    /// The token.
    pub token: u32,
    /// Its log probability by the model's own logits, if requested.
    pub logprob: Option<f32>,
    /// The most likely tokens, most likely first; as many as requested.
    pub top: &'s [Likelihood],
}

impl Sampler {
    /// Creates the sampler for the choice with the index `choice` of a request with this seed, for
    /// a model with this number of tokens.
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

    /// Samples the next token. `allowed` has a bit for each allowed token, lowest id first; tokens
    /// beyond its end are excluded. The logits are changed in place.
    pub fn choose(
        &mut self,
        logits: &mut [f32],
        allowed: Option<&[u32]>,
    ) -> Result<SampledToken<'_>, SamplingError> {
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
            exclude_tokens(logits, allowed);
        }
        let token = self.draw(logits)?;
        self.history.record(token);
        Ok(SampledToken {
            token,
            logprob: normaliser.map(|normaliser| self.raw[token as usize] - normaliser),
            top: &self.top,
        })
    }

    fn draw(&mut self, logits: &mut [f32]) -> Result<u32, SamplingError> {
        self.history.apply(logits);
        for (token, bias) in &self.settings.logit_bias {
            // The slice may be shorter than the vocabulary given to `new`.
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit = (*logit + bias).min(f32::MAX);
            }
        }
        let most = largest(logits)?;
        if self.settings.temperature < GREEDY_TEMPERATURE {
            return first(logits, |logit| logit >= most);
        }
        let chance = uniform(self.chance.next_u64());
        if self.settings.top_k == 0 && self.settings.top_p >= 1.0 {
            let least = keep::min_p_logit(&self.settings, most);
            return self.among_all(logits, most, least, chance);
        }
        keep::select_candidates(&self.settings, logits, most, &mut self.kept);
        let total: f64 = self.kept.iter().map(|one| f64::from(one.weight)).sum();
        let mut left = total * chance;
        let drawn = self.kept.iter().find(|one| {
            left -= f64::from(one.weight);
            left < 0.0
        });
        // Because of rounding, the random number may lie just beyond the last token.
        let drawn = drawn.or_else(|| self.kept.iter().rev().find(|one| one.weight > 0.0));
        drawn.map(|one| one.token).ok_or(SamplingError::Nothing {
            tokens: logits.len(),
        })
    }

    /// Samples from all tokens with a logit of at least `least`, without building a list.
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
        self.sums
            .extend(logits.chunks(WEIGHTS_PER_BLOCK).map(|block| {
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
        // Because of rounding, the random number may lie just beyond the last block with any
        // weight.
        let block = block.or_else(|| self.sums.iter().rposition(|sum| *sum > 0.0));
        let start = block.map_or(0, |block| block * WEIGHTS_PER_BLOCK);
        let mut drawn = None;
        for (place, logit) in logits[start..].iter().take(WEIGHTS_PER_BLOCK).enumerate() {
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
        Ok(u32::try_from(token).expect("token ids fit in 32 bits"))
    }
}

/// Returns the largest logit. -∞ marks a token that the model excludes; at least one token must
/// remain.
fn largest(logits: &[f32]) -> Result<f32, SamplingError> {
    // Separate lanes let the compiler compare several numbers at once.
    let mut lanes = [f32::NEG_INFINITY; 16];
    let mut sound = [true; 16];
    let rows = logits.chunks_exact(lanes.len());
    let rest = rows.remainder();
    let mut see = |place: usize, logit: f32| {
        // Also false for NaN.
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
        let token = token.expect("the maximum is among the logits");
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
    Ok(u32::try_from(token).expect("token ids fit in 32 bits"))
}

/// Excludes the tokens whose bit is not set.
fn exclude_tokens(logits: &mut [f32], allowed: &[u32]) {
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

/// Returns a number from 0 (included) to 1 (excluded).
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn uniform(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
