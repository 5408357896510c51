//! Speech: the model runs once for each piece of a text.

use std::fs;
use std::path::Path;

use super::super::RunArgs;
use super::{Answered, TimedModel, ending, misfit, start, unsaved};
use crate::cli::exit::Failure;
use pkgtool_engine::RunStart;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::answer::{SpeechAnswer, TypedAnswer};
use pkgtool_media::recipe::{RecipeChoice, TextRun};
use pkgtool_media::sound::SoundFormat;
use pkgtool_media::voice;

/// Prepares the runs over the text of the arguments.
fn prepared(args: &RunArgs, chosen: &RecipeChoice, given: &Path) -> Result<TextRun, Failure> {
    let text = text(given)?;
    let prepare = || {
        let phonemes = if args.answer.phonemes {
            text
        } else {
            voice::english(&text)?
        };
        TextRun::new(&chosen.recipe, &chosen.selection.model, &phonemes)
    };
    let prepared = args.target.within("preparing the text", prepare);
    prepared.map_err(Failure::Other)
}

/// Runs the model on the first piece, and returns its inputs too.
pub(super) fn first(
    args: &RunArgs,
    chosen: &RecipeChoice,
    given: &Path,
) -> Result<(Vec<Tensor>, Started), Failure> {
    let inputs = prepared(args, chosen, given)?.next_inputs(&chosen.recipe.fitted);
    let inputs = inputs.map_err(Failure::Other)?.unwrap_or_default();
    let started = start(args, &chosen.selection, &inputs)?;
    Ok((inputs, started))
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
    let mut run = prepared(args, &chosen, given)?;
    let RecipeChoice {
        selection,
        recipe,
        synthesizer,
        ..
    } = chosen;
    if recipe.needs_decoder() && synthesizer.is_none() {
        let (model, expected) = (selection.model.display(), recipe.expected_decoder());
        let reason = "no method makes the sound of what this one predicts: expected";
        return Err(Failure::Other(format!("{model}: {reason} {expected}")));
    }
    let recipe = recipe.fitted;
    let unfit = |reason: String| misfit(&recipe, &reason);
    let (mut first, mut second) = (TimedModel::default(), TimedModel::default());
    while let Some(inputs) = run.next_inputs(&recipe).map_err(unfit)? {
        let mut outputs = first.run(args, &selection, RunStart::Anew, &inputs)?;
        if let Some(choice) = &synthesizer {
            let inputs = run.synthesizer_inputs(&recipe, &choice.fitted, &outputs);
            let Some(inputs) = inputs.map_err(unfit)? else {
                continue;
            };
            outputs = second.run(args, &choice.selection, RunStart::Anew, &inputs)?;
        }
        let fitted = synthesizer.as_ref().map(|choice| &choice.fitted);
        run.add(&recipe, fitted, &outputs).map_err(unfit)?;
    }
    let speech = run.answer().map_err(unfit)?;
    let saved = args.answer.save.clone();
    if let Some(file) = &saved {
        save(file, &speech)?;
    }
    let started = first.started.take();
    let started = started.ok_or_else(|| Failure::Other("the text is empty".to_owned()))?;
    Ok(Answered {
        answer: TypedAnswer::Speech(speech),
        selection,
        started,
        recipe,
        run_time: first.time,
        runs: first.runs,
        reader: synthesizer.and_then(|choice| second.reader(choice.selection, None)),
        saved,
    })
}

/// Writes speech in the format that the ending of the file's name means.
fn save(file: &Path, speech: &SpeechAnswer) -> Result<(), Failure> {
    let fault = |reason: String| unsaved(file, &reason);
    let ending = match ending(file) {
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
