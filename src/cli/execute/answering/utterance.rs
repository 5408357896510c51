//! Speech: the model runs once for each piece of a text.

use super::{AnsweringModel, GivenMedia, misfit};
use crate::cli::exit::Failure;
use pkgtool_engine::RunStart;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::answer::TypedAnswer;
use pkgtool_media::recipe::TextRun;
use pkgtool_media::voice;

/// Prepares the runs over a text.
fn prepared(model: &AnsweringModel<'_>, given: GivenMedia<'_>) -> Result<TextRun, Failure> {
    let prepare = || {
        let phonemes = match given {
            GivenMedia::Phonemes(phonemes) => phonemes.to_owned(),
            GivenMedia::Text(text) => voice::english(text)?,
            GivenMedia::File(path) => {
                return Err(format!(
                    "{}: a file, but the model takes a text",
                    path.display()
                ));
            }
        };
        let choice = &model.choice;
        TextRun::new(&choice.recipe, &choice.selection.model, &phonemes)
    };
    let prepared = model.target.args.within("preparing the text", prepare);
    prepared.map_err(Failure::Other)
}

/// Returns the inputs for the first piece.
pub(super) fn first_inputs(
    model: &AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<Vec<Tensor>, Failure> {
    let inputs = prepared(model, given)?.next_inputs(model.recipe());
    Ok(inputs.map_err(Failure::Other)?.unwrap_or_default())
}

/// Runs the model on all pieces, and answers.
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
        ..
    } = model;
    let (selection, synthesizer) = (&choice.selection, choice.synthesizer.as_ref());
    if choice.recipe.needs_decoder() && synthesizer.is_none() {
        let (file, expected) = (selection.model.display(), choice.recipe.expected_decoder());
        let reason = "no method makes the sound of what this one predicts: expected";
        return Err(Failure::Other(format!("{file}: {reason} {expected}")));
    }
    let recipe = &choice.recipe.fitted;
    let unfit = |reason: String| misfit(recipe, &reason);
    while let Some(inputs) = run.next_inputs(recipe).map_err(unfit)? {
        let mut outputs = first.run(target, selection, RunStart::Anew, &inputs)?;
        if let Some(behind) = synthesizer {
            let inputs = run.synthesizer_inputs(recipe, &behind.fitted, &outputs);
            let Some(inputs) = inputs.map_err(unfit)? else {
                continue;
            };
            outputs = second.run(target, &behind.selection, RunStart::Anew, &inputs)?;
        }
        let fitted = synthesizer.map(|behind| &behind.fitted);
        run.add(recipe, fitted, &outputs).map_err(unfit)?;
    }
    Ok(TypedAnswer::Speech(run.answer().map_err(unfit)?))
}
