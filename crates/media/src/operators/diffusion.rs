//! Operators of pictures of texts. The picture comes from runs of three models ([`crate::diffusion`]).

#![allow(clippy::cast_precision_loss, reason = "ids are few")]

use super::{Arguments, Array, Data, DataKind, Operator, Parameter, ParameterKind, StepContext};
use crate::answer::TypedAnswerKind;
use crate::diffusion::{BETAS, PREDICTIONS, RANGES, SAMPLERS, SPACINGS};

/// Maximum number of steps of a training.
const MAX_STEPS: u64 = 100_000;

const fn parameter(name: &'static str, kind: ParameterKind, default: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        default: Some(default),
    }
}

pub(super) const TABLE: &[Operator] = &[
    Operator {
        name: "prompt",
        from: &[DataKind::Text],
        to: DataKind::Values,
        parameters: &[
            // Tokens of a model that takes any number.
            parameter("length", ParameterKind::Whole(2, 4096), "77"),
            // The symbol of their number.
            parameter("fill", ParameterKind::Word, "\"T\""),
        ],
        run: prompt,
    },
    Operator {
        name: "diffusion",
        from: &[DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Picture),
        parameters: &[
            parameter("guidance", ParameterKind::Number(0.0, 100.0), "7.5"),
            parameter("steps", ParameterKind::Whole(1, 1000), "25"),
            parameter("seed", ParameterKind::Whole(0, u32::MAX as u64), "0"),
            parameter("negative", ParameterKind::Text, "\"\""),
            parameter("width", ParameterKind::Whole(0, 4096), "0"),
            parameter("height", ParameterKind::Whole(0, 4096), "0"),
            parameter("sampler", ParameterKind::Choice(SAMPLERS), "\"pndm\""),
            parameter(
                "prediction",
                ParameterKind::Choice(PREDICTIONS),
                "\"epsilon\"",
            ),
            parameter("betas", ParameterKind::Choice(BETAS), "\"scaled_linear\""),
            parameter("beta_start", ParameterKind::Number(1e-9, 0.999), "0.00085"),
            parameter("beta_end", ParameterKind::Number(1e-9, 0.999), "0.012"),
            parameter("train_steps", ParameterKind::Whole(1, MAX_STEPS), "1000"),
            parameter("offset", ParameterKind::Whole(0, 1000), "1"),
            parameter("spacing", ParameterKind::Choice(SPACINGS), "\"auto\""),
            parameter("final_one", ParameterKind::Flag, "false"),
            parameter("clip", ParameterKind::Flag, "false"),
            parameter("scaling", ParameterKind::Number(1e-6, 1e6), "0.18215"),
            parameter("range", ParameterKind::Choice(RANGES), "\"auto\""),
        ],
        run: diffusion,
    },
];

/// Returns the number of tokens of a text.
pub(crate) fn length(arguments: &Arguments, context: &StepContext<'_>) -> usize {
    let fixed = context.fixed(arguments.word("fill"));
    fixed.unwrap_or_else(|| arguments.whole("length"))
}

fn prompt(
    _: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let tokens = context.prompt.ok_or("the tokens of the text are missing")?;
    let (count, length) = (tokens.ids.len(), length(arguments, context));
    if count > length {
        return Err(format!("{count} tokens: the model takes {length}"));
    }
    context.tokens = count;
    let mut ids: Vec<f32> = tokens.ids.iter().map(|id| *id as f32).collect();
    ids.resize(length, tokens.padding as f32);
    Ok(Data::Values(Array {
        shape: vec![length],
        values: ids,
    }))
}

fn diffusion(_: &[&Data], _: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    Err("the picture comes from the denoiser and the painter".to_owned())
}
