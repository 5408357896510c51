//! Decoders that keep nothing: tokens in, logits of all of them out, all anew in every step.
//!
//! Invariant: what stands behind the tokens in an input of a fixed length has no part in the answer, because
//! logits of a decoder depend on what is before them only.

use super::roles::{self, Count};
use super::shape::{Feeding, Logits};
use crate::model::Dim;
use crate::tensor::TensorSpec;

/// The longest input of a fixed length that is filled for every step.
const LONGEST: usize = 1 << 20;

/// How tokens are fed to `tokens`, and how many it takes at most.
pub(super) fn feeding(
    tokens: &TensorSpec,
    logits: Logits,
) -> Result<(Feeding, Option<usize>), String> {
    let length = tokens.dims.as_deref().and_then(|dims| dims.get(1));
    match length.map(Count::of) {
        Some(Count::Fixed(length)) if length > LONGEST => Err(format!(
            "its input `{}` is {tokens}, and a fixed length of more than {LONGEST} is not fed",
            tokens.name
        )),
        Some(Count::Fixed(length)) if logits == Logits::All => {
            Ok((Feeding::Padded { length }, Some(length)))
        }
        Some(Count::Fixed(length)) => Err(format!(
            "its input `{}` is {tokens}, and its logits are those after token {length} only: shorter texts \
             cannot be fed; export it with logits of all positions or with a dynamic length",
            tokens.name
        )),
        Some(Count::Open(bound)) => {
            let any = length.is_none_or(|length| takes_any(length, bound));
            if any {
                return Ok((Feeding::All, bound));
            }
            Err(format!(
                "its input `{}` is {tokens}: it does not take every length, and texts have any",
                tokens.name
            ))
        }
        None => Ok((Feeding::All, None)),
    }
}

fn takes_any(length: &Dim, bound: Option<usize>) -> bool {
    let gaps = match length {
        Dim::Dynamic {
            allowed: Some(allowed),
            ..
        } => allowed.has_gaps(),
        _ => false,
    };
    !gaps && bound != Some(0) && roles::may_be(length, 1)
}
