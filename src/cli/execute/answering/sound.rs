//! Answers for sounds: the model runs once for each window.

use super::{AnsweringModel, GivenMedia, load, unsuited};
use crate::cli::exit::Failure;
use pkgtool_engine::RunStart;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::answer::TypedAnswer;
use pkgtool_media::recipe::SoundRun;
use pkgtool_media::sound;

/// The fault of a sound without a window.
const EMPTY: &str = "the sound is empty";

/// Decodes the sound of a file, for runs over it.
fn decoded(model: &AnsweringModel<'_>, given: GivenMedia<'_>) -> Result<SoundRun, Failure> {
    let path = given.file(model.takes())?;
    let decode = || load(path, model.takes(), sound::decode);
    let sound = model.target.args.within("reading the sound", decode)?;
    Ok(SoundRun::new(sound))
}

/// Returns the inputs for the first window.
pub(super) fn first_inputs(
    model: &AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<Vec<Tensor>, Failure> {
    let path = given.file(model.takes())?;
    let inputs = decoded(model, given)?.next_inputs(model.recipe());
    let inputs = inputs.map_err(|reason| unsuited(path, &reason))?;
    inputs.ok_or_else(|| unsuited(path, EMPTY))
}

/// Runs the model on all windows, and answers.
pub(super) fn answer(
    model: &mut AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<TypedAnswer, Failure> {
    let path = given.file(model.takes())?;
    let mut run = decoded(model, given)?;
    let mut is_first = true;
    loop {
        let inputs = run.next_inputs(model.recipe());
        let inputs = inputs.map_err(|reason| {
            if is_first {
                unsuited(path, &reason)
            } else {
                model.misfit(&reason)
            }
        });
        let Some(inputs) = inputs? else { break };
        let begins = if is_first {
            RunStart::Anew
        } else {
            RunStart::AsLeft
        };
        let outputs = model.run(begins, &inputs)?;
        is_first = false;
        let added = run.add(model.recipe(), outputs);
        added.map_err(|reason| model.misfit(&reason))?;
    }
    if is_first {
        return Err(unsuited(path, EMPTY));
    }
    let interpret = || run.answer(model.recipe());
    let answer = model
        .target
        .args
        .within("interpreting the outputs", interpret);
    answer.map_err(|reason| model.misfit(&reason))
}
