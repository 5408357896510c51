//! Answers of a package by its recipe. Its models stay loaded from one file to the next.

mod generation;
mod picture;
mod reply;
mod sound;
mod speech;
mod utterance;

use std::fs;
use std::path::Path;
use std::time::Duration;

use image::RgbImage;
use serde_json::{Value as Json, json};

use super::target_args::{TargetArgs, VariantChoice};
use super::{selection_failure, start_with_notes};
use crate::cli::exit::Failure;
use pkgtool_engine::runtime::selection::{self, Selection};
use pkgtool_engine::runtime::target::{StartRequest, Started};
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{Carrying, RunStart, Session as _};
use pkgtool_media::MediaKind;
use pkgtool_media::answer::{TypedAnswer, TypedAnswerKind};
use pkgtool_media::picture::decode;
use pkgtool_media::recipe::{self, ChoiceError, FittedRecipe, RecipeChoice};
use pkgtool_text::tokenizer::{Tokenizer, TokenizerFiles};

/// Maximum size of the file of a picture or sound, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Name of the component that is a tokenizer.
const TOKENIZER_COMPONENT: &str = "tokenizer";

/// What a model gets.
#[derive(Debug, Clone, Copy)]
pub(super) enum GivenMedia<'g> {
    /// The file of a picture or sound.
    File(&'g Path),
    /// A text to speak.
    Text(&'g str),
    /// Phonemes to speak.
    Phonemes(&'g str),
}

impl<'g> GivenMedia<'g> {
    /// Returns the file.
    fn file(self, takes: MediaKind) -> Result<&'g Path, Failure> {
        match self {
            Self::File(path) => Ok(path),
            Self::Text(_) | Self::Phonemes(_) => Err(Failure::Other(format!(
                "the model takes a {}, not a text",
                takes.noun()
            ))),
        }
    }
}

/// The recipe that a user asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecipeWish<'a> {
    /// The capability, in place of those of the package.
    pub(super) capability: Option<&'a str>,
    /// Values, as `NAME=VALUE`.
    pub(super) settings: &'a [String],
}

/// A model and the time of its runs.
#[derive(Default)]
pub(super) struct TimedModel {
    /// The model, after its first run.
    pub(super) started: Option<Started>,
    /// Time of all runs.
    pub(super) time: Duration,
    /// Number of runs.
    pub(super) runs: usize,
    /// What it keeps between its runs.
    carrying: Carrying,
}

/// The engine and limits of all models of an answer.
#[derive(Clone, Copy)]
struct AnswerTarget<'a> {
    args: &'a TargetArgs,
    which: VariantChoice<'a>,
}

/// A package that answers.
pub(super) struct AnsweringModel<'a> {
    path: &'a Path,
    target: AnswerTarget<'a>,
    /// The method that answers, its recipe, and the methods behind it.
    pub(super) choice: RecipeChoice,
    /// The model of this method.
    pub(super) first: TimedModel,
    /// The model of the method behind it.
    pub(super) second: TimedModel,
    /// The model that converts latents to a picture.
    third: TimedModel,
    /// The tokenizer of transcripts and pictures.
    tokenizer: Option<Tokenizer>,
}

impl AnswerTarget<'_> {
    /// Starts a model that keeps `carrying` between its runs.
    fn start(
        self,
        selection: &Selection,
        carrying: &Carrying,
        inputs: &[Tensor],
    ) -> Result<Started, Failure> {
        let wish = StartRequest {
            carrying: carrying.clone(),
            ..self.args.start_request(selection, self.which)
        };
        start_with_notes(&wish, inputs, &self.args.launcher()?)
    }
}

impl TimedModel {
    /// Runs the model; the first run starts it.
    fn run(
        &mut self,
        target: AnswerTarget<'_>,
        selection: &Selection,
        begins: RunStart,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        self.runs += 1;
        let Some(started) = &mut self.started else {
            let mut started = target.start(selection, &self.carrying, inputs)?;
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
}

impl<'a> AnsweringModel<'a> {
    /// Chooses the model that answers and its recipe. No model starts yet.
    pub(super) fn new(
        path: &'a Path,
        args: &'a TargetArgs,
        which: VariantChoice<'a>,
        wish: RecipeWish<'_>,
    ) -> Result<Self, Failure> {
        let criteria = args.selection_criteria(which);
        let chosen = recipe::choose(path, &criteria, wish.capability);
        let choice = chosen.map_err(|error| match error {
            ChoiceError::Selection(error) => selection_failure(&error),
            ChoiceError::Recipe(reason) => Failure::Other(reason),
        })?;
        let mut model = Self {
            path,
            target: AnswerTarget { args, which },
            choice,
            first: TimedModel::default(),
            second: TimedModel::default(),
            third: TimedModel::default(),
            tokenizer: None,
        };
        model.set(wish.settings)?;
        Ok(model)
    }

    /// Chooses the model that reads pictures for a chat.
    pub(super) fn of_pictures(
        path: &'a Path,
        args: &'a TargetArgs,
        which: VariantChoice<'a>,
    ) -> Result<Self, Failure> {
        let wish = RecipeWish {
            capability: None,
            settings: &[],
        };
        let model = Self::new(path, args, which, wish).map_err(|failure| match failure {
            Failure::Other(reason) => Failure::Other(format!(
                "--image: no model of the package reads pictures for a chat: {reason}"
            )),
            failure => failure,
        })?;
        if model.recipe().answer == TypedAnswerKind::Reply {
            return Ok(model);
        }
        let recipe = &model.recipe().name;
        Err(Failure::Other(format!(
            "--image: the package does not chat about pictures: its recipe is {recipe}; `pkgtool run` answers pictures"
        )))
    }

    /// Overrides values of the recipe, given as `NAME=VALUE`.
    pub(super) fn set(&mut self, settings: &[String]) -> Result<(), Failure> {
        for setting in settings {
            let (name, value) = setting.split_once('=').ok_or_else(|| {
                Failure::Other(format!(
                    "--set {setting}: expected NAME=VALUE, such as `threshold=0.7`"
                ))
            })?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            let set = self.choice.set(name, value, "--set");
            set.map_err(|reason| Failure::Other(format!("--set {setting}: {reason}")))?;
        }
        Ok(())
    }

    /// Overrides a value of the recipe, if it has one of this name.
    pub(super) fn prefer(&mut self, name: &str, value: &Json, origin: &str) {
        // Recipes without the value work as they are.
        let _ = self.choice.set(name, value.clone(), origin);
    }

    /// Returns the recipe.
    pub(super) fn recipe(&self) -> &FittedRecipe {
        &self.choice.recipe.fitted
    }

    /// Returns the kind of what the model reads.
    pub(super) fn takes(&self) -> MediaKind {
        self.recipe().takes
    }

    /// Returns the method behind the first one.
    pub(super) fn second_selection(&self) -> Option<&Selection> {
        let choice = &self.choice;
        let reader = choice.reader.as_ref().map(|it| &it.selection);
        let decoder = choice.decoder.as_ref().map(|it| &it.selection);
        let synthesizer = choice.synthesizer.as_ref().map(|it| &it.selection);
        let denoiser = choice.diffusion.as_ref().map(|it| &it.denoiser);
        reader.or(decoder).or(synthesizer).or(denoiser)
    }

    /// Returns the time of all runs so far.
    pub(super) fn time(&self) -> Duration {
        self.first.time + self.second.time + self.third.time
    }

    /// Answers.
    pub(super) fn answer(&mut self, given: GivenMedia<'_>) -> Result<TypedAnswer, Failure> {
        match self.takes() {
            MediaKind::Picture if self.recipe().answer == TypedAnswerKind::Reply => {
                reply::answer(self, given)
            }
            MediaKind::Picture => picture::answer(self, given),
            MediaKind::Text if self.choice.recipe.diffuses() => generation::answer(self, given),
            MediaKind::Text => utterance::answer(self, given),
            MediaKind::Sound if self.choice.recipe.needs_decoder() => speech::answer(self, given),
            MediaKind::Sound => sound::answer(self, given),
        }
    }

    /// Runs the model once, on the first inputs that the recipe makes. Returns them too.
    pub(super) fn raw(&mut self, given: GivenMedia<'_>) -> Result<(Vec<Tensor>, Started), Failure> {
        let inputs = match self.takes() {
            MediaKind::Picture => picture::inputs(self, given)?.inputs,
            MediaKind::Sound => sound::first_inputs(self, given)?,
            MediaKind::Text if self.choice.recipe.diffuses() => {
                generation::first_inputs(self, given)?
            }
            MediaKind::Text => utterance::first_inputs(self, given)?,
        };
        let started = self
            .target
            .start(&self.choice.selection, &Carrying::default(), &inputs)?;
        Ok((inputs, started))
    }

    /// Runs the model that answers.
    fn run(&mut self, begins: RunStart, inputs: &[Tensor]) -> Result<Vec<Tensor>, Failure> {
        let selection = &self.choice.selection;
        self.first.run(self.target, selection, begins, inputs)
    }

    /// Returns the failure of outputs that do not suit the recipe.
    fn misfit(&self, reason: &str) -> Failure {
        misfit(self.recipe(), reason)
    }
}

/// Decodes the picture of a file.
pub(super) fn picture(path: &Path) -> Result<RgbImage, Failure> {
    load(path, MediaKind::Picture, decode)
}

/// Reads the file of a picture, and checks that it can be decoded.
pub(super) fn picture_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = read(path, MediaKind::Picture)?;
    decode(&bytes).map_err(|reason| unsuited(path, &reason))?;
    Ok(bytes)
}

/// Returns the failure of a file that does not suit the model.
fn unsuited(path: &Path, reason: &str) -> Failure {
    Failure::Other(format!("{}: {reason}", path.display()))
}

/// Returns the failure of outputs that do not suit a recipe.
fn misfit(recipe: &FittedRecipe, reason: &str) -> Failure {
    let file = &recipe.file;
    Failure::Other(format!(
        "{file}: {reason}; `--raw` shows the outputs as they are"
    ))
}

/// Loads the tokenizer of the package.
fn tokenizer(selection: &Selection) -> Result<Tokenizer, Failure> {
    let missing = || {
        Failure::Other(format!(
            "{}: no tokenizer: the package's config must name one in `tokenizer`, or as a component",
            selection.model.display()
        ))
    };
    let variant = selection.variant.as_ref().ok_or_else(missing)?;
    let config = selection::config(&variant.config);
    let config = config.map_err(|error| Failure::Other(error.to_string()))?;
    let other = |error: pkgtool_text::tokenizer::TokenizerError| Failure::Other(error.to_string());
    let mut files = TokenizerFiles::of(&variant.config, &config).map_err(other)?;
    if files.is_none() {
        let file = selection::component_file(selection, TOKENIZER_COMPONENT);
        let file = file.map_err(|error| Failure::Other(error.to_string()))?;
        files = file.map(TokenizerFiles::beside);
    }
    Tokenizer::of(&files.ok_or_else(missing)?).map_err(other)
}

/// Reads a file of this kind and decodes it.
fn load<T>(
    path: &Path,
    kind: MediaKind,
    decode: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<T, Failure> {
    let fault = |reason: String| unsuited(path, &reason);
    decode(&read(path, kind)?).map_err(fault)
}

/// Reads a file of this kind.
fn read(path: &Path, kind: MediaKind) -> Result<Vec<u8>, Failure> {
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
    Ok(bytes)
}
