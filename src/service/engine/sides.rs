//! Which sides of a picture a model takes where its signature leaves both open: found once, by runs on zeros.
//!
//! Invariant: the rule only explains a run that failed; no picture is refused because of it before it ran.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::NOBODY;
use super::shared::Shared;
use super::trial::filled;
use crate::service::CallError;
use crate::tensor::input::{Generator, OpenSides, open_sides};

/// Steps that networks need, smallest first: powers of two by strides, multiples of seven by patches.
const STEPS: [u64; 10] = [1, 2, 4, 8, 14, 16, 28, 32, 64, 128];

/// Sides that are tried have at least so many pixels: smaller ones may fail for another reason.
const LEAST: u64 = 64;

/// No further size is tried after this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A rule for the sides of pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideRule {
    /// The sides in the signature.
    pub sides: OpenSides,
    /// Both must be multiples of this.
    pub step: u64,
}

/// Finds the rule of a model; `None` if it has none that was found.
pub(super) async fn rule(shared: &Arc<Shared>) -> Result<Option<SideRule>, CallError> {
    let Some(sides) = open_sides(&shared.model.signature) else {
        return Ok(None);
    };
    let began = Instant::now();
    for step in STEPS {
        let mut takes = true;
        for size in odd_multiples(step) {
            if began.elapsed() > PATIENCE {
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

/// Two multiples of `step` with odd factors, so that they are no multiples of twice `step`.
fn odd_multiples(step: u64) -> [u64; 2] {
    let factor = LEAST.div_ceil(step) | 1;
    [step * factor, step * (factor + 2)]
}

/// Whether the model runs on a picture of this side. An error leaves that open.
async fn runs(shared: &Arc<Shared>, sides: &OpenSides, size: u64) -> Result<bool, CallError> {
    let dims = sides.labels.iter().map(|label| format!("{label}={size}"));
    let Some(inputs) = filled(&shared.model.signature, dims.collect(), Generator::Zeros) else {
        return Ok(false);
    };
    let answer = shared.submit(NOBODY, Some(inputs), None)?.answer(None);
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
                sizes.iter().all(|size| (LEAST..=384).contains(size)),
                "{sizes:?}"
            );
            for larger in &STEPS[place + 1..] {
                let fits = sizes.iter().all(|size| size % larger == 0);
                assert!(!fits, "{sizes:?} are multiples of {larger} too");
            }
        }
    }
}
