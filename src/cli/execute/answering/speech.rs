//! Transcripts: an encoder runs once for each window of a sound, and a decoder once for each token.

use super::{AnsweringModel, GivenMedia, load, misfit, tokenizer, unsuited};
use crate::cli::exit::Failure;
use pkgtool_engine::RunStart;
use pkgtool_media::answer::TypedAnswer;
use pkgtool_media::sound;
use pkgtool_media::speech::{SpeechRun, SpeechStep, SpeechTokens};

/// Converts the sound to its words.
pub(super) fn answer(
    model: &mut AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<TypedAnswer, Failure> {
    let path = given.file(model.takes())?;
    let target = model.target;
    let AnsweringModel {
        choice,
        first,
        second,
        tokenizer: known,
        ..
    } = model;
    let (selection, recipe) = (&choice.selection, &choice.recipe.fitted);
    let file = selection.model.display();
    let other = |reason: String| Failure::Other(format!("{file}: {reason}"));
    let behind = choice.decoder.as_ref().ok_or_else(|| {
        let expected = choice.recipe.expected_decoder();
        other(format!(
            "no method decodes what this one encodes: expected {expected}"
        ))
    })?;
    let decoder = &behind.fitted;
    let tokenizer = match known {
        Some(tokenizer) => tokenizer,
        None => known.insert(tokenizer(selection)?),
    };
    let mut options = recipe.speech_options().map_err(other)?;
    options.keeps_tokens = decoder.keeps_tokens;
    second.carrying = decoder.carrying.clone();
    let vocabulary = decoder
        .vocabulary
        .unwrap_or_else(|| tokenizer.vocabulary().len());
    let tokens = SpeechTokens::find(vocabulary, |token| tokenizer.id_of(token)).map_err(other)?;
    let decode = || load(path, recipe.takes, sound::decode);
    let sound = target.args.within("reading the sound", decode)?;
    let text_of = |ids: &[u32]| {
        let text = tokenizer.decode(ids, true);
        text.map_err(|error| error.to_string())
    };
    let mut run = SpeechRun::new(sound, tokens, &options).map_err(other)?;
    let unfit = |reason: String| misfit(recipe, &reason);
    let mut is_empty = true;
    while let Some(step) = run.next_step() {
        is_empty = false;
        match step {
            SpeechStep::Encode(samples) => {
                let inputs = recipe.window(samples);
                let inputs = inputs.map_err(|reason| unsuited(path, &reason))?;
                run.add_states(first.run(target, selection, RunStart::Anew, &inputs)?);
            }
            SpeechStep::Decode { tokens, position } => {
                let inputs = decoder.inputs(&tokens, position, run.states());
                let inputs = inputs.map_err(unfit)?;
                let begins = if position == 0 {
                    RunStart::Anew
                } else {
                    RunStart::AsLeft
                };
                let outputs = second.run(target, &behind.selection, begins, &inputs)?;
                let logits = outputs.first();
                let logits = logits.ok_or_else(|| unfit("the decoder has no output".to_owned()))?;
                run.add_logits(logits, &text_of).map_err(unfit)?;
            }
        }
    }
    if is_empty {
        return Err(unsuited(path, "the sound is too short for words"));
    }
    Ok(TypedAnswer::Transcript(run.answer()))
}
