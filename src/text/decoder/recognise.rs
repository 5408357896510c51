//! Which decoder a model is, from its signature, its constants and the files beside it.
//!
//! Invariant: what is recognised can be fed: every input has something to be given, and the number of tokens,
//! the most that it holds and what of it stays with its session are known.

use std::path::Path;

use super::cached;
use super::constants::Constants;
use super::error::{DecodeError, NotADecoder};
use super::heads;
use super::plain;
use super::program;
use super::roles;
use super::shape::{Argument, Fed, Feeding, Logits, Role, Shape};
use super::siblings::Siblings;
use crate::engine::{Along, Carried, Carrying};
use crate::model::ModelInfo;
use crate::tensor::{Signature, Tensor, TensorSpec};

/// Most tokens that a model holds where nothing says how many.
const CONTEXT: usize = 4096;
/// Most tokens, and most positions, that are believed: no model has more.
const MOST: usize = 1 << 24;
/// Tokens of a prompt that are fed at once, at most.
const CHUNK: usize = 512;

/// A model that is a decoder, and how it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoderModel {
    /// What of its inputs and outputs stays with a session: it is to be loaded with this.
    pub carrying: Carrying,
    /// How many tokens it has a logit for.
    pub vocabulary: usize,
    /// Most tokens it can hold.
    pub context: usize,
    /// Whether the model's file shows that it holds so many; otherwise they are assumed, or another file says so.
    pub(super) is_context_sure: bool,
    /// The token that begins a text, where the model or a file beside it says so.
    pub first: Option<u32>,
    /// The tokens that end a text, as the model and the files beside it say; each once.
    pub ends: Vec<u32>,
    pub(super) shape: Shape,
}

/// What is known before sizes and bounds are put together.
struct Recognised {
    arguments: Vec<Argument>,
    feeding: Feeding,
    states: Vec<Carried>,
    /// The place of the tokens.
    tokens: usize,
    /// The place of the mask.
    mask: Option<usize>,
    /// Most tokens, as the inputs tell.
    most: Option<usize>,
}

impl Recognised {
    /// Whether the signature leaves room for several rows: everything that is of rows has an open
    /// dimension for them.
    fn rows_are_open(&self, signature: &Signature) -> bool {
        let carried = |place: &usize| self.states.iter().any(|state| state.input == *place);
        let places = (0..signature.inputs.len()).filter(|place| !carried(place));
        let mut given = places.zip(&self.arguments);
        let states = self.states.iter().map(|state| state.input);
        let mut states = states.map(|place| &signature.inputs[place]);
        self.mask.is_some()
            && given.all(|(place, argument)| match argument.role {
                Role::Tokens | Role::Mask | Role::Positions => {
                    has_open_rows(&signature.inputs[place])
                }
                Role::Wanted { .. } => true,
                Role::PositionList | Role::Start | Role::UsesCache => false,
            })
            && states.all(has_open_rows)
            && signature.outputs.iter().all(has_open_rows)
    }
}

/// Whether its first dimension may have any size.
fn has_open_rows(spec: &TensorSpec) -> bool {
    let first = spec.dims.as_deref().and_then(<[_]>::first);
    first.is_some_and(|first| matches!(roles::Count::of(first), roles::Count::Open(None)))
}

impl DecoderModel {
    /// Recognises a method of the model at `model`. `most` is the most tokens it is to hold, whatever it
    /// could.
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

    /// Inputs of a step of one token, to run the model for the first time.
    pub fn first_inputs(&self) -> Vec<Tensor> {
        let fed = Fed {
            held: 0,
            tokens: &[0],
        };
        self.inputs(&[fed]).unwrap_or_default()
    }

    /// The inputs of a step that feeds each of these rows behind what it holds; several only where it
    /// [has lanes](Self::has_lanes), of one token each.
    pub fn inputs(&self, rows: &[Fed<'_>]) -> Result<Vec<Tensor>, DecodeError> {
        super::arguments::of(&self.shape, rows)
    }

    /// Whether a session keeps several texts apart, each in its lane. Whether rows may share a run is
    /// shown by a [trial](Self::try_rows).
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
    let siblings = Siblings::of(model)?;
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
    if recognised.feeding == Feeding::All {
        let tokens = &signature.inputs[recognised.tokens];
        (recognised.feeding, recognised.most) = plain::feeding(tokens, logits)?;
    }
    let vocabulary = vocabulary
        .or_else(|| constants.size("get_vocab_size"))
        .or(siblings.vocabulary)
        .ok_or("how many tokens it has is not known: its logits have an open number, and neither a method \
             get_vocab_size nor a genai_config.json beside it tells")?;
    if vocabulary > MOST {
        return Err(format!(
            "its logits are for {vocabulary} tokens, and no vocabulary has more than {MOST}"
        ));
    }
    let (context, is_context_sure) = context(model, info, &recognised, &siblings, &constants)?;
    let context = most.unwrap_or(MOST).min(context).clamp(1, MOST);
    if let Feeding::New { most } = &mut recognised.feeding {
        *most = (*most).clamp(1, CHUNK.min(context));
    }
    let is_padded = matches!(recognised.feeding, Feeding::Padded { .. });
    let last = (logits == Logits::All && !is_padded).then_some(Along { place, axis: 1 });
    let rows_are_open = recognised.rows_are_open(signature);
    let carrying = Carrying {
        added: (!recognised.states.is_empty()).then_some(Along {
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
        && matches!(recognised.feeding, Feeding::New { .. })
        && !carrying.states.is_empty()
        && carrying.can_be_cut();
    let taken = carrying.taken(signature);
    let shape = Shape {
        lanes: has_lanes,
        arguments: recognised.arguments,
        place: taken.iter().position(|taken| *taken == place).unwrap_or(0),
        logits,
        // What a program keeps is its own: a trial has to show that it goes by positions.
        cuts: carrying.can_be_cut() && !carrying.states.is_empty(),
        feeding: recognised.feeding,
    };
    Ok(DecoderModel {
        carrying,
        vocabulary,
        context,
        is_context_sure,
        first: constants.token("get_bos_id").or(siblings.first),
        ends,
        shape,
    })
}

fn inputs(
    model: &Path,
    signature: &Signature,
    siblings: &Siblings,
    constants: &Constants<'_>,
) -> Result<Recognised, String> {
    let found = if constants.0.format == "executorch" {
        program::arguments(signature, constants)?
    } else {
        None
    };
    if let Some((arguments, feeding)) = found {
        return Ok(Recognised {
            arguments,
            feeding,
            states: Vec::new(),
            tokens: 0,
            mask: None,
            most: None,
        });
    }
    let states = cached::states(model, signature, siblings)?;
    let carried = |place: usize| states.iter().any(|state| state.input == place);
    let given: Vec<(usize, &TensorSpec)> = signature
        .inputs
        .iter()
        .enumerate()
        .filter(|(place, _)| !carried(*place))
        .collect();
    let tokens = roles::tokens(&given)?;
    let arguments: Result<Vec<Argument>, String> = given
        .iter()
        .map(|(place, spec)| {
            if *place == tokens {
                return Ok(Argument {
                    role: Role::Tokens,
                    dtype: spec.dtype,
                });
            }
            roles::by_name(spec)
        })
        .collect();
    let arguments = arguments?;
    let merged = arguments.iter().any(|it| it.role == Role::UsesCache);
    let feeding = if states.is_empty() {
        Feeding::All
    } else if merged {
        // The branch for what is carried was often traced with one token.
        Feeding::FirstThenOne
    } else {
        Feeding::New {
            most: step(&signature.inputs[tokens])?,
        }
    };
    Ok(Recognised {
        mask: (given.iter().zip(&arguments))
            .find_map(|((place, _), argument)| (argument.role == Role::Mask).then_some(*place)),
        arguments,
        feeding,
        states,
        tokens,
        most: None,
    })
}

/// The most tokens that a step of a model with pasts takes.
fn step(tokens: &TensorSpec) -> Result<usize, String> {
    let length = tokens.dims.as_deref().and_then(|dims| dims.get(1));
    match length.map(roles::Count::of) {
        Some(roles::Count::Fixed(1)) => Ok(1),
        Some(roles::Count::Fixed(fixed)) => Err(format!(
            "its input `{}` is {tokens}: every step takes {fixed} tokens, and the steps after a prompt have one",
            tokens.name
        )),
        Some(roles::Count::Open(Some(bound))) => Ok(bound),
        _ => Ok(usize::MAX),
    }
}

/// Most tokens that it can hold, and whether its file shows that it does.
fn context(
    model: &Path,
    info: &ModelInfo,
    recognised: &Recognised,
    siblings: &Siblings,
    constants: &Constants<'_>,
) -> Result<(usize, bool), String> {
    let keeps = recognised.most.is_none();
    let told = || {
        let program = ["get_max_context_len", "get_max_seq_len"];
        program.iter().find_map(|method| constants.size(method))
    };
    if !keeps {
        // Without a cache every token is in every step.
        let bound = recognised.most.unwrap_or(CONTEXT);
        return Ok((told().map_or(bound, |told| told.min(bound)), true));
    }
    if info.format == "executorch" && recognised.states.is_empty() {
        if recognised.feeding == Feeding::All {
            return Ok((told().unwrap_or(CONTEXT), false));
        }
        let told = told().ok_or_else(|| {
            "how many tokens it holds is not known: it has neither a method get_max_context_len nor \
             get_max_seq_len"
                .to_owned()
        });
        // Its cache may be smaller.
        return Ok((told?, false));
    }
    let table = heads::positions(model);
    let told = told().or(siblings.context);
    Ok(match (told, table) {
        (Some(told), Some(table)) => (told.min(table), true),
        (told, table) => (told.or(table).unwrap_or(CONTEXT), table.is_some()),
    })
}
