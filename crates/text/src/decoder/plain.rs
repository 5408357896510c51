//! Recognises decoders without a cache, which process all tokens anew in every step.
//!
//! Invariant: padding after the tokens in an input of fixed length does not change the result,
//! because a decoder's logits depend only on earlier positions.

use super::roles::{self, TokenCount};
use super::shape::{FeedingMode, LogitsRange};
use pkgtool_engine::tensor::TensorSpec;
use pkgtool_model::Dim;

/// Maximum length of an input with a fixed length, in tokens.
const MAX_FIXED_LENGTH: usize = 1 << 20;

/// Returns how tokens are fed to the input `tokens`, and the maximum number that it accepts.
pub(super) fn feeding(
    tokens: &TensorSpec,
    logits: LogitsRange,
) -> Result<(FeedingMode, Option<usize>), String> {
    let length = tokens.dims.as_deref().and_then(|dims| dims.get(1));
    match length.map(TokenCount::of) {
        Some(TokenCount::Fixed(length)) if length > MAX_FIXED_LENGTH => Err(format!(
            "its input `{}` is {tokens}, and its fixed length exceeds the limit of {MAX_FIXED_LENGTH}",
            tokens.name
        )),
        Some(TokenCount::Fixed(length)) if logits == LogitsRange::All => {
            Ok((FeedingMode::Padded { length }, Some(length)))
        }
        Some(TokenCount::Fixed(length)) => Err(format!(
            "its input `{}` is {tokens}, and it returns logits only after token {length}, so shorter texts \
             are not supported; export it with logits of all positions or with a dynamic length",
            tokens.name
        )),
        Some(TokenCount::Open(bound)) => {
            let any = length.is_none_or(|length| takes_any(length, bound));
            if any {
                return Ok((FeedingMode::AllTokens, bound));
            }
            Err(format!(
                "its input `{}` is {tokens}: expected a dimension that accepts every length",
                tokens.name
            ))
        }
        None => Ok((FeedingMode::AllTokens, None)),
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
    !gaps && bound != Some(0) && roles::accepts_size(length, 1)
}
