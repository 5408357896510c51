//! Transcripts: an encoder runs once for each window of a sound, and a decoder once for each token.

use std::path::Path;

use super::super::RunArgs;
use super::{Answered, TimedModel, load, misfit, unsuited};
use crate::cli::exit::Failure;
use pkgtool_engine::RunStart;
use pkgtool_engine::runtime::selection::{self, Selection};
use pkgtool_media::answer::TypedAnswer;
use pkgtool_media::recipe::{RecipeChoice, SecondModel};
use pkgtool_media::sound;
use pkgtool_media::speech::{SpeechRun, SpeechStep, SpeechTokens};
use pkgtool_text::tokenizer::{Tokenizer, TokenizerFiles};

/// Converts the sound to its words.
pub(super) fn answer(
    args: &RunArgs,
    chosen: RecipeChoice,
    path: &Path,
) -> Result<Answered, Failure> {
    let RecipeChoice {
        selection,
        recipe,
        decoder,
        ..
    } = chosen;
    let expected = recipe.expected_decoder();
    let recipe = recipe.fitted;
    let model = selection.model.display();
    let other = |reason: String| Failure::Other(format!("{model}: {reason}"));
    let SecondModel {
        selection: of_decoder,
        fitted: decoder,
    } = *decoder.ok_or_else(|| {
        other(format!(
            "no method decodes what this one encodes: expected {expected}"
        ))
    })?;
    let tokenizer = tokenizer(&selection)?;
    let mut options = recipe.speech_options().map_err(other)?;
    options.keeps_tokens = decoder.keeps_tokens;
    let vocabulary = decoder
        .vocabulary
        .unwrap_or_else(|| tokenizer.vocabulary().len());
    let tokens = SpeechTokens::find(vocabulary, |token| tokenizer.id_of(token)).map_err(other)?;
    let decode = || load(path, recipe.takes, sound::decode);
    let sound = args.target.within("reading the sound", decode)?;
    let text_of = |ids: &[u32]| {
        let text = tokenizer.decode(ids, true);
        text.map_err(|error| error.to_string())
    };
    let mut run = SpeechRun::new(sound, tokens, &options).map_err(other)?;
    let (mut encoding, mut decoding) = (TimedModel::default(), TimedModel::default());
    let unfit = |reason: String| misfit(&recipe, &reason);
    while let Some(step) = run.next_step() {
        match step {
            SpeechStep::Encode(samples) => {
                let inputs = recipe.window(samples);
                let inputs = inputs.map_err(|reason| unsuited(path, &reason))?;
                run.add_states(encoding.run(args, &selection, RunStart::AsLeft, &inputs)?);
            }
            SpeechStep::Decode { tokens, position } => {
                let inputs = decoder.inputs(&tokens, position, run.states());
                let inputs = inputs.map_err(unfit)?;
                let begins = if position == 0 {
                    RunStart::Anew
                } else {
                    RunStart::AsLeft
                };
                let outputs = decoding.run(args, &of_decoder, begins, &inputs)?;
                let logits = outputs.first();
                let logits = logits.ok_or_else(|| unfit("the decoder has no output".to_owned()))?;
                run.add_logits(logits, &text_of).map_err(unfit)?;
            }
        }
    }
    let started = encoding.started;
    let started = started.ok_or_else(|| unsuited(path, "the sound is too short for words"))?;
    let reader = decoding.reader(of_decoder, None);
    Ok(Answered {
        selection,
        started,
        recipe,
        answer: TypedAnswer::Transcript(run.answer()),
        run_time: encoding.time,
        runs: encoding.runs,
        reader,
        saved: None,
    })
}

/// Loads the tokenizer of the package.
fn tokenizer(selection: &Selection) -> Result<Tokenizer, Failure> {
    let missing = || {
        Failure::Other(format!(
            "{}: no tokenizer: the package's config must name one in `tokenizer`",
            selection.model.display()
        ))
    };
    let variant = selection.variant.as_ref().ok_or_else(missing)?;
    let config = selection::config(&variant.config);
    let config = config.map_err(|error| Failure::Other(error.to_string()))?;
    let other = |error: pkgtool_text::tokenizer::TokenizerError| Failure::Other(error.to_string());
    let files = TokenizerFiles::of(&variant.config, &config).map_err(other)?;
    Tokenizer::of(&files.ok_or_else(missing)?).map_err(other)
}
