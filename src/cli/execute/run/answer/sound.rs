//! Answers for sounds: the model runs once for each window.

use std::path::Path;

use super::super::RunArgs;
use super::{Answered, load, misfit, start, unsuited};
use crate::cli::exit::Failure;
use pkgtool_engine::Session as _;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::recipe::{RecipeChoice, SoundRun};
use pkgtool_media::sound;

/// The run on the first window of a sound.
pub(super) struct FirstRun {
    run: SoundRun,
    pub(super) inputs: Vec<Tensor>,
    pub(super) started: Started,
}

/// Runs the model on the first window.
pub(super) fn first(
    args: &RunArgs,
    chosen: &RecipeChoice,
    path: &Path,
) -> Result<FirstRun, Failure> {
    let recipe = &chosen.recipe.fitted;
    let decode = || load(path, recipe.takes, sound::decode);
    let mut run = SoundRun::new(args.target.within("reading the sound", decode)?);
    let inputs = run.next_inputs(recipe);
    let inputs = inputs.map_err(|reason| unsuited(path, &reason))?;
    let inputs = inputs.ok_or_else(|| unsuited(path, "the sound is empty"))?;
    let started = start(args, &chosen.selection, &inputs)?;
    Ok(FirstRun {
        run,
        inputs,
        started,
    })
}

/// Runs the model on all windows, and answers.
pub(super) fn answer(
    args: &RunArgs,
    chosen: RecipeChoice,
    path: &Path,
) -> Result<Answered, Failure> {
    let FirstRun {
        mut run,
        mut started,
        ..
    } = first(args, &chosen, path)?;
    let recipe = chosen.recipe.fitted;
    let unfit = |reason: String| misfit(&recipe, &reason);
    let (mut time, mut runs) = (started.first_answer.time, 1);
    let outputs = std::mem::take(&mut started.first_answer.outputs);
    run.add(&recipe, outputs).map_err(unfit)?;
    while let Some(inputs) = run.next_inputs(&recipe).map_err(unfit)? {
        let ran = started.worker.run(&inputs);
        let model = chosen.selection.model.display();
        let ran = ran.map_err(|error| Failure::Other(format!("{model}: {error}")))?;
        time += ran.time;
        runs += 1;
        run.add(&recipe, ran.outputs).map_err(unfit)?;
    }
    let interpret = || run.answer(&recipe);
    let answer = args.target.within("interpreting the outputs", interpret);
    Ok(Answered {
        answer: answer.map_err(unfit)?,
        selection: chosen.selection,
        started,
        recipe,
        run_time: time,
        runs,
        reader: None,
        saved: None,
    })
}
