//! Token probabilities of the model itself, before penalties and biases change its logits.

use super::exponential::exponential;

/// A token and the natural logarithm of its probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Likelihood {
    /// The token.
    pub token: u32,
    /// Natural logarithm of the probability; at most 0.
    pub logprob: f32,
}

/// Computes the logarithm of the sum of e^(logit - most).
pub(super) fn normaliser(logits: &[f32], most: f32) -> f32 {
    let mut sum = 0.0_f64;
    for part in logits.chunks(4096) {
        let mut lanes = [0.0_f32; 16];
        for row in part.chunks(lanes.len()) {
            for (lane, logit) in lanes.iter_mut().zip(row) {
                *lane += exponential(*logit - most);
            }
        }
        sum += lanes.iter().copied().map(f64::from).sum::<f64>();
    }
    #[expect(clippy::cast_possible_truncation, reason = "as precise as the logits")]
    let normaliser = sum.ln() as f32;
    normaliser
}

/// Collects the `count` most likely tokens, most likely first; ties go to the smaller id.
pub(super) fn likeliest(logits: &[f32], count: usize, top: &mut Vec<Likelihood>) {
    top.clear();
    if count == 0 {
        return;
    }
    let mut least = f32::NEG_INFINITY;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > least {
            let place = top.partition_point(|one| one.logprob >= *logit);
            let token = u32::try_from(token).expect("token ids fit in 32 bits");
            let logprob = *logit;
            top.truncate(count - 1);
            top.insert(place.min(top.len()), Likelihood { token, logprob });
            if top.len() == count {
                least = top[count - 1].logprob;
            }
        }
    }
}
