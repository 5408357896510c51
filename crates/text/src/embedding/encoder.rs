//! Recognises how a model takes text: the role of each input (token ids, mask, …), its sizes, and
//! the output to read.
//!
//! Inputs are recognised by name. Inputs without a meaningful name (programs) are recognised by
//! position: ids, mask, types. Invariant: a model with an unrecognised input is rejected; no role
//! is guessed.

use super::EmbeddingError;
use pkgtool_engine::tensor::{DType, Signature, TensorSpec};
use pkgtool_model::{Allowed, Dim};

/// The role of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EncoderRole {
    /// Token ids.
    Ids,
    /// 1 for a token, 0 for padding.
    Mask,
    /// The segment that each token belongs to (token type ids).
    Types,
    /// The position of each token.
    Positions,
}

/// Input names of each role, as exporters write them.
const ROLE_NAMES: [(EncoderRole, &[&str]); 4] = [
    (
        EncoderRole::Ids,
        &[
            "input_ids",
            "tokens",
            "token_ids",
            "ids",
            "input",
            "text",
            "tokenized_text",
        ],
    ),
    (
        EncoderRole::Mask,
        &[
            "attention_mask",
            "mask",
            "input_mask",
            "padding_mask",
            "attn_mask",
        ],
    ),
    (
        EncoderRole::Types,
        &["token_type_ids", "segment_ids", "token_types", "type_ids"],
    ),
    (EncoderRole::Positions, &["position_ids", "positions"]),
];

/// The roles of inputs without a meaningful name, by position.
const ROLES_BY_POSITION: [EncoderRole; 3] =
    [EncoderRole::Ids, EncoderRole::Mask, EncoderRole::Types];

/// Names of outputs that hold a text's vector, best first.
const VECTOR_OUTPUTS: [&str; 7] = [
    "sentence_embedding",
    "sentence_embeddings",
    "embedding",
    "embeddings",
    "text_embeds",
    "text_embedding",
    "pooled",
];

/// Names of outputs that hold token states (one vector per token), best first.
const STATE_OUTPUTS: [&str; 4] = [
    "last_hidden_state",
    "token_embeddings",
    "hidden_states",
    "encoder_last_hidden_state",
];

/// The sizes that a dimension accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimSize {
    /// Exactly this size.
    Fixed(u64),
    /// Any size, or any allowed size, up to the maximum.
    Open {
        /// The maximum, if any.
        most: Option<u64>,
        /// The allowed sizes, if declared.
        allowed: Option<Allowed>,
    },
}

/// An input and its role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncoderInput {
    pub(super) role: EncoderRole,
    pub(super) dtype: DType,
}

/// A model's text inputs and its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoder {
    /// The inputs in calling order.
    pub(super) inputs: Vec<EncoderInput>,
    /// Number of texts in one run; `None` for a model without a batch dimension, which takes one
    /// text.
    pub(super) rows: Option<DimSize>,
    /// Number of tokens of a text.
    pub(super) length: DimSize,
    /// Index of the output to read.
    pub(super) output: usize,
    /// True if that output certainly holds token states.
    pub(super) returns_states: bool,
}

impl Encoder {
    /// Recognises the method with this signature.
    pub fn of(signature: &Signature) -> Result<Self, EmbeddingError> {
        let roles = roles(&signature.inputs)?;
        let ids = roles.iter().position(|role| *role == EncoderRole::Ids);
        let ids = ids.ok_or_else(|| {
            let inputs = described(&signature.inputs);
            EmbeddingError::Signature(format!(
                "it has no input for token ids; its inputs are {inputs}"
            ))
        })?;
        let (rows, length) = sizes(&signature.inputs[ids])?;
        for (spec, role) in signature.inputs.iter().zip(&roles) {
            check_input(spec, *role, rows.is_some())?;
        }
        let inputs = signature.inputs.iter().zip(roles);
        let inputs = inputs.map(|(spec, role)| EncoderInput {
            role,
            dtype: spec.dtype,
        });
        let output = output(&signature.outputs)?;
        let rank = signature.outputs[output].dims.as_ref().map(Vec::len);
        Ok(Self {
            inputs: inputs.collect(),
            output,
            returns_states: rank == Some(2 + usize::from(rows.is_some())),
            rows,
            length,
        })
    }

    /// Returns whether the model has a mask input that marks padding.
    pub(super) fn is_masked(&self) -> bool {
        self.inputs
            .iter()
            .any(|input| input.role == EncoderRole::Mask)
    }

    /// Returns the maximum number of tokens by the model's own sizes.
    pub fn longest(&self) -> Option<u64> {
        self.length.largest()
    }
}

impl DimSize {
    fn of(dim: &Dim) -> Self {
        match dim {
            Dim::Fixed(size) => Self::Fixed(*size),
            Dim::Dynamic { bound, allowed, .. } => Self::Open {
                most: *bound,
                allowed: allowed.clone(),
            },
            Dim::Maybe {
                bound,
                likely_dynamic: true,
            } => Self::Open {
                most: Some(*bound),
                allowed: None,
            },
            Dim::Maybe { bound, .. } => Self::Fixed(*bound),
        }
    }

    /// Returns the largest size.
    pub(super) fn largest(&self) -> Option<u64> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Open { most, allowed } => {
                let allowed = allowed.as_ref().map(Allowed::largest);
                [*most, allowed].into_iter().flatten().min()
            }
        }
    }

    /// Returns the smallest size that is at least `least`.
    pub(super) fn from(&self, least: u64) -> Option<u64> {
        let size = match self {
            Self::Fixed(size) => *size,
            Self::Open { allowed: None, .. } => least,
            Self::Open {
                allowed:
                    Some(Allowed::Range {
                        least: from, step, ..
                    }),
                ..
            } => from + least.saturating_sub(*from).div_ceil(*step) * step,
            Self::Open {
                allowed: Some(Allowed::Choices(sizes)),
                ..
            } => *sizes.iter().find(|size| **size >= least)?,
        };
        (size >= least && self.largest().is_none_or(|most| size <= most)).then_some(size)
    }
}

/// Recognises the role of each input.
fn roles(inputs: &[TensorSpec]) -> Result<Vec<EncoderRole>, EmbeddingError> {
    let by_name = |spec: &TensorSpec| {
        let name = spec.name.to_lowercase();
        let known = ROLE_NAMES
            .iter()
            .find(|(_, names)| names.contains(&name.as_str()));
        known.map(|(role, _)| *role)
    };
    let named: Vec<Option<EncoderRole>> = inputs.iter().map(by_name).collect();
    let mut free = ROLES_BY_POSITION
        .into_iter()
        .filter(|role| !named.contains(&Some(*role)));
    let mut roles = Vec::new();
    for (spec, named) in inputs.iter().zip(&named) {
        let unnamed = spec.name.starts_with("input_") || spec.name.starts_with("arg");
        let role = match named {
            Some(role) => Some(*role),
            None if unnamed || inputs.len() == 1 => free.next(),
            None => None,
        };
        let Some(role) = role else {
            return Err(EmbeddingError::Signature(format!(
                "its input `{}` is not supported for text; its inputs are {}",
                spec.name,
                described(inputs)
            )));
        };
        if roles.contains(&role) {
            return Err(EmbeddingError::Signature(format!(
                "two of its inputs have the same role; its inputs are {}",
                described(inputs)
            )));
        }
        roles.push(role);
    }
    Ok(roles)
}

/// Returns the sizes of the id input: rows and tokens, or tokens alone.
fn sizes(ids: &TensorSpec) -> Result<(Option<DimSize>, DimSize), EmbeddingError> {
    let any = || DimSize::Open {
        most: None,
        allowed: None,
    };
    match ids.dims.as_deref() {
        None => Ok((Some(any()), any())),
        Some([length]) => Ok((None, DimSize::of(length))),
        Some([rows, length]) => Ok((Some(DimSize::of(rows)), DimSize::of(length))),
        Some(_) => Err(EmbeddingError::Signature(format!(
            "its input `{}` is {ids}: expected rows of token ids",
            ids.name
        ))),
    }
}

fn check_input(spec: &TensorSpec, role: EncoderRole, has_rows: bool) -> Result<(), EmbeddingError> {
    let rank = spec.dims.as_ref().map(Vec::len);
    let fits_rank = rank.is_none_or(|rank| rank == 1 + usize::from(has_rows));
    let fits_dtype =
        role == EncoderRole::Mask || !(spec.dtype.is_float() || spec.dtype == DType::Bool);
    if fits_rank && fits_dtype && spec.fixed.is_none() {
        return Ok(());
    }
    Err(EmbeddingError::Signature(format!(
        "its input `{}` is {spec}: expected rows of integers, one per token",
        spec.name
    )))
}

/// Selects the output with vectors, or else the one with token states: by name, or else the first
/// of a fitting rank.
fn output(outputs: &[TensorSpec]) -> Result<usize, EmbeddingError> {
    let named = |names: &[&str], ranks: &[usize]| {
        names.iter().find_map(|name| {
            outputs.iter().position(|spec| {
                let rank = spec.dims.as_ref().map(Vec::len);
                spec.name == *name && rank.is_none_or(|rank| ranks.contains(&rank))
            })
        })
    };
    // A `pooler_output` is trained for another task than embedding, so token states are better.
    let plain = outputs.iter().position(|spec| {
        let rank = spec.dims.as_ref().map(Vec::len);
        spec.name != "pooler_output" && rank.is_none_or(|rank| (1..=3).contains(&rank))
    });
    let place = named(&VECTOR_OUTPUTS, &[1, 2])
        .or_else(|| named(&STATE_OUTPUTS, &[2, 3]))
        .or(plain)
        .or((!outputs.is_empty()).then_some(0));
    let place = place.ok_or_else(|| EmbeddingError::Signature("it has no outputs".to_owned()))?;
    let spec = &outputs[place];
    let rank = spec.dims.as_ref().map(Vec::len);
    if spec.dtype.is_float() && rank.is_none_or(|rank| (1..=3).contains(&rank)) {
        return Ok(place);
    }
    Err(EmbeddingError::Signature(format!(
        "its output `{}` is {spec}: expected vectors or token states",
        spec.name
    )))
}

fn described(inputs: &[TensorSpec]) -> String {
    const MOST: usize = 8;
    let shown = inputs.iter().take(MOST);
    let mut texts: Vec<String> = shown
        .map(|spec| format!("`{}` {spec}", spec.name))
        .collect();
    match inputs.len() {
        0 => texts.push("none".to_owned()),
        count if count > MOST => texts.push(format!("{} more", count - MOST)),
        _ => {}
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, dtype: DType, dims: Vec<Dim>) -> TensorSpec {
        TensorSpec {
            name: name.to_owned(),
            dtype,
            dims: Some(dims),
            fixed: None,
            pixels: None,
        }
    }

    fn open() -> Dim {
        Dim::ANY
    }

    fn signature(inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> Signature {
        Signature {
            method: "forward".to_owned(),
            inputs,
            outputs,
        }
    }

    fn rows(name: &str) -> TensorSpec {
        spec(name, DType::Int64, vec![open(), open()])
    }

    fn float(name: &str, rank: usize) -> TensorSpec {
        spec(name, DType::Float32, (0..rank).map(|_| open()).collect())
    }

    fn roles_of(names: &[&str]) -> Result<Vec<EncoderRole>, EmbeddingError> {
        let inputs = names.iter().map(|name| rows(name)).collect();
        let encoder = Encoder::of(&signature(inputs, vec![float("output", 3)]))?;
        Ok(encoder.inputs.iter().map(|input| input.role).collect())
    }

    #[test]
    fn inputs_are_known_by_name_then_by_place() {
        use EncoderRole::{Ids, Mask, Positions, Types};
        let all = [
            "attention_mask",
            "token_type_ids",
            "position_ids",
            "input_ids",
        ];
        assert_eq!(roles_of(&all), Ok(vec![Mask, Types, Positions, Ids]));
        assert_eq!(roles_of(&["tokens"]), Ok(vec![Ids]));
        assert_eq!(roles_of(&["whatever"]), Ok(vec![Ids]));
        assert_eq!(
            roles_of(&["input_0", "input_1", "input_2"]),
            Ok(vec![Ids, Mask, Types])
        );
        assert_eq!(
            roles_of(&["input_0", "attention_mask"]),
            Ok(vec![Ids, Mask])
        );
        for strange in [&["input_ids", "pixel_values"][..], &["tokens", "ids"], &[]] {
            let error = roles_of(strange).expect_err("nothing is guessed");
            assert!(matches!(error, EmbeddingError::Signature(_)), "{error}");
        }
    }

    #[test]
    fn the_best_output_is_taken() {
        let place = |outputs: Vec<TensorSpec>| {
            Encoder::of(&signature(vec![rows("tokens")], outputs)).map(|encoder| encoder.output)
        };
        let states = || float("last_hidden_state", 3);
        assert_eq!(place(vec![float("pooler_output", 2), states()]), Ok(1));
        assert_eq!(place(vec![states(), float("sentence_embedding", 2)]), Ok(1));
        assert_eq!(place(vec![float("pooler_output", 2)]), Ok(0));
        assert_eq!(place(vec![float("x", 4), float("y", 2)]), Ok(1));
        assert!(place(vec![rows("logits")]).is_err());
        assert!(place(vec![]).is_err());
    }

    #[test]
    fn sizes_are_rounded_up_to_what_is_allowed() {
        let open = |allowed| DimSize::Open {
            most: Some(32),
            allowed,
        };
        assert_eq!(DimSize::Fixed(16).from(3), Some(16));
        assert_eq!(DimSize::Fixed(16).from(17), None);
        assert_eq!(open(None).from(7), Some(7));
        assert_eq!(open(None).from(33), None);
        let range = || Allowed::range(4, 32, 4, 32);
        assert_eq!(open(range()).from(1), Some(4));
        assert_eq!(open(range()).from(5), Some(8));
        assert_eq!(open(range()).from(30), Some(32));
        let choices = open(Allowed::choices(&[8, 20], 32));
        assert_eq!(choices.from(9), Some(20));
        assert_eq!(choices.from(21), None);
        assert_eq!(choices.largest(), Some(20));
    }
}
