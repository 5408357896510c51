//! Recognises the roles of a decoder's inputs and outputs by their names, dtypes and sizes.
//!
//! The names are those that exporters write: optimum, transformers.js, ONNX Runtime's model
//! builder. Invariant: an unrecognised input is reported and never filled with a guess.

use super::shape::{DecoderInput, DecoderRole, LogitsRange};
use pkgtool_engine::tensor::{DType, TensorSpec};
use pkgtool_model::Dim;

/// The number of tokens that a dimension accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenCount {
    /// Exactly this number.
    Fixed(usize),
    /// Up to this number, if it is known.
    Open(Option<usize>),
}

impl TokenCount {
    pub(super) fn of(dim: &Dim) -> Self {
        let size = |size: &u64| usize::try_from(*size).unwrap_or(usize::MAX);
        match dim {
            Dim::Fixed(fixed) => Self::Fixed(size(fixed)),
            Dim::Maybe { bound: 1, .. } => Self::Fixed(1),
            Dim::Maybe { bound, .. } => Self::Open(Some(size(bound))),
            Dim::Dynamic { bound, .. } => Self::Open(bound.as_ref().map(size)),
        }
    }
}

/// Returns whether a dimension accepts this size.
pub(super) fn accepts_size(dim: &Dim, size: u64) -> bool {
    match dim {
        Dim::Fixed(fixed) => *fixed == size,
        Dim::Maybe { bound, .. } => size <= *bound,
        Dim::Dynamic { bound, allowed, .. } => {
            bound.is_none_or(|bound| size <= bound)
                && allowed.as_ref().is_none_or(|allowed| allowed.has(size))
        }
    }
}

/// Returns whether the dtype is an integer type for tokens and positions.
pub(super) fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::Int64 | DType::Int32)
}

/// Recognises, by name, an input that is neither the tokens nor a part of the cache.
pub(super) fn input_by_name(spec: &TensorSpec) -> Result<DecoderInput, String> {
    let rank = spec.dims.as_ref().map(Vec::len);
    let is = |ranks: &[usize]| rank.is_none_or(|rank| ranks.contains(&rank));
    let integer = is_integer(spec.dtype);
    let is_mask = integer || matches!(spec.dtype, DType::Bool | DType::Float32);
    let role = match spec.name.as_str() {
        "attention_mask" if is(&[2]) && is_mask => DecoderRole::Mask,
        "position_ids" if is(&[2]) && integer => DecoderRole::Positions,
        "position_ids" | "cache_position" if is(&[1]) && integer => DecoderRole::PositionList,
        "num_logits_to_keep" | "logits_to_keep" if is(&[0, 1]) && integer => {
            DecoderRole::LogitsToKeep {
                is_list: rank == Some(1),
            }
        }
        "use_cache_branch" if is(&[1]) && spec.dtype == DType::Bool => DecoderRole::UsesCache,
        name => {
            return Err(format!(
                "its input `{name}`, {spec}, is not supported in text decoders: besides tokens, supported inputs are \
                 attention_mask [1, n], position_ids [1, n], cache_position [n], num_logits_to_keep, \
                 use_cache_branch and past_key_values.*"
            ));
        }
    };
    Ok(DecoderInput {
        role,
        dtype: spec.dtype,
    })
}

/// Selects the input for what a step feeds: tokens, or else their embeddings.
pub(super) fn fed(inputs: &[(usize, &TensorSpec)]) -> Result<(usize, DecoderRole), String> {
    let mut inputs_with_width = inputs.iter().filter_map(|(place, spec)| {
        let width = embedding_width(spec)?;
        Some((*place, DecoderRole::Embeddings { width }))
    });
    match (tokens(inputs), inputs_with_width.next()) {
        (Err(_), Some(found)) => Ok(found),
        (tokens, _) => tokens.map(|place| (place, DecoderRole::Tokens)),
    }
}

/// Returns the width of embeddings, float32[1, n, width]; `None` if the tensor does not have this shape.
pub(super) fn embedding_width(spec: &TensorSpec) -> Option<usize> {
    match spec.dims.as_deref()? {
        [batch, _, Dim::Fixed(width)] if is_float(spec.dtype) && accepts_size(batch, 1) => {
            usize::try_from(*width).ok()
        }
        _ => None,
    }
}

fn is_float(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::Float32 | DType::Float16 | DType::Bfloat16 | DType::Float64
    )
}

/// Selects the token input: by name, or else the first integer input with two dimensions.
fn tokens(inputs: &[(usize, &TensorSpec)]) -> Result<usize, String> {
    let fits = |spec: &TensorSpec| {
        let dims = spec.dims.as_deref();
        let sizes = |dims: &[Dim]| dims.len() == 2 && accepts_size(&dims[0], 1);
        is_integer(spec.dtype) && dims.is_none_or(sizes)
    };
    let named = |spec: &TensorSpec| matches!(spec.name.as_str(), "input_ids" | "tokens");
    let by_name = inputs.iter().find(|(_, spec)| named(spec));
    if let Some((place, spec)) = by_name {
        if fits(spec) {
            return Ok(*place);
        }
        return Err(format!(
            "its input `{}` is {spec}: expected tokens, int64[1, n]",
            spec.name
        ));
    }
    let known = |spec: &TensorSpec| is_known_name(&spec.name);
    let first = inputs.iter().find(|(_, spec)| fits(spec) && !known(spec));
    first.map(|(place, _)| *place).ok_or_else(|| {
        let all: Vec<String> = inputs
            .iter()
            .map(|(_, spec)| format!("`{}`, {spec}", spec.name))
            .collect();
        format!(
            "it has no input for tokens, int64[1, n]: {}",
            all.join("; ")
        )
    })
}

fn is_known_name(name: &str) -> bool {
    matches!(
        name,
        "attention_mask" | "position_ids" | "cache_position" | "token_type_ids"
    )
}

/// Selects the logits among these outputs. Also returns whether they cover all positions, and the
/// vocabulary size if the file states it.
pub(super) fn logits(
    outputs: &[(usize, &TensorSpec)],
) -> Result<(usize, LogitsRange, Option<usize>), String> {
    let logits = outputs.iter().find(|(_, spec)| spec.name == "logits");
    let found = match (logits, outputs) {
        (Some(found), _) => found,
        (None, [only]) => only,
        _ => {
            let names: Vec<&str> = outputs.iter().map(|(_, spec)| spec.name.as_str()).collect();
            return Err(format!(
                "its logits cannot be identified among its outputs: {}; name one of them `logits`",
                names.join(", ")
            ));
        }
    };
    let (place, spec) = found;
    let is_float = is_float(spec.dtype);
    let dims = spec.dims.as_deref();
    let logits = match dims {
        Some([batch, _]) if is_float && accepts_size(batch, 1) => LogitsRange::Last,
        Some([batch, _, _]) if is_float && accepts_size(batch, 1) => LogitsRange::All,
        _ => {
            return Err(format!(
                "its output `{}` is {spec}: expected logits, float32[1, vocabulary] or [1, n, vocabulary]",
                spec.name
            ));
        }
    };
    let vocabulary = dims.and_then(<[Dim]>::last).and_then(|dim| match dim {
        Dim::Fixed(size) => usize::try_from(*size).ok(),
        _ => None,
    });
    Ok((*place, logits, vocabulary))
}
