//! Pictures of texts: an encoder, a denoiser for each step, and a painter.

use super::{AnsweringModel, GivenMedia, misfit, tokenizer};
use crate::cli::exit::Failure;
use crate::cli::progress;
use pkgtool_engine::RunStart;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::answer::TypedAnswer;
use pkgtool_media::diffusion::{DiffusionModel, DiffusionRun};

/// Starts the picture of a text.
fn prepared(
    model: &mut AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<DiffusionRun, Failure> {
    let GivenMedia::Text(text) = given else {
        return Err(Failure::Other("the model takes a text".to_owned()));
    };
    let AnsweringModel {
        choice,
        tokenizer: known,
        ..
    } = model;
    let (selection, recipe) = (&choice.selection, &choice.recipe.fitted);
    let file = selection.model.display();
    let other = |reason: String| Failure::Other(format!("{file}: {reason}"));
    let models = choice.diffusion.as_ref().ok_or_else(|| {
        let expected = choice.recipe.expected_diffusion();
        other(format!(
            "no methods make a picture of what this one encodes: expected {expected}"
        ))
    })?;
    let tokenizer = match known {
        Some(tokenizer) => tokenizer,
        None => known.insert(tokenizer(selection)?),
    };
    let encode = |text: &str, most: usize| {
        let ids = tokenizer.encode_truncated(text, most);
        ids.map_err(|error| error.to_string())
    };
    let tokens = recipe.prompts(text, tokenizer.padding().id, encode);
    let [negative, text] = tokens.map_err(other)?;
    let run = recipe.diffusion_run(models.shape.clone(), [&negative, &text]);
    run.map_err(other)
}

/// Returns the encoder's inputs.
pub(super) fn first_inputs(
    model: &mut AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<Vec<Tensor>, Failure> {
    let next = prepared(model, given)?.next_run();
    let next = next.map_err(|reason| model.misfit(&reason))?;
    Ok(next.map(|(_, inputs)| inputs).unwrap_or_default())
}

/// Makes the picture.
pub(super) fn answer(
    model: &mut AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<TypedAnswer, Failure> {
    let mut run = prepared(model, given)?;
    let target = model.target;
    let AnsweringModel {
        choice,
        first,
        second,
        third,
        ..
    } = model;
    let (selection, recipe) = (&choice.selection, &choice.recipe.fitted);
    let unfit = |reason: String| misfit(recipe, &reason);
    let models = choice.diffusion.as_ref();
    let models = models.expect("the picture has started, so they are there");
    let [_, steps] = run.progress();
    let bar = progress::bar(steps as u64, "{bar:30} {pos}/{len} steps, {eta} left");
    while let Some((next, inputs)) = run.next_run().map_err(unfit)? {
        let (timed, selection) = match next {
            DiffusionModel::Encoder => (&mut *first, selection),
            DiffusionModel::Denoiser => (&mut *second, &models.denoiser),
            DiffusionModel::Painter => (&mut *third, &models.painter),
        };
        let outputs = timed.run(target, selection, RunStart::Anew, &inputs)?;
        let add = || run.add(&outputs);
        target
            .args
            .within("making the picture", add)
            .map_err(unfit)?;
        bar.set_position(run.progress()[0] as u64);
    }
    bar.finish_and_clear();
    Ok(TypedAnswer::Picture(run.answer().map_err(unfit)?))
}
