//! The decoder that a recipe needs beside its encoder: which methods it fits, and its inputs.
//!
//! A decoder may have more tensors than the recipe names: keys and values of earlier tokens (`past_key_values.…`), which
//! it gives as `present.…` for the next run, and a flag that says whether they are there.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "positions are few"
)]

use pkgtool_engine::tensor::{DType, Signature, Tensor, TensorSpec};
use pkgtool_engine::{CarriedTensor, Carrying};
use pkgtool_model::Dim;

use super::Match;
use crate::operators::Symbols;

/// Name of the decoder's input for tokens.
const TOKENS: &str = "tokens";

/// Name of the decoder's input for the number of tokens before them; a decoder that has it keeps the tokens.
const POSITION: &str = "position";

/// Names of the inputs for what earlier runs computed, and of the outputs that are these inputs of the next run.
const PAST: &str = "past_key_values.";
const PRESENT: &str = "present.";

/// Mark in the names of what comes from the encoder: it has no positions.
const OF_ENCODER: &str = ".encoder.";

/// Name of the input that says whether the others come from an earlier run.
const USES_PAST: &str = "use_cache_branch";

/// Axis of the positions in keys and values: batch, heads, positions, numbers.
const POSITIONS: usize = 2;

/// Name of the decoder's output.
const LOGITS: &str = "logits";

/// A decoder for a recipe's encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedDecoder {
    inputs: Vec<TokenInput>,
    /// True if it keeps the tokens that it took.
    pub keeps_tokens: bool,
    /// What stays in its session between runs.
    pub carrying: Carrying,
    /// Number of tokens that have a logit; `None` if the model leaves it open.
    pub vocabulary: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
struct TokenInput {
    role: DecoderInputRole,
    dtype: DType,
    /// Number of dimensions.
    rank: usize,
    /// Number of tokens that it always takes.
    fixed: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderInputRole {
    Tokens,
    Position,
    /// Whether tokens came before.
    UsesPast,
    /// An output of the encoder, by its place.
    State(usize),
}

impl Match {
    /// Checks the tensors of a decoder for what another model encodes: tokens and states in, logits out.
    pub(super) fn check_decoder(&self, encode: &Self) -> Result<(), String> {
        let is_known = |name: &str| {
            let mut states = encode.outputs.iter();
            [TOKENS, POSITION].contains(&name) || states.any(|state| state.name == name)
        };
        let mut inputs = self.inputs.iter();
        if let Some(unknown) = inputs.find(|input| !is_known(&input.name)) {
            return Err(format!(
                "`decode`: unknown input `{}`: expected `{TOKENS}`, `{POSITION}`, or an output of `match`",
                unknown.name
            ));
        }
        let takes_tokens = self.inputs.iter().any(|input| input.name == TOKENS);
        let names: Vec<&str> = self.outputs.iter().map(|it| it.name.as_str()).collect();
        if !takes_tokens || names != [LOGITS] {
            return Err(format!(
                "`decode`: expected an input `{TOKENS}` and one output `{LOGITS}`"
            ));
        }
        Ok(())
    }

    /// Returns the decoder that a method of a component is. `states` are the names of the encoder's outputs, `symbols`
    /// its sizes.
    pub(super) fn decoder(
        &self,
        (component, signature): (Option<&str>, &Signature),
        states: &[String],
        mut symbols: Symbols,
    ) -> Option<FittedDecoder> {
        let carrying = carried(signature)?;
        let visible = carrying.visible(signature);
        let mut named = visible.clone();
        named.inputs.retain(|spec| spec.name != USES_PAST);
        if !self.fits(component, &named, &mut symbols) {
            return None;
        }
        let mut patterns = self.inputs.iter();
        let inputs = visible.inputs.iter().map(|spec| {
            let dims = spec.dims.as_deref().unwrap_or_default();
            if spec.name == USES_PAST {
                return Some(TokenInput {
                    role: DecoderInputRole::UsesPast,
                    dtype: spec.dtype,
                    rank: dims.len(),
                    fixed: None,
                });
            }
            let role = match patterns.next()?.name.as_str() {
                TOKENS => DecoderInputRole::Tokens,
                POSITION => DecoderInputRole::Position,
                name => {
                    let place = states.iter().position(|state| state == name);
                    DecoderInputRole::State(place?)
                }
            };
            Some(TokenInput {
                role,
                dtype: spec.dtype,
                rank: dims.len(),
                fixed: dims.last().and_then(fixed_size),
            })
        });
        let inputs: Vec<TokenInput> = inputs.collect::<Option<_>>()?;
        let logits = visible.outputs.first()?.dims.as_deref()?.last()?;
        let takes_position = inputs
            .iter()
            .any(|it| it.role == DecoderInputRole::Position);
        Some(FittedDecoder {
            keeps_tokens: takes_position || !carrying.is_empty(),
            carrying,
            inputs,
            vocabulary: fixed_size(logits),
        })
    }
}

/// Returns what a decoder gives for its next run; `None` if an input has no such output.
fn carried(signature: &Signature) -> Option<Carrying> {
    let mut carrying = Carrying::default();
    for (input, spec) in signature.inputs.iter().enumerate() {
        let Some(rest) = spec.name.strip_prefix(PAST) else {
            continue;
        };
        let mut outputs = signature.outputs.iter();
        let is_next = |it: &TensorSpec| it.name.strip_prefix(PRESENT) == Some(rest);
        let axis = Some(POSITIONS).filter(|_| !spec.name.contains(OF_ENCODER));
        let sizes = spec.dims.as_deref()?.iter().enumerate();
        let begin = sizes.map(|(place, dim)| match dim {
            Dim::Fixed(size) => *size,
            _ => u64::from(place == 0),
        });
        carrying.states.push(CarriedTensor {
            input,
            output: outputs.position(is_next)?,
            axis,
            begin: begin.collect(),
        });
    }
    Some(carrying)
}

fn fixed_size(dim: &Dim) -> Option<usize> {
    match dim {
        Dim::Fixed(size) => usize::try_from(*size).ok(),
        _ => None,
    }
}

impl FittedDecoder {
    /// Returns the inputs for tokens that follow `position` others. `states` are the encoder's outputs.
    pub fn inputs(
        &self,
        tokens: &[u32],
        position: usize,
        states: &[Tensor],
    ) -> Result<Vec<Tensor>, String> {
        let inputs = self.inputs.iter().map(|input| {
            let values: Vec<f64> = match input.role {
                DecoderInputRole::State(place) => {
                    let state = states.get(place);
                    return state
                        .cloned()
                        .ok_or_else(|| "the encoder gave no states".to_owned());
                }
                DecoderInputRole::Position => vec![position as f64],
                DecoderInputRole::UsesPast => vec![f64::from(u8::from(position > 0))],
                DecoderInputRole::Tokens => {
                    let fixed = input.fixed.unwrap_or(tokens.len());
                    if tokens.len() > fixed {
                        return Err(format!(
                            "the decoder takes {fixed} tokens: the text is longer"
                        ));
                    }
                    // What follows the tokens does not change their logits.
                    let padding = std::iter::repeat_n(0, fixed - tokens.len());
                    tokens
                        .iter()
                        .copied()
                        .chain(padding)
                        .map(f64::from)
                        .collect()
                }
            };
            let mut shape = vec![1; input.rank.saturating_sub(1)];
            if input.rank > 0 {
                shape.push(values.len() as u64);
            }
            Tensor::from_f64(input.dtype, shape, values).map_err(|error| error.to_string())
        });
        inputs.collect()
    }
}
