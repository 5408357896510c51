//! Recognises a text decoder from a model's signature, its constants and the files beside it.
//!
//! Invariant: every input of a recognised decoder can be filled. Its vocabulary size, its context
//! length and the tensors that stay with its session are known.

use std::path::Path;

use super::cached;
use super::constants::Constants;
use super::error::{DecodeError, NotADecoder};
use super::heads;
use super::plain;
use super::program;
use super::roles;
use super::shape::{DecoderInput, DecoderRole, DecoderShape, FeedingMode, LogitsRange, StepTokens};
use super::siblings::DecoderSettings;
use pkgtool_engine::tensor::{DType, Signature, Tensor, TensorSpec};
use pkgtool_engine::{CarriedTensor, Carrying, TensorAxis};
use pkgtool_model::ModelInfo;

/// Context length in tokens if nothing states one.
const DEFAULT_CONTEXT: usize = 4096;
/// Maximum plausible number of tokens and positions; no model has more.
const MAX_TOKENS: usize = 1 << 24;
/// Maximum number of prompt tokens that one step feeds.
const MAX_STEP_TOKENS: usize = 512;

/// A recognised decoder, with the information needed to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoderModel {
    /// The inputs and outputs that a session carries between steps. The model must be loaded with
    /// this.
    pub carrying: Carrying,
    /// Number of tokens that have a logit.
    pub vocabulary: usize,
    /// The context length: the maximum number of held tokens.
    pub context: usize,
    /// True if the model's own file proves `context`. Otherwise it is a default, or comes from
    /// another file.
    pub(super) is_context_sure: bool,
    /// The token that begins a text, if the model or a file beside it states one.
    pub first: Option<u32>,
    /// The tokens that end a text by the model and the files beside it, without duplicates.
    pub ends: Vec<u32>,
    /// The token that stands for a picture, if the model states one.
    pub picture: Option<u32>,
    pub(super) shape: DecoderShape,
}

/// Intermediate result, before sizes and limits are combined.
struct RecognisedInputs {
    arguments: Vec<DecoderInput>,
    feeding: FeedingMode,
    states: Vec<CarriedTensor>,
    /// Index of the input for tokens or embeddings.
    tokens: usize,
    /// Index of the mask input.
    mask: Option<usize>,
    /// Maximum number of tokens by the inputs' sizes.
    most: Option<usize>,
}

impl RecognisedInputs {
    /// Returns whether the signature allows several rows: every tensor with a row dimension has an
    /// open one.
    fn rows_are_open(&self, signature: &Signature) -> bool {
        let carried = |place: &usize| self.states.iter().any(|state| state.input == *place);
        let places = (0..signature.inputs.len()).filter(|place| !carried(place));
        let mut given = places.zip(&self.arguments);
        let states = self.states.iter().map(|state| state.input);
        let mut states = states.map(|place| &signature.inputs[place]);
        self.mask.is_some()
            && given.all(|(place, argument)| match argument.role {
                DecoderRole::Tokens | DecoderRole::Mask | DecoderRole::Positions => {
                    has_open_rows(&signature.inputs[place])
                }
                DecoderRole::LogitsToKeep { .. } => true,
                DecoderRole::Embeddings { .. }
                | DecoderRole::PositionList
                | DecoderRole::StartPosition
                | DecoderRole::UsesCache => false,
            })
            && states.all(has_open_rows)
            && signature.outputs.iter().all(has_open_rows)
    }
}

/// Returns whether the first dimension accepts any size.
fn has_open_rows(spec: &TensorSpec) -> bool {
    let first = spec.dims.as_deref().and_then(<[_]>::first);
    first.is_some_and(|first| matches!(roles::TokenCount::of(first), roles::TokenCount::Open(None)))
}

impl DecoderModel {
    /// Recognises a method of the model at `model`. `most` limits the context length.
    pub fn recognise(
        model: &Path,
        info: &ModelInfo,
        signature: &Signature,
        most: Option<usize>,
    ) -> Result<Self, NotADecoder> {
        recognise(model, info, signature, most).map_err(|reason| NotADecoder {
            method: signature.method.clone(),
            reason,
        })
    }

    /// Returns the inputs of a one-token step, for a first run of the model.
    pub fn first_inputs(&self) -> Vec<Tensor> {
        let width = self.embedding_width().unwrap_or(0) as u64;
        let embeddings = Tensor::zeros(DType::Float32, vec![1, 1, width]).ok();
        let fed = StepTokens {
            embeddings: embeddings.as_ref(),
            ..StepTokens::new(0, &[0])
        };
        self.inputs(&[fed]).unwrap_or_default()
    }

    /// Builds the inputs of a step that feeds each row after the tokens it holds. Several rows
    /// require [lanes](Self::has_lanes) and one token each.
    pub fn inputs(&self, rows: &[StepTokens<'_>]) -> Result<Vec<Tensor>, DecodeError> {
        super::arguments::of(&self.shape, rows)
    }

    /// Returns the width of the embeddings that it takes in place of tokens; `None` if it takes tokens.
    pub fn embedding_width(&self) -> Option<usize> {
        let mut arguments = self.shape.arguments.iter();
        arguments.find_map(|argument| match argument.role {
            DecoderRole::Embeddings { width } => Some(width),
            _ => None,
        })
    }

    /// Returns whether a session can keep several texts apart, each in a lane of its own. A
    /// [trial](Self::try_rows) shows whether rows may share a run.
    pub fn has_lanes(&self) -> bool {
        self.shape.lanes
    }
}

fn recognise(
    model: &Path,
    info: &ModelInfo,
    signature: &Signature,
    most: Option<usize>,
) -> Result<DecoderModel, String> {
    let siblings = DecoderSettings::of(model)?;
    let constants = Constants(info);
    let mut recognised = inputs(model, signature, &siblings, &constants)?;
    let carried = |place: usize| recognised.states.iter().any(|state| state.output == place);
    let outputs: Vec<(usize, &TensorSpec)> = signature
        .outputs
        .iter()
        .enumerate()
        .filter(|(place, _)| !carried(*place))
        .collect();
    let (place, logits, vocabulary) = roles::logits(&outputs)?;
    if recognised.feeding == FeedingMode::AllTokens {
        let tokens = &signature.inputs[recognised.tokens];
        (recognised.feeding, recognised.most) = plain::feeding(tokens, logits)?;
    }
    let is_padded = matches!(recognised.feeding, FeedingMode::Padded { .. });
    let is_embedded = |it: &DecoderInput| matches!(it.role, DecoderRole::Embeddings { .. });
    if is_padded && recognised.arguments.iter().any(is_embedded) {
        return Err(
            "its embeddings have a fixed length; export it with a dynamic length".to_owned(),
        );
    }
    let vocabulary = vocabulary
        .or_else(|| constants.size("get_vocab_size"))
        .or(siblings.vocabulary)
        .ok_or(
            "its vocabulary size is unknown: its logits have a dynamic size, and neither a method \
             get_vocab_size nor a genai_config.json beside it states it",
        )?;
    if vocabulary > MAX_TOKENS {
        return Err(format!(
            "its logits have {vocabulary} tokens: expected at most {MAX_TOKENS}"
        ));
    }
    let (context, is_context_sure) = context(model, info, &recognised, &siblings, &constants)?;
    let context = most.unwrap_or(MAX_TOKENS).min(context).clamp(1, MAX_TOKENS);
    if let FeedingMode::NewTokens { most } = &mut recognised.feeding {
        *most = (*most).clamp(1, MAX_STEP_TOKENS.min(context));
    }
    let last = (logits == LogitsRange::All && !is_padded).then_some(TensorAxis { place, axis: 1 });
    let rows_are_open = recognised.rows_are_open(signature);
    let carrying = Carrying {
        added: (!recognised.states.is_empty()).then_some(TensorAxis {
            place: recognised.tokens,
            axis: 1,
        }),
        mask: recognised.mask,
        most: Some(context as u64),
        last: last.into_iter().collect(),
        states: recognised.states,
    };
    let mut ends: Vec<u32> = constants.ends();
    ends.extend(&siblings.ends);
    ends.sort_unstable();
    ends.dedup();
    let has_lanes = rows_are_open
        && matches!(recognised.feeding, FeedingMode::NewTokens { .. })
        && !carrying.states.is_empty()
        && carrying.can_be_cut();
    let taken = carrying.taken(signature);
    let shape = DecoderShape {
        lanes: has_lanes,
        arguments: recognised.arguments,
        place: taken.iter().position(|taken| *taken == place).unwrap_or(0),
        logits,
        // A program's cache is internal, so only a trial can show that it can be truncated by
        // position.
        can_truncate: carrying.can_be_cut() && !carrying.states.is_empty(),
        feeding: recognised.feeding,
    };
    Ok(DecoderModel {
        carrying,
        vocabulary,
        context,
        is_context_sure,
        first: constants.token("get_bos_id").or(siblings.first),
        ends,
        picture: constants.token("image_placeholder_id"),
        shape,
    })
}

fn inputs(
    model: &Path,
    signature: &Signature,
    siblings: &DecoderSettings,
    constants: &Constants<'_>,
) -> Result<RecognisedInputs, String> {
    let found = if constants.0.format == "executorch" {
        program::arguments(signature, constants)?
    } else {
        None
    };
    if let Some((arguments, feeding)) = found {
        return Ok(RecognisedInputs {
            arguments,
            feeding,
            states: Vec::new(),
            tokens: 0,
            mask: None,
            most: None,
        });
    }
    let states = cached::cache_states(model, signature, siblings)?;
    let carried = |place: usize| states.iter().any(|state| state.input == place);
    let given: Vec<(usize, &TensorSpec)> = signature
        .inputs
        .iter()
        .enumerate()
        .filter(|(place, _)| !carried(*place))
        .collect();
    let (tokens, role) = roles::fed(&given)?;
    let arguments: Result<Vec<DecoderInput>, String> = given
        .iter()
        .map(|(place, spec)| {
            if *place == tokens {
                return Ok(DecoderInput {
                    role,
                    dtype: spec.dtype,
                });
            }
            roles::input_by_name(spec)
        })
        .collect();
    let arguments = arguments?;
    let merged = arguments.iter().any(|it| it.role == DecoderRole::UsesCache);
    let feeding = if states.is_empty() {
        FeedingMode::AllTokens
    } else if merged {
        // The branch that uses the cache was often traced with one token only.
        FeedingMode::FirstThenOne
    } else {
        FeedingMode::NewTokens {
            most: step(&signature.inputs[tokens])?,
        }
    };
    Ok(RecognisedInputs {
        mask: (given.iter().zip(&arguments)).find_map(|((place, _), argument)| {
            (argument.role == DecoderRole::Mask).then_some(*place)
        }),
        arguments,
        feeding,
        states,
        tokens,
        most: None,
    })
}

/// Returns the maximum number of tokens in a step of a model with cache inputs.
fn step(tokens: &TensorSpec) -> Result<usize, String> {
    let length = tokens.dims.as_deref().and_then(|dims| dims.get(1));
    match length.map(roles::TokenCount::of) {
        Some(roles::TokenCount::Fixed(1)) => Ok(1),
        Some(roles::TokenCount::Fixed(fixed)) => Err(format!(
            "its input `{}` is {tokens}: every step takes {fixed} tokens, but the steps after a prompt have one",
            tokens.name
        )),
        Some(roles::TokenCount::Open(Some(bound))) => Ok(bound),
        _ => Ok(usize::MAX),
    }
}

/// Returns the context length, and whether the model's file proves it.
fn context(
    model: &Path,
    info: &ModelInfo,
    recognised: &RecognisedInputs,
    siblings: &DecoderSettings,
    constants: &Constants<'_>,
) -> Result<(usize, bool), String> {
    let keeps = recognised.most.is_none();
    let told = || {
        let program = ["get_max_context_len", "get_max_seq_len"];
        program.iter().find_map(|method| constants.size(method))
    };
    if !keeps {
        // Without a cache, every step holds all tokens.
        let bound = recognised.most.unwrap_or(DEFAULT_CONTEXT);
        return Ok((told().map_or(bound, |told| told.min(bound)), true));
    }
    if info.format == "executorch" && recognised.states.is_empty() {
        if recognised.feeding == FeedingMode::AllTokens {
            return Ok((told().unwrap_or(DEFAULT_CONTEXT), false));
        }
        let told = told().ok_or_else(|| {
            "its context length is unknown: it has neither a method get_max_context_len nor \
             get_max_seq_len"
                .to_owned()
        });
        // The program's cache may be smaller.
        return Ok((told?, false));
    }
    let table = heads::max_positions(model);
    let told = told().or(siblings.context);
    Ok(match (told, table) {
        (Some(told), Some(table)) => (told.min(table), true),
        (told, table) => (told.or(table).unwrap_or(DEFAULT_CONTEXT), table.is_some()),
    })
}
