//! `pkgtool run PACKAGE photo.jpg`: an answer by a recipe, in place of tensors.

mod text;

use std::fs;
use std::path::{Path, PathBuf};

use image::RgbImage;
use serde_json::{Value as Json, json};

use super::super::{selection_failure, start_with_notes};
use super::{CompletedRun, RunArgs, json};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use pkgtool_engine::runtime::selection::{self, Selection, SelectionError};
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::answer::TypedAnswer;
use pkgtool_media::draw;
use pkgtool_media::picture::{self, Geometry};
use pkgtool_media::recipe::{self, CandidateModel, FittedRecipe, ModelRecipe, Recipe};

/// Maximum size of a picture's file, in bytes.
const MAX_PICTURE_BYTES: u64 = 256 << 20;

/// Options for answers.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Answers")]
pub(super) struct AnswerArgs {
    /// A picture (JPEG, PNG, WebP, GIF): run the model on it and show labels, boxes, classes or a vector
    #[arg(value_name = "PICTURE", conflicts_with_all = ["inputs", "dims", "chain", "steps", "step_inputs",
        "feeds", "bundled", "output_dir", "check_finite", "texts", "mean", "std"])]
    pub(super) given: Option<PathBuf>,

    /// Override a value of the recipe, such as `threshold=0.7` or `labels=["cat","dog"]`; may be given several
    /// times
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "given")]
    set: Vec<String>,

    /// Save the picture with the answer drawn over it, or the picture that the model gives, as PNG or JPEG
    #[arg(long, value_name = "FILE", requires = "given")]
    save: Option<PathBuf>,

    /// Show the outputs as they are. The recipe only prepares the inputs
    #[arg(long, requires = "given", conflicts_with_all = ["save"])]
    raw: bool,

    /// Treat a model file without a package as one with this capability
    #[arg(long = "as", value_name = "CAPABILITY", requires = "given")]
    capability: Option<String>,
}

/// An answer, and how it was found.
struct Answered {
    selection: Selection,
    started: Started,
    recipe: FittedRecipe,
    answer: TypedAnswer,
    saved: Option<PathBuf>,
}

/// A model, and the recipe for it.
struct Chosen {
    selection: Selection,
    recipe: FittedRecipe,
}

/// A run on a prepared picture.
struct PreparedRun {
    chosen: Chosen,
    picture: RgbImage,
    inputs: Vec<Tensor>,
    geometry: Geometry,
    started: Started,
}

/// Runs the model on the picture of the arguments, and prints the answer.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let path = args.answer.given.as_ref();
    let path = path.expect("the caller has checked that there is one");
    if args.answer.raw {
        return raw(args, path);
    }
    let answered = answer(args, path)?;
    if args.json {
        output::print(&format!("{:#}\n", document(&answered)))?;
    } else {
        output::print(&text::render(&answered))?;
    }
    Ok(Exit::Clean)
}

/// Runs the model on the prepared picture, and prints the outputs.
fn raw(args: &RunArgs, path: &Path) -> Result<Exit, Failure> {
    let PreparedRun {
        chosen,
        inputs,
        started,
        ..
    } = prepared(args, path)?;
    let stages = [CompletedRun {
        selection: chosen.selection,
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

fn prepared(args: &RunArgs, path: &Path) -> Result<PreparedRun, Failure> {
    let chosen = chosen(args)?;
    let picture = args.target.within("reading the picture", || read(path))?;
    let prepare = || chosen.recipe.preparation.run(picture.clone());
    let prepared = args.target.within("preparing the picture", prepare);
    let fault = |reason| Failure::Other(format!("{}: {reason}", path.display()));
    let (inputs, geometry) = prepared.map_err(fault)?;
    let wish = args
        .target
        .start_request(&chosen.selection, args.variant.which());
    let started = start_with_notes(&wish, &inputs, &args.target.launcher()?)?;
    Ok(PreparedRun {
        chosen,
        picture,
        inputs,
        geometry,
        started,
    })
}

fn answer(args: &RunArgs, path: &Path) -> Result<Answered, Failure> {
    let PreparedRun {
        chosen: Chosen { selection, recipe },
        picture,
        geometry,
        started,
        ..
    } = prepared(args, path)?;
    let outputs = &started.first_answer.outputs;
    let interpret = || recipe.interpret(outputs, geometry);
    let answer = args.target.within("interpreting the outputs", interpret);
    let answer = answer.map_err(|reason| {
        let file = &recipe.file;
        Failure::Other(format!(
            "{file}: {reason}; `--raw` shows the outputs as they are"
        ))
    })?;
    let saved = args.answer.save.clone();
    if let Some(file) = &saved {
        save(file, &answer, &picture)?;
    }
    Ok(Answered {
        selection,
        started,
        recipe,
        answer,
        saved,
    })
}

/// Selects the model and its recipe. In a variant with several components, selects one that a recipe names.
fn chosen(args: &RunArgs) -> Result<Chosen, Failure> {
    let which = args.variant.which();
    let error = match args.target.select(&args.path, which) {
        Ok(selection) => return with_recipe(args, selection),
        Err(error) => error,
    };
    if matches!(error, SelectionError::Refused(_)) && args.target.component.is_none() {
        let components = recipe::builtin().iter().filter_map(Recipe::component);
        for component in components {
            let mut choice = args.target.selection_criteria(which);
            choice.component = Some(component.to_owned());
            if let Ok(selection) = selection::select(&args.path, &choice) {
                return with_recipe(args, selection);
            }
        }
    }
    Err(selection_failure(&error))
}

fn with_recipe(args: &RunArgs, selection: Selection) -> Result<Chosen, Failure> {
    let model = selection.model.display();
    let variant = selection.variant.as_ref();
    let config = variant
        .map(|variant| selection::config(&variant.config))
        .transpose();
    let config = config.map_err(|error| selection_failure(&error))?;
    let mut capabilities = config
        .as_ref()
        .map_or_else(Vec::new, |it| it.capabilities.clone());
    if let Some(capability) = &args.answer.capability {
        capabilities = vec![capability.clone()];
    }
    if capabilities.is_empty() {
        return Err(Failure::Other(format!(
            "{model}: unknown capability: give the package, or add `--as CAPABILITY`, such as `--as classification`"
        )));
    }
    let facts = CandidateModel {
        capabilities: &capabilities,
        names: [
            config.as_ref().and_then(|it| it.family.as_deref()),
            config.as_ref().and_then(|it| it.model.as_deref()),
        ],
        component: variant.and_then(|variant| variant.component.as_deref()),
        signature: &selection.signature,
    };
    let recipe = ModelRecipe::of(&selection.model, &selection.info, &facts);
    let mut recipe = recipe.map_err(Failure::Other)?;
    for setting in &args.answer.set {
        let (name, value) = setting.split_once('=').ok_or_else(|| {
            Failure::Other(format!(
                "--set {setting}: expected NAME=VALUE, such as `threshold=0.7`"
            ))
        })?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        let set = recipe.set(name, value, "--set");
        set.map_err(|reason| Failure::Other(format!("--set {setting}: {reason}")))?;
    }
    Ok(Chosen {
        recipe: recipe.fitted,
        selection,
    })
}

fn read(path: &Path) -> Result<RgbImage, Failure> {
    let at = path.display();
    let fault = |reason: String| Failure::Other(format!("{at}: {reason}"));
    let size = fs::metadata(path)
        .map_err(|error| fault(error.to_string()))?
        .len();
    if size > MAX_PICTURE_BYTES {
        let most = MAX_PICTURE_BYTES >> 20;
        return Err(fault(format!(
            "too large: expected a picture of at most {most} MiB"
        )));
    }
    let bytes = fs::read(path).map_err(|error| fault(error.to_string()))?;
    picture::decode(&bytes).map_err(fault)
}

fn save(file: &Path, answer: &TypedAnswer, picture: &RgbImage) -> Result<(), Failure> {
    let at = file.display();
    let fault = |reason: String| Failure::Other(format!("--save {at}: {reason}"));
    let drawn = draw::draw(answer, picture);
    let drawn = drawn.ok_or_else(|| fault("the answer has no places in the picture".to_owned()))?;
    drawn.save(file).map_err(|error| fault(error.to_string()))
}

/// Renders the result as JSON. Later versions only add fields.
fn document(answered: &Answered) -> Json {
    let mut document = json::head(&answered.selection, &answered.started);
    document["recipe"] = json!({
        "name": answered.recipe.name,
        "file": answered.recipe.file,
        "values": answered.recipe.values,
    });
    document["answer"] = answered.answer.to_json();
    document["saved"] = json!(answered.saved);
    document["timings_ms"] = json!({
        "load": json::milliseconds(answered.started.load_time),
        "run": json::milliseconds(answered.started.first_answer.time),
    });
    document
}
