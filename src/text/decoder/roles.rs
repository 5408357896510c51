//! What inputs and outputs of a decoder are, by their names, dtypes and sizes.
//!
//! Names are those that exporters write: optimum, transformers.js, ONNX Runtime's builder. Invariant: an
//! input that is not known is told, never given something.

use super::shape::{Argument, Logits, Role};
use crate::model::Dim;
use crate::tensor::{DType, TensorSpec};

/// How many tokens a dimension may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// Always so many.
    Fixed(usize),
    /// Up to so many, if that is known.
    Open(Option<usize>),
}

impl Count {
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

/// Whether a dimension may have this size.
pub(super) fn may_be(dim: &Dim, size: u64) -> bool {
    match dim {
        Dim::Fixed(fixed) => *fixed == size,
        Dim::Maybe { bound, .. } => size <= *bound,
        Dim::Dynamic { bound, allowed, .. } => {
            bound.is_none_or(|bound| size <= bound)
                && allowed.as_ref().is_none_or(|allowed| allowed.has(size))
        }
    }
}

/// Whether it is of integers.
pub(super) fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::Int64 | DType::Int32)
}

/// What the input beside the tokens and what is carried is, by its name.
pub(super) fn by_name(spec: &TensorSpec) -> Result<Argument, String> {
    let rank = spec.dims.as_ref().map(Vec::len);
    let is = |ranks: &[usize]| rank.is_none_or(|rank| ranks.contains(&rank));
    let integer = is_integer(spec.dtype);
    let is_mask = integer || matches!(spec.dtype, DType::Bool | DType::Float32);
    let role = match spec.name.as_str() {
        "attention_mask" if is(&[2]) && is_mask => Role::Mask,
        "position_ids" if is(&[2]) && integer => Role::Positions,
        "position_ids" | "cache_position" if is(&[1]) && integer => Role::PositionList,
        "num_logits_to_keep" | "logits_to_keep" if is(&[0, 1]) && integer => Role::Wanted {
            is_list: rank == Some(1),
        },
        "use_cache_branch" if is(&[1]) && spec.dtype == DType::Bool => Role::UsesCache,
        name => {
            return Err(format!(
                "its input `{name}`, {spec}, is none that text decoders have: beside tokens these are \
                 attention_mask [1, n], position_ids [1, n], cache_position [n], num_logits_to_keep, \
                 use_cache_branch and past_key_values.*"
            ));
        }
    };
    Ok(Argument {
        role,
        dtype: spec.dtype,
    })
}

/// The tokens among these inputs: by name, else the first integers with two dimensions.
pub(super) fn tokens(inputs: &[(usize, &TensorSpec)]) -> Result<usize, String> {
    let fits = |spec: &TensorSpec| {
        let dims = spec.dims.as_deref();
        let sizes = |dims: &[Dim]| dims.len() == 2 && may_be(&dims[0], 1);
        is_integer(spec.dtype) && dims.is_none_or(sizes)
    };
    let named = |spec: &TensorSpec| matches!(spec.name.as_str(), "input_ids" | "tokens");
    let by_name = inputs.iter().find(|(_, spec)| named(spec));
    if let Some((place, spec)) = by_name {
        if fits(spec) {
            return Ok(*place);
        }
        return Err(format!(
            "its input `{}` is {spec}, and tokens are int64[1, n]",
            spec.name
        ));
    }
    let known = |spec: &TensorSpec| by_name_is_known(&spec.name);
    let first = inputs.iter().find(|(_, spec)| fits(spec) && !known(spec));
    first.map(|(place, _)| *place).ok_or_else(|| {
        let all: Vec<String> = inputs
            .iter()
            .map(|(_, spec)| format!("`{}`, {spec}", spec.name))
            .collect();
        format!(
            "none of its inputs are tokens, int64[1, n]: {}",
            all.join("; ")
        )
    })
}

fn by_name_is_known(name: &str) -> bool {
    matches!(
        name,
        "attention_mask" | "position_ids" | "cache_position" | "token_type_ids"
    )
}

/// The logits among these outputs, with whether they are those of all positions, and how many tokens they
/// are for, where the file says so.
pub(super) fn logits(
    outputs: &[(usize, &TensorSpec)],
) -> Result<(usize, Logits, Option<usize>), String> {
    let logits = outputs.iter().find(|(_, spec)| spec.name == "logits");
    let found = match (logits, outputs) {
        (Some(found), _) => found,
        (None, [only]) => only,
        _ => {
            let names: Vec<&str> = outputs.iter().map(|(_, spec)| spec.name.as_str()).collect();
            return Err(format!(
                "which of its outputs are logits is not known: {}; one of them has to be named `logits`",
                names.join(", ")
            ));
        }
    };
    let (place, spec) = found;
    let is_float = matches!(
        spec.dtype,
        DType::Float32 | DType::Float16 | DType::Bfloat16 | DType::Float64
    );
    let dims = spec.dims.as_deref();
    let logits = match dims {
        Some([batch, _]) if is_float && may_be(batch, 1) => Logits::Last,
        Some([batch, _, _]) if is_float && may_be(batch, 1) => Logits::All,
        _ => {
            return Err(format!(
                "its output `{}` is {spec}, and logits are float32[1, vocabulary] or [1, n, vocabulary]",
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
