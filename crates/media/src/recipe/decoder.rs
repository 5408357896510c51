//! The decoder that a recipe needs beside its encoder: which methods it fits, and its inputs.

use pkgtool_engine::tensor::{DType, Signature, Tensor};

use super::{Match, ModelRecipe};

/// Name of the decoder's input for tokens.
pub(super) const TOKENS: &str = "tokens";

/// Name of the decoder's input for the number of tokens before them; a decoder that has it keeps the tokens.
pub(super) const POSITION: &str = "position";

/// Name of the decoder's output.
pub(super) const LOGITS: &str = "logits";

/// A decoder for a recipe's encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedDecoder {
    inputs: Vec<DecoderInput>,
    /// True if it keeps the tokens that it took.
    pub keeps_tokens: bool,
    /// Number of tokens that have a logit; `None` if the model leaves it open.
    pub vocabulary: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
struct DecoderInput {
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
    /// An output of the encoder, by its place.
    State(usize),
}

impl ModelRecipe {
    /// Returns whether the model needs a decoder.
    pub fn needs_decoder(&self) -> bool {
        self.recipe().decode.is_some()
    }

    /// Returns the decoder for its outputs, if a method of this component is one.
    pub fn decoder(&self, component: Option<&str>, signature: &Signature) -> Option<FittedDecoder> {
        let recipe = self.recipe();
        let matches = recipe.decode.as_ref()?;
        let mut symbols = self.fitted.preparation.symbols().clone();
        if !matches.fits(component, signature, &mut symbols) {
            return None;
        }
        let states = &self.fitted.outputs;
        let inputs = matches
            .inputs
            .iter()
            .zip(&signature.inputs)
            .map(|(pattern, spec)| {
                let role = match pattern.name.as_str() {
                    TOKENS => DecoderInputRole::Tokens,
                    POSITION => DecoderInputRole::Position,
                    name => DecoderInputRole::State(states.iter().position(|state| state == name)?),
                };
                let dims = spec.dims.as_deref().unwrap_or_default();
                let fixed = match dims.last() {
                    Some(pkgtool_model::Dim::Fixed(size)) => usize::try_from(*size).ok(),
                    _ => None,
                };
                Some(DecoderInput {
                    role,
                    dtype: spec.dtype,
                    rank: dims.len(),
                    fixed,
                })
            });
        let inputs: Vec<DecoderInput> = inputs.collect::<Option<_>>()?;
        let logits = signature.outputs.first()?.dims.as_deref()?.last()?;
        Some(FittedDecoder {
            keeps_tokens: inputs
                .iter()
                .any(|it| it.role == DecoderInputRole::Position),
            inputs,
            vocabulary: match logits {
                pkgtool_model::Dim::Fixed(size) => usize::try_from(*size).ok(),
                _ => None,
            },
        })
    }

    /// Returns the tensors that a decoder has, for errors.
    pub fn expected_decoder(&self) -> String {
        self.recipe()
            .decode
            .as_ref()
            .map_or_else(String::new, Match::expected)
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
