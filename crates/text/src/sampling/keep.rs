//! Selects the candidate tokens by `top_k`, `top_p` and `min_p`, in this order.
//!
//! Invariant: among equally likely tokens, the smaller id is kept. Only tokens that are likely to
//! be kept are sorted, and buffers are reused.

use std::cmp::Ordering;

use super::Sampling;
use super::exponential::exponential;

/// Minimum buffer size of a selection; smaller selections do not pay.
const MIN_SELECTION_BUFFER: usize = 512;

/// Number of histogram bins for `top_p`.
const NUCLEUS_BINS: usize = 1024;

/// A candidate token.
#[derive(Debug, Clone, Copy)]
pub(super) struct CandidateToken {
    pub(super) token: u32,
    logit: f32,
    /// Unnormalised probability: 1 for the most likely token.
    pub(super) weight: f32,
}

/// Orders by descending logit, then by id.
fn by_logit(a: &CandidateToken, b: &CandidateToken) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// Fills `kept` with the candidates, ordered by id. `most` is the largest logit.
pub(super) fn select_candidates(
    settings: &Sampling,
    logits: &[f32],
    most: f32,
    kept: &mut Vec<CandidateToken>,
) {
    kept.clear();
    let least = min_p_logit(settings, most);
    if settings.top_k > 0 && settings.top_k < logits.len() {
        likeliest(logits, settings.top_k, kept);
        kept.sort_unstable_by_key(|candidate| candidate.token);
    } else {
        let cut = if settings.top_p < 1.0 {
            top_p_logit(settings, logits, most)
        } else {
            least
        };
        gather(logits, cut, kept);
    }
    let scale = 1.0 / settings.temperature;
    for candidate in kept.iter_mut() {
        candidate.weight = exponential((candidate.logit - most) * scale);
    }
    if settings.top_p < 1.0 {
        nucleus(settings.top_p, most, kept);
    }
    kept.retain(|candidate| candidate.logit >= least);
}

/// Returns the smallest logit that `min_p` keeps. The most likely token always stays.
pub(super) fn min_p_logit(settings: &Sampling, most: f32) -> f32 {
    let least = most + settings.temperature * settings.min_p.ln();
    least.min(most)
}

fn candidate(token: usize, logit: f32) -> CandidateToken {
    CandidateToken {
        token: u32::try_from(token).expect("token ids fit in 32 bits"),
        logit,
        weight: 0.0,
    }
}

fn gather(logits: &[f32], least: f32, kept: &mut Vec<CandidateToken>) {
    for (token, logit) in logits.iter().enumerate() {
        if *logit >= least && *logit > f32::NEG_INFINITY {
            kept.push(candidate(token, *logit));
        }
    }
}

/// Collects the `count` most likely tokens, unordered. Tokens below the worst of the best so far
/// are skipped. The buffer is reduced when it holds twice as many as wanted.
fn likeliest(logits: &[f32], count: usize, kept: &mut Vec<CandidateToken>) {
    let room = count.saturating_mul(2).max(MIN_SELECTION_BUFFER);
    let mut least = f32::NEG_INFINITY;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > least {
            kept.push(candidate(token, *logit));
            if kept.len() == room {
                kept.select_nth_unstable_by(count - 1, by_logit);
                least = kept[count - 1].logit;
                kept.truncate(count);
            }
        }
    }
    if kept.len() > count {
        kept.select_nth_unstable_by(count - 1, by_logit);
        kept.truncate(count);
    }
}

/// Returns a logit below which tokens cannot belong to the nucleus of `top_p`: together they have
/// less probability than `top_p` leaves out.
fn top_p_logit(settings: &Sampling, logits: &[f32], most: f32) -> f32 {
    let scale = 1.0 / settings.temperature;
    let mut lanes = [0.0_f32; 16];
    let mut sum = 0.0_f64;
    // Partial sums over few numbers keep the rounding error small.
    for part in logits.chunks(4096) {
        lanes.fill(0.0);
        for row in part.chunks(lanes.len()) {
            for (lane, logit) in lanes.iter_mut().zip(row) {
                *lane += exponential((*logit - most) * scale);
            }
        }
        sum += lanes.iter().copied().map(f64::from).sum::<f64>();
    }
    #[expect(clippy::cast_precision_loss, reason = "a bound with ample margin")]
    let share = sum * (1.0 - f64::from(settings.top_p)) * 0.5 / logits.len() as f64;
    #[expect(clippy::cast_possible_truncation, reason = "a bound with ample margin")]
    let cut = most + settings.temperature * share.ln() as f32;
    cut.min(most)
}

/// Keeps the most likely tokens whose weights sum up to `share` of the total, including the one
/// that reaches it. Their order is preserved.
fn nucleus(share: f32, most: f32, kept: &mut Vec<CandidateToken>) {
    let total: f64 = kept.iter().map(|one| f64::from(one.weight)).sum();
    let mut wanted = total * f64::from(share);
    // A coarse histogram by logit; only tokens in the bin of the threshold are compared one by one.
    let least = kept.iter().fold(most, |least, one| least.min(one.logit));
    let height = (most - least).max(f32::MIN_POSITIVE);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the value is from 0 to the number of steps"
    )]
    let step = |logit: f32| {
        (((most - logit) / height * NUCLEUS_BINS as f32) as usize).min(NUCLEUS_BINS - 1)
    };
    let mut sums = [0.0_f64; NUCLEUS_BINS];
    for one in kept.iter() {
        sums[step(one.logit)] += f64::from(one.weight);
    }
    let edge = sums.iter().position(|sum| {
        let reached = *sum >= wanted;
        if !reached {
            wanted -= sum;
        }
        reached
    });
    // Because of rounding, the sum may stay just below the threshold. Then all tokens are kept.
    let Some(edge) = edge else {
        return;
    };
    let mut about: Vec<CandidateToken> = Vec::new();
    about.extend(kept.iter().filter(|one| step(one.logit) == edge));
    about.sort_unstable_by(by_logit);
    let reaching = about.iter().find(|one| {
        wanted -= f64::from(one.weight);
        wanted <= 0.0
    });
    if let Some(end) = reaching.or(about.last()) {
        kept.retain(|one| by_logit(one, end).is_le());
    }
}
