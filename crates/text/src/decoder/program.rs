//! Recognises ExecuTorch programs with an internal KV cache, which take tokens and their start
//! position.
//!
//! Signatures: `forward(tokens [1, n], input_pos [1])` of `export_llm`, and `forward(tokens [1, n],
//! cache_position [n])` of optimum-executorch. Programs with pictures take embeddings, [1, n, width],
//! in place of tokens. Invariant: no step has more tokens than the file allows.

use super::constants::Constants;
use super::roles::{TokenCount, accepts_size, embedding_width, is_integer};
use super::shape::{DecoderInput, DecoderRole, FeedingMode};
use pkgtool_engine::tensor::{Signature, TensorSpec};
use pkgtool_model::Dim;

/// Returns the inputs of such a program and how tokens are fed; `None` if it is not of this kind.
pub(super) fn arguments(
    signature: &Signature,
    constants: &Constants<'_>,
) -> Result<Option<(Vec<DecoderInput>, FeedingMode)>, String> {
    let [first, second] = signature.inputs.as_slice() else {
        return Ok(None);
    };
    let (Some([batch, length, width @ ..]), Some([positions])) = (dims(first), dims(second)) else {
        return Ok(None);
    };
    let fed = match width {
        [] if is_integer(first.dtype) => Some(DecoderRole::Tokens),
        _ => embedding_width(first).map(|width| DecoderRole::Embeddings { width }),
    };
    let Some(fed) = fed.filter(|_| is_integer(second.dtype) && accepts_size(batch, 1)) else {
        return Ok(None);
    };
    let one_by_one = constants.flag("enable_dynamic_shape") == Some(false);
    let (count, places) = (TokenCount::of(length), TokenCount::of(positions));
    let role = match (count, places) {
        (TokenCount::Fixed(1) | TokenCount::Open(_), TokenCount::Fixed(1)) => {
            DecoderRole::StartPosition
        }
        (TokenCount::Open(_), TokenCount::Open(_)) => DecoderRole::PositionList,
        (TokenCount::Fixed(fixed), TokenCount::Fixed(1)) => return Err(fixed_length(first, fixed)),
        _ => {
            return Err(format!(
                "its inputs are `{}`, {first}, and `{}`, {second}: expected one position in the second, \
                 or one for each token",
                first.name, second.name
            ));
        }
    };
    let most = match count {
        _ if one_by_one => 1,
        TokenCount::Fixed(fixed) => fixed,
        TokenCount::Open(bound) => bound.unwrap_or(usize::MAX),
    };
    if !accepts_size(length, 1) {
        return Err(format!(
            "its input `{}` is {first}: expected an input that accepts a single token, for the steps after the prompt",
            first.name
        ));
    }
    let feeding = FeedingMode::NewTokens {
        most: allowed(length, most),
    };
    let argument = |role, spec: &TensorSpec| DecoderInput {
        role,
        dtype: spec.dtype,
    };
    let arguments = vec![argument(fed, first), argument(role, second)];
    Ok(Some((arguments, feeding)))
}

fn dims(spec: &TensorSpec) -> Option<&[Dim]> {
    spec.dims.as_deref()
}

/// Returns the maximum number of tokens in a step; 1 if the allowed sizes have gaps, since a prompt
/// may have any length.
fn allowed(length: &Dim, most: usize) -> usize {
    match length {
        Dim::Dynamic {
            allowed: Some(allowed),
            ..
        } if allowed.has_gaps() => 1,
        _ => most,
    }
}

fn fixed_length(tokens: &TensorSpec, fixed: usize) -> String {
    format!(
        "its input `{}` is {tokens}: every step takes {fixed} tokens, but the steps after a prompt have \
         one; export it with 1 token or with a dynamic length",
        tokens.name
    )
}
