//! `pkgtool run PACKAGE photo.jpg`: an answer by a recipe, in place of tensors.

mod sound;
mod speech;
mod text;
mod utterance;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use image::RgbImage;
use serde_json::{Value as Json, json};

use super::super::{selection_failure, start_with_notes};
use super::{CompletedRun, RunArgs, json};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{RunStart, Session as _};
use pkgtool_media::answer::{LineAnswer, SubtitleFormat, TextAnswer, TypedAnswer};
use pkgtool_media::picture::{self, Geometry, Quad};
use pkgtool_media::recipe::{self, ChoiceError, FittedRecipe, RecipeChoice};
use pkgtool_media::worker;
use pkgtool_media::{MediaKind, draw};

/// Maximum size of the file of a picture or sound, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

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
struct Answered {
    selection: Selection,
    started: Started,
    recipe: FittedRecipe,
    answer: TypedAnswer,
    /// Time of all runs of the model, and their number.
    run_time: Duration,
    runs: usize,
    /// The model that read the lines of the answer.
    reader: Option<StartedReader>,
    saved: Option<PathBuf>,
}

/// A model that reads what another one has found: lines of a picture, windows of a sound, or durations of phonemes.
struct StartedReader {
    selection: Selection,
    started: Started,
    /// The recipe, if the model has one of its own.
    recipe: Option<FittedRecipe>,
    /// Time of all its runs, and their number.
    time: Duration,
    runs: usize,
}

/// A model and the time of its runs.
#[derive(Default)]
struct TimedModel {
    started: Option<Started>,
    time: Duration,
    runs: usize,
}

impl TimedModel {
    /// Runs the model; the first run starts it.
    fn run(
        &mut self,
        args: &RunArgs,
        selection: &Selection,
        begins: RunStart,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        self.runs += 1;
        let Some(started) = &mut self.started else {
            let mut started = start(args, selection, inputs)?;
            self.time += started.first_answer.time;
            let outputs = std::mem::take(&mut started.first_answer.outputs);
            self.started = Some(started);
            return Ok(outputs);
        };
        let worker = &mut started.worker;
        let ran = worker.begin(begins).and_then(|()| worker.run(inputs));
        let model = selection.model.display();
        let ran = ran.map_err(|error| Failure::Other(format!("{model}: {error}")))?;
        self.time += ran.time;
        Ok(ran.outputs)
    }

    /// Returns the model as one that reads what another one has found.
    fn reader(self, selection: Selection, recipe: Option<FittedRecipe>) -> Option<StartedReader> {
        Some(StartedReader {
            selection,
            started: self.started?,
            recipe,
            time: self.time,
            runs: self.runs,
        })
    }
}

/// A run on a prepared picture.
struct PreparedRun {
    chosen: RecipeChoice,
    picture: RgbImage,
    inputs: Vec<Tensor>,
    geometry: Geometry,
    started: Started,
}

/// Runs the model on the file of the arguments, and prints the answer.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let path = args.answer.given.as_ref();
    let path = path.expect("the caller has checked that there is one");
    if args.answer.raw {
        return raw(args, path);
    }
    let chosen = chosen(args)?;
    let takes = chosen.recipe.fitted.takes;
    if args.answer.phonemes && takes != MediaKind::Text {
        let noun = takes.noun();
        let reason = format!("--phonemes: the model takes a {noun}, not a text to speak");
        return Err(Failure::Other(reason));
    }
    let answered = match takes {
        MediaKind::Picture => answer(args, chosen, path)?,
        MediaKind::Text => utterance::answer(args, chosen, path)?,
        MediaKind::Sound => {
            let mut answered = if chosen.recipe.needs_decoder() {
                speech::answer(args, chosen, path)?
            } else {
                sound::answer(args, chosen, path)?
            };
            if let Some(file) = &args.answer.save {
                save_words(file, &answered.answer)?;
                answered.saved = Some(file.clone());
            }
            answered
        }
    };
    if args.json {
        output::print(&format!("{:#}\n", document(&answered)))?;
    } else {
        output::print(&text::render(&answered))?;
    }
    Ok(Exit::Clean)
}

/// Runs the model on the prepared file, and prints the outputs.
fn raw(args: &RunArgs, path: &Path) -> Result<Exit, Failure> {
    let chosen = chosen(args)?;
    let (selection, inputs, started) = match chosen.recipe.fitted.takes {
        MediaKind::Picture => {
            let run = prepared(args, chosen, path)?;
            (run.chosen.selection, run.inputs, run.started)
        }
        MediaKind::Sound => {
            let (inputs, started) = sound::first(args, &chosen, path)?;
            (chosen.selection, inputs, started)
        }
        MediaKind::Text => {
            let (inputs, started) = utterance::first(args, &chosen, path)?;
            (chosen.selection, inputs, started)
        }
    };
    let stages = [CompletedRun {
        selection,
        started,
        inputs,
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

fn prepared(args: &RunArgs, chosen: RecipeChoice, path: &Path) -> Result<PreparedRun, Failure> {
    let decode = || load(path, MediaKind::Picture, picture::decode);
    let picture = args.target.within("reading the picture", decode)?;
    let preparation = &chosen.recipe.fitted.preparation;
    let prepare = || preparation.run(picture.clone());
    let prepared = args.target.within("preparing the picture", prepare);
    let (inputs, geometry) = prepared.map_err(|reason| unsuited(path, &reason))?;
    let started = start(args, &chosen.selection, &inputs)?;
    Ok(PreparedRun {
        chosen,
        picture,
        inputs,
        geometry,
        started,
    })
}

/// Returns the failure of a file that does not suit the model.
fn unsuited(path: &Path, reason: &str) -> Failure {
    Failure::Other(format!("{}: {reason}", path.display()))
}

/// Returns the failure of outputs that do not suit the recipe.
fn misfit(recipe: &FittedRecipe, reason: &str) -> Failure {
    let file = &recipe.file;
    Failure::Other(format!(
        "{file}: {reason}; `--raw` shows the outputs as they are"
    ))
}

fn start(args: &RunArgs, selection: &Selection, inputs: &[Tensor]) -> Result<Started, Failure> {
    let wish = args.target.start_request(selection, args.variant.which());
    start_with_notes(&wish, inputs, &args.target.launcher()?)
}

fn answer(args: &RunArgs, chosen: RecipeChoice, path: &Path) -> Result<Answered, Failure> {
    let PreparedRun {
        chosen,
        picture,
        geometry,
        started,
        ..
    } = prepared(args, chosen, path)?;
    let recipe = chosen.recipe.fitted;
    let outputs = &started.first_answer.outputs;
    let interpret = || recipe.interpret(outputs, geometry);
    let answer = args.target.within("interpreting the outputs", interpret);
    let mut answer = answer.map_err(|reason| misfit(&recipe, &reason))?;
    let mut reader = None;
    if let (TypedAnswer::Lines(lines), Some(choice)) = (&answer, chosen.reader) {
        let (texts, used) = read_lines(args, *choice, lines, (path, &picture))?;
        answer = answer.with_texts(Some(texts));
        reader = used;
    }
    let saved = args.answer.save.clone();
    if let Some(file) = &saved {
        save(file, &answer, &picture)?;
    }
    Ok(Answered {
        selection: chosen.selection,
        run_time: started.first_answer.time,
        runs: 1,
        started,
        recipe,
        answer,
        reader,
        saved,
    })
}

/// Reads the lines of an answer. Without lines, the model does not start.
fn read_lines(
    args: &RunArgs,
    reader: RecipeChoice,
    lines: &LineAnswer,
    (path, picture): (&Path, &RgbImage),
) -> Result<(Vec<TextAnswer>, Option<StartedReader>), Failure> {
    let recipe = reader.recipe.fitted;
    let quads: Vec<Quad> = lines.lines.iter().map(|line| line.quad).collect();
    let mut texts = Vec::new();
    let mut model = TimedModel::default();
    while texts.len() < quads.len() {
        let left = &quads[texts.len()..];
        let cut = || worker::cut_out(&recipe.preparation, picture, left);
        let parts = args.target.within("cutting out the lines", cut);
        for part in parts.map_err(|reason| unsuited(path, &reason))? {
            let outputs = model.run(args, &reader.selection, RunStart::AsLeft, &part.inputs)?;
            let text = recipe.interpret_text(&outputs, part.geometry);
            texts.push(text.map_err(|reason| misfit(&recipe, &reason))?);
        }
    }
    let reader = model.reader(reader.selection, Some(recipe));
    Ok((texts, reader))
}

/// Chooses the model that answers and its recipe, with the values of the arguments.
fn chosen(args: &RunArgs) -> Result<RecipeChoice, Failure> {
    let criteria = args.target.selection_criteria(args.variant.which());
    let capability = args.answer.capability.as_deref();
    let chosen = recipe::choose(&args.path, &criteria, capability);
    let mut chosen = chosen.map_err(|error| match error {
        ChoiceError::Selection(error) => selection_failure(&error),
        ChoiceError::Recipe(reason) => Failure::Other(reason),
    })?;
    for setting in &args.answer.set {
        let (name, value) = setting.split_once('=').ok_or_else(|| {
            Failure::Other(format!(
                "--set {setting}: expected NAME=VALUE, such as `threshold=0.7`"
            ))
        })?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        let set = chosen.set(name, value, "--set");
        set.map_err(|reason| Failure::Other(format!("--set {setting}: {reason}")))?;
    }
    Ok(chosen)
}

/// Reads a file of this kind and decodes it.
fn load<T>(
    path: &Path,
    kind: MediaKind,
    decode: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<T, Failure> {
    let fault = |reason: String| unsuited(path, &reason);
    let size = fs::metadata(path)
        .map_err(|error| fault(error.to_string()))?
        .len();
    if size > MAX_FILE_BYTES {
        let (noun, most) = (kind.noun(), MAX_FILE_BYTES >> 20);
        return Err(fault(format!(
            "too large: expected a {noun} of at most {most} MiB"
        )));
    }
    let bytes = fs::read(path).map_err(|error| fault(error.to_string()))?;
    kind.check(&bytes).map_err(fault)?;
    decode(&bytes).map_err(fault)
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

/// Returns the failure of an answer that cannot be saved.
fn unsaved(file: &Path, reason: &str) -> Failure {
    Failure::Other(format!("--save {}: {reason}", file.display()))
}

/// Returns the ending of a file's name.
fn ending(file: &Path) -> &str {
    let ending = file.extension().and_then(|it| it.to_str());
    ending.unwrap_or_default()
}

fn save(file: &Path, answer: &TypedAnswer, picture: &RgbImage) -> Result<(), Failure> {
    let fault = |reason: String| unsaved(file, &reason);
    let drawn = draw::draw(answer, picture);
    let drawn = drawn.ok_or_else(|| fault("the answer has no places in the picture".to_owned()))?;
    drawn.save(file).map_err(|error| fault(error.to_string()))
}

/// Renders the result as JSON. Later versions only add fields.
fn document(answered: &Answered) -> Json {
    let mut document = json::head(&answered.selection, &answered.started);
    document["recipe"] = recipe_json(&answered.recipe);
    document["answer"] = answered.answer.to_json();
    document["saved"] = json!(answered.saved);
    document["timings_ms"] = json!({
        "load": json::milliseconds(answered.started.load_time),
        "run": json::milliseconds(answered.run_time),
    });
    if answered.runs > 1 {
        document["runs"] = json!(answered.runs);
    }
    if let Some(reader) = &answered.reader {
        let mut of_reader = json::head(&reader.selection, &reader.started);
        if let Some(recipe) = &reader.recipe {
            of_reader["recipe"] = recipe_json(recipe);
        }
        of_reader["runs"] = json!(reader.runs);
        of_reader["timings_ms"] = json!({
            "load": json::milliseconds(reader.started.load_time),
            "run": json::milliseconds(reader.time),
        });
        document["reader"] = of_reader;
    }
    document
}

fn recipe_json(recipe: &FittedRecipe) -> Json {
    json!({
        "name": recipe.name,
        "file": recipe.file,
        "values": recipe.values,
    })
}
