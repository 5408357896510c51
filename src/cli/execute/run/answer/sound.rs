//! Answers for sounds: the model runs once for each window.

use std::path::Path;

use super::super::RunArgs;
use super::{Answered, TimedModel, load, misfit, start, unsuited};
use crate::cli::exit::Failure;
use pkgtool_engine::RunStart;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::recipe::{FittedRecipe, RecipeChoice, SoundRun};
use pkgtool_media::sound;

/// The fault of a sound without a window.
const EMPTY: &str = "the sound is empty";

/// Decodes the sound of a file, for runs over it.
fn decoded(args: &RunArgs, recipe: &FittedRecipe, path: &Path) -> Result<SoundRun, Failure> {
    let decode = || load(path, recipe.takes, sound::decode);
    Ok(SoundRun::new(
        args.target.within("reading the sound", decode)?,
    ))
}

/// Runs the model on the first window, and returns its inputs too.
pub(super) fn first(
    args: &RunArgs,
    chosen: &RecipeChoice,
    path: &Path,
) -> Result<(Vec<Tensor>, Started), Failure> {
    let recipe = &chosen.recipe.fitted;
    let inputs = decoded(args, recipe, path)?.next_inputs(recipe);
    let inputs = inputs.map_err(|reason| unsuited(path, &reason))?;
    let inputs = inputs.ok_or_else(|| unsuited(path, EMPTY))?;
    let started = start(args, &chosen.selection, &inputs)?;
    Ok((inputs, started))
}

/// Runs the model on all windows, and answers.
pub(super) fn answer(
    args: &RunArgs,
    chosen: RecipeChoice,
    path: &Path,
) -> Result<Answered, Failure> {
    let (selection, recipe) = (chosen.selection, chosen.recipe.fitted);
    let unfit = |reason: String| misfit(&recipe, &reason);
    let mut run = decoded(args, &recipe, path)?;
    let mut model = TimedModel::default();
    loop {
        let inputs = run.next_inputs(&recipe).map_err(|reason| match model.runs {
            0 => unsuited(path, &reason),
            _ => unfit(reason),
        });
        let Some(inputs) = inputs? else { break };
        let outputs = model.run(args, &selection, RunStart::AsLeft, &inputs)?;
        run.add(&recipe, outputs).map_err(unfit)?;
    }
    let started = model.started.ok_or_else(|| unsuited(path, EMPTY))?;
    let interpret = || run.answer(&recipe);
    let answer = args.target.within("interpreting the outputs", interpret);
    Ok(Answered {
        answer: answer.map_err(unfit)?,
        selection,
        started,
        recipe,
        run_time: model.time,
        runs: model.runs,
        reader: None,
        saved: None,
    })
}
