//! Speech: the model runs once for each piece of a text.

use std::fs;
use std::path::Path;

use super::super::RunArgs;
use super::{Answered, misfit, start};
use crate::cli::exit::Failure;
use pkgtool_engine::Session as _;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::answer::{SpeechAnswer, TypedAnswer};
use pkgtool_media::recipe::{RecipeChoice, TextRun};
use pkgtool_media::sound::SoundFormat;
use pkgtool_media::voice;

/// The run on the first piece of a text.
pub(super) struct FirstPiece {
    run: TextRun,
    pub(super) inputs: Vec<Tensor>,
    pub(super) started: Started,
}

/// Runs the model on the first piece.
pub(super) fn first(
    args: &RunArgs,
    chosen: &RecipeChoice,
    given: &Path,
) -> Result<FirstPiece, Failure> {
    let recipe = &chosen.recipe.fitted;
    let other = |reason: String| Failure::Other(reason);
    let text = text(given)?;
    let prepare = || {
        let phonemes = if args.answer.phonemes {
            text
        } else {
            voice::english(&text)?
        };
        TextRun::new(recipe, &chosen.selection.model, &phonemes)
    };
    let prepared = args.target.within("preparing the text", prepare);
    let mut run = prepared.map_err(other)?;
    let inputs = run.next_inputs(recipe).map_err(other)?;
    let inputs = inputs.ok_or_else(|| other("the text is empty".to_owned()))?;
    let started = start(args, &chosen.selection, &inputs)?;
    Ok(FirstPiece {
        run,
        inputs,
        started,
    })
}

/// Returns the text of an argument; `@` stands in front of the name of a file.
fn text(given: &Path) -> Result<String, Failure> {
    let given = given.to_str();
    let given = given.ok_or_else(|| Failure::Other("the text is not UTF-8".to_owned()))?;
    let Some(file) = given.strip_prefix('@') else {
        return Ok(given.to_owned());
    };
    fs::read_to_string(file).map_err(|error| Failure::Other(format!("{file}: {error}")))
}

/// Runs the model on all pieces, and answers.
pub(super) fn answer(
    args: &RunArgs,
    chosen: RecipeChoice,
    given: &Path,
) -> Result<Answered, Failure> {
    let FirstPiece {
        mut run,
        mut started,
        ..
    } = first(args, &chosen, given)?;
    let recipe = chosen.recipe.fitted;
    let unfit = |reason: String| misfit(&recipe, &reason);
    let (mut time, mut runs) = (started.first_answer.time, 1);
    let outputs = std::mem::take(&mut started.first_answer.outputs);
    run.add(&recipe, &outputs).map_err(unfit)?;
    while let Some(inputs) = run.next_inputs(&recipe).map_err(unfit)? {
        let ran = started.worker.run(&inputs);
        let model = chosen.selection.model.display();
        let ran = ran.map_err(|error| Failure::Other(format!("{model}: {error}")))?;
        time += ran.time;
        runs += 1;
        run.add(&recipe, &ran.outputs).map_err(unfit)?;
    }
    let speech = run.answer().map_err(unfit)?;
    let saved = args.answer.save.clone();
    if let Some(file) = &saved {
        save(file, &speech)?;
    }
    Ok(Answered {
        answer: TypedAnswer::Speech(speech),
        selection: chosen.selection,
        started,
        recipe,
        run_time: time,
        runs,
        reader: None,
        saved,
    })
}

/// Writes speech in the format that the ending of the file's name means.
fn save(file: &Path, speech: &SpeechAnswer) -> Result<(), Failure> {
    let at = file.display();
    let fault = |reason: String| Failure::Other(format!("--save {at}: {reason}"));
    let ending = file.extension().and_then(|it| it.to_str());
    let ending = match ending.unwrap_or_default() {
        "ogg" => SoundFormat::Opus.name(),
        ending => ending,
    };
    let mut formats = SoundFormat::ALL.into_iter();
    let format = formats.find(|format| format.name() == ending);
    let format = format.ok_or_else(|| {
        fault("expected a name that ends with .wav, .flac, .opus or .pcm".to_owned())
    })?;
    let bytes = speech.encode(format).map_err(fault)?;
    fs::write(file, bytes).map_err(|error| fault(error.to_string()))
}
