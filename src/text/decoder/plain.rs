//! Recognises decoders without a cache, which process all tokens anew in every step.
//!
//! Invariant: padding after the tokens in an input of fixed length does not change the result,
//! because a decoder's logits depend only on earlier positions.

use super::roles::{self, Count};
use super::shape::{Feeding, Logits};
use crate::model::Dim;
use crate::tensor::TensorSpec;

/// Maximum length of an input with a fixed length, in tokens.
const LONGEST: usize = 1 << 20;

/// Returns how tokens are fed to the input `tokens`, and the maximum number that it accepts.
pub(super) fn feeding(
    tokens: &TensorSpec,
    logits: Logits,
) -> Result<(Feeding, Option<usize>), String> {
    let length = tokens.dims.as_deref().and_then(|dims| dims.get(1));
    match length.map(Count::of) {
        Some(Count::Fixed(length)) if length > LONGEST => Err(format!(
            "its input `{}` is {tokens}, and its fixed length exceeds the limit of {LONGEST}",
            tokens.name
        )),
        Some(Count::Fixed(length)) if logits == Logits::All => {
            Ok((Feeding::Padded { length }, Some(length)))
        }
        Some(Count::Fixed(length)) => Err(format!(
            "its input `{}` is {tokens}, and it returns logits only after token {length}, so shorter texts \
             are not supported; export it with logits of all positions or with a dynamic length",
            tokens.name
        )),
        Some(Count::Open(bound)) => {
            let any = length.is_none_or(|length| takes_any(length, bound));
            if any {
                return Ok((Feeding::All, bound));
            }
            Err(format!(
                "its input `{}` is {tokens}: expected a dimension that accepts every length",
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
