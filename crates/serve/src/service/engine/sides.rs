//! Determines the picture sizes that a model accepts when its signature leaves both sides open,
//! with runs on zeros.
//!
//! Invariant: the rule only explains a failed run; pictures are never rejected because of it before
//! they ran.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::NO_ACCOUNT;
use super::shared::SharedEndpoint;
use super::trial::filled;
use crate::service::CallError;
use pkgtool_engine::tensor::input::{Generator, OpenSides, open_sides};

/// Step sizes of common networks, smallest first: powers of two from strides, multiples of seven
/// from patches.
const STEPS: [u64; 10] = [1, 2, 4, 8, 14, 16, 28, 32, 64, 128];

/// Minimum side that is tried, in pixels. Smaller pictures may fail for other reasons.
const MIN_SIDE_PIXELS: u64 = 64;

/// Time after which no further size is tried.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A rule for picture sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideRule {
    /// The open sides in the signature.
    pub sides: OpenSides,
    /// Both sides must be multiples of this.
    pub step: u64,
}

/// Determines the rule of a model; `None` if no rule was found.
pub(super) async fn rule(shared: &Arc<SharedEndpoint>) -> Result<Option<SideRule>, CallError> {
    let Some(sides) = open_sides(&shared.model.signature) else {
        return Ok(None);
    };
    let began = Instant::now();
    for step in STEPS {
        let mut takes = true;
        for size in odd_multiples(step) {
            if began.elapsed() > TIME_LIMIT {
                return Ok(None);
            }
            takes = takes && runs(shared, &sides, size).await?;
        }
        if takes {
            return Ok((step > 1).then_some(SideRule { sides, step }));
        }
    }
    Ok(None)
}

/// Returns two odd multiples of `step`, which are not multiples of twice `step`.
fn odd_multiples(step: u64) -> [u64; 2] {
    let factor = MIN_SIDE_PIXELS.div_ceil(step) | 1;
    [step * factor, step * (factor + 2)]
}

/// Returns whether the model runs on a picture of this size. An error means that this is unknown.
async fn runs(
    shared: &Arc<SharedEndpoint>,
    sides: &OpenSides,
    size: u64,
) -> Result<bool, CallError> {
    let dims = sides.labels.iter().map(|label| format!("{label}={size}"));
    let Some(inputs) = filled(&shared.model.signature, dims.collect(), Generator::Zeros) else {
        return Ok(false);
    };
    let answer = shared.submit(NO_ACCOUNT, Some(inputs), None)?.answer(None);
    match answer.await {
        Ok(_) => Ok(true),
        Err(CallError::Failed(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_tell_steps_apart() {
        for (place, step) in STEPS.into_iter().enumerate() {
            let sizes = odd_multiples(step);
            assert!(
                sizes
                    .iter()
                    .all(|size| (MIN_SIDE_PIXELS..=384).contains(size)),
                "{sizes:?}"
            );
            for larger in &STEPS[place + 1..] {
                let fits = sizes.iter().all(|size| size % larger == 0);
                assert!(!fits, "{sizes:?} are multiples of {larger} too");
            }
        }
    }
}
