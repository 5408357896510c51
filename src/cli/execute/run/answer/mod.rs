//! `pkgtool run PACKAGE photo.jpg`: an answer by a recipe, in place of tensors.

pub(super) mod labels;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use image::{ImageFormat, RgbImage};
use serde_json::{Value as Json, json};

use super::super::answering::{self, AnsweringModel, GivenMedia, RecipeWish, TimedModel};
use super::{CompletedRun, RunArgs, json};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::Started;
use pkgtool_media::answer::{SpeechAnswer, SubtitleFormat, TypedAnswer, TypedAnswerKind};
use pkgtool_media::recipe::FittedRecipe;
use pkgtool_media::sound::SoundFormat;
use pkgtool_media::{MediaKind, draw};

/// Options for answers.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Answers")]
pub(super) struct AnswerArgs {
    /// A picture (such as JPEG or PNG), a sound (such as WAV or M4A), or a text (`@FILE` reads it from a file): run the
    /// model on it and show labels, boxes, text, classes, segments, speech or a vector
    #[arg(value_name = "FILE|TEXT", conflicts_with_all = ["inputs", "dims", "chain", "steps", "step_inputs",
        "feeds", "bundled", "output_dir", "check_finite", "texts", "mean", "std"])]
    pub(super) given: Option<PathBuf>,

    /// Override a value of the recipe, such as `threshold=0.7` or `labels=["cat","dog"]`; may be given several
    /// times
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "given")]
    set: Vec<String>,

    /// The text is phonemes (IPA), as the model takes them
    #[arg(long, requires = "given")]
    phonemes: bool,

    /// Save the picture with the answer drawn over it, or that the model gives, as PNG or JPEG; words as .vtt, .srt or
    /// .txt; speech as .wav, .flac, .opus or .pcm
    #[arg(long, value_name = "FILE", requires = "given")]
    save: Option<PathBuf>,

    /// Show the outputs as they are. The recipe only prepares the inputs
    #[arg(long, requires = "given", conflicts_with_all = ["save"])]
    raw: bool,

    /// Treat a model file without a package as one with this capability
    #[arg(long = "as", value_name = "CAPABILITY", requires = "given")]
    capability: Option<String>,
}

impl AnswerArgs {
    /// Returns whether an option besides the file or text is there.
    pub(super) fn has_options(&self) -> bool {
        !self.set.is_empty()
            || self.save.is_some()
            || self.raw
            || self.phonemes
            || self.capability.is_some()
    }
}

/// An answer, and how it was found.
struct Answered<'a> {
    model: AnsweringModel<'a>,
    answer: TypedAnswer,
    saved: Option<PathBuf>,
}

/// A model behind the first one: it reads lines of a picture, decodes windows of a sound, or makes the sound of
/// phonemes.
struct SecondView<'a> {
    selection: &'a Selection,
    started: &'a Started,
    model: &'a TimedModel,
    /// The recipe, if the model has one of its own.
    recipe: Option<&'a FittedRecipe>,
}

impl Answered<'_> {
    /// Returns the model that answered.
    fn started(&self) -> &Started {
        let started = self.model.first.started.as_ref();
        started.expect("an answer needs a run")
    }

    /// Returns the model behind it, if it ran.
    fn second(&self) -> Option<SecondView<'_>> {
        let model = &self.model;
        let reader = model.choice.reader.as_ref();
        Some(SecondView {
            selection: model.second_selection()?,
            started: model.second.started.as_ref()?,
            model: &model.second,
            recipe: reader.map(|reader| &reader.recipe.fitted),
        })
    }
}

/// Runs the model on the file or text of the arguments, and prints the answer.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let options = &args.answer;
    let path = options.given.as_ref();
    let path = path.expect("the caller has checked that there is one");
    let wish = RecipeWish {
        capability: options.capability.as_deref(),
        settings: &options.set,
    };
    let mut model = AnsweringModel::new(&args.path, &args.target, args.variant.which(), wish)?;
    let takes = model.takes();
    if options.phonemes && model.recipe().answer != TypedAnswerKind::Speech {
        let noun = takes.noun();
        let reason = format!("--phonemes: the model takes a {noun}, not a text to speak");
        return Err(Failure::Other(reason));
    }
    let text = match takes {
        MediaKind::Text => text_of(path)?,
        _ => String::new(),
    };
    let given = match takes {
        MediaKind::Text if options.phonemes => GivenMedia::Phonemes(&text),
        MediaKind::Text => GivenMedia::Text(&text),
        _ => GivenMedia::File(path),
    };
    if options.raw {
        return raw(args, model, given);
    }
    let answer = model.answer(given)?;
    let answered = Answered {
        model,
        answer,
        saved: options.save.clone(),
    };
    if let Some(file) = &answered.saved {
        save(file, &answered.answer, path)?;
    }
    if args.json {
        output::print(&format!("{:#}\n", document(&answered)))?;
    } else {
        output::print(&text::render(&answered))?;
    }
    Ok(Exit::Clean)
}

/// Runs the model on the prepared file, and prints the outputs.
fn raw(
    args: &RunArgs,
    mut model: AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<Exit, Failure> {
    let (inputs, started) = model.raw(given)?;
    let stages = [CompletedRun {
        selection: model.choice.selection,
        started,
        inputs,
        profile: None,
        second_run_time: None,
        files: Vec::new(),
    }];
    output::print(&if args.json {
        json::render(&stages)
    } else {
        super::text::render(&stages)
    })?;
    Ok(Exit::Clean)
}

/// Returns the text of an argument; `@` stands in front of the name of a file.
fn text_of(given: &Path) -> Result<String, Failure> {
    let given = given.to_str();
    let given = given.ok_or_else(|| Failure::Other("the text is not UTF-8".to_owned()))?;
    let Some(file) = given.strip_prefix('@') else {
        return Ok(given.to_owned());
    };
    fs::read_to_string(file).map_err(|error| Failure::Other(format!("{file}: {error}")))
}

/// Saves the answer in the form that the ending of the file's name means.
fn save(file: &Path, answer: &TypedAnswer, given: &Path) -> Result<(), Failure> {
    match answer {
        TypedAnswer::Transcript(_) | TypedAnswer::Segments(_) => save_words(file, answer),
        TypedAnswer::Reply(reply) => save_text(file, &reply.text),
        TypedAnswer::Speech(speech) => save_speech(file, speech),
        TypedAnswer::Picture(made) => write_picture(file, &made.picture),
        _ => save_picture(file, answer, given),
    }
}

/// Writes the words of a sound as subtitles or text, by the ending of the file's name.
fn save_words(file: &Path, answer: &TypedAnswer) -> Result<(), Failure> {
    let fault = |reason: String| unsaved(file, &reason);
    let TypedAnswer::Transcript(words) = answer else {
        return Err(fault(
            "the answer has no words; `--json` prints its segments".to_owned(),
        ));
    };
    let ending = ending(file);
    let mut formats = SubtitleFormat::ALL.into_iter();
    let text = match formats.find(|format| format.extension() == ending) {
        Some(format) => words.subtitles(format),
        None if ending == "txt" => words.text.clone() + "\n",
        None => {
            let expected = "expected a name that ends with .vtt, .srt or .txt";
            return Err(fault(expected.to_owned()));
        }
    };
    fs::write(file, text).map_err(|error| fault(error.to_string()))
}

/// Writes words about a picture.
fn save_text(file: &Path, text: &str) -> Result<(), Failure> {
    if ending(file) != "txt" {
        return Err(unsaved(file, "expected a name that ends with .txt"));
    }
    fs::write(file, format!("{text}\n")).map_err(|error| unsaved(file, &error.to_string()))
}

/// Returns the failure of an answer that cannot be saved.
fn unsaved(file: &Path, reason: &str) -> Failure {
    Failure::Other(format!("--save {}: {reason}", file.display()))
}

/// Returns the ending of a file's name.
fn ending(file: &Path) -> &str {
    let ending = file.extension().and_then(|it| it.to_str());
    ending.unwrap_or_default()
}

/// Writes speech in the format that the ending of the file's name means.
fn save_speech(file: &Path, speech: &SpeechAnswer) -> Result<(), Failure> {
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

/// Writes the picture with the answer drawn over it.
fn save_picture(file: &Path, answer: &TypedAnswer, given: &Path) -> Result<(), Failure> {
    let fault = |reason: String| unsaved(file, &reason);
    let drawn = draw::draw(answer, &answering::picture(given)?);
    let drawn = drawn.ok_or_else(|| fault("the answer has no places in the picture".to_owned()))?;
    write_picture(file, &drawn)
}

fn write_picture(file: &Path, picture: &RgbImage) -> Result<(), Failure> {
    let format = ImageFormat::from_path(file);
    let format = format.ok().filter(ImageFormat::writing_enabled);
    let format = format.ok_or_else(|| {
        unsaved(
            file,
            "expected a name that ends with .png, .jpg, .webp or .gif",
        )
    })?;
    let saved = picture.save_with_format(file, format);
    saved.map_err(|error| unsaved(file, &error.to_string()))
}

/// Renders the result as JSON. Later versions only add fields.
fn document(answered: &Answered<'_>) -> Json {
    let (model, started) = (&answered.model, answered.started());
    let mut document = json::head(&model.choice.selection, started);
    document["recipe"] = recipe_json(model.recipe());
    document["answer"] = answered.answer.to_json();
    document["saved"] = json!(answered.saved);
    document["timings_ms"] = timings(&model.first, started);
    if model.first.runs > 1 {
        document["runs"] = json!(model.first.runs);
    }
    if let Some(second) = answered.second() {
        let mut of_second = json::head(second.selection, second.started);
        if let Some(recipe) = second.recipe {
            of_second["recipe"] = recipe_json(recipe);
        }
        of_second["runs"] = json!(second.model.runs);
        of_second["timings_ms"] = timings(second.model, second.started);
        document["reader"] = of_second;
    }
    document
}

fn timings(model: &TimedModel, started: &Started) -> Json {
    json!({
        "load": json::milliseconds(started.load_time),
        "run": json::milliseconds(model.time),
    })
}

fn recipe_json(recipe: &FittedRecipe) -> Json {
    json!({
        "name": recipe.name,
        "file": recipe.file,
        "values": recipe.values,
    })
}
