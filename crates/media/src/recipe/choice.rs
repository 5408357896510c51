//! The methods of a package that answer: the preferred one, and one that reads the lines which it finds.

use std::path::Path;

use pkgtool_base::package::Config;
use pkgtool_engine::runtime::selection::{self, Selection, SelectionCriteria, SelectionError};
use pkgtool_engine::tensor::Signature;
use serde_json::Value as Json;

use super::{CandidateModel, FittedDecoder, FittedSynthesizer, ModelRecipe};
use crate::diffusion::{DiffusionShape, SCHEDULER_COMPONENT};

/// A method that answers, with its recipe.
#[derive(Debug)]
pub struct RecipeChoice {
    /// The method.
    pub selection: Selection,
    /// Its recipe.
    pub recipe: ModelRecipe,
    /// The method that reads each line of the answer.
    pub reader: Option<Box<RecipeChoice>>,
    /// The method that decodes what this one encodes.
    pub decoder: Option<Box<SecondModel<FittedDecoder>>>,
    /// The method that makes the sound of what this one predicts.
    pub synthesizer: Option<Box<SecondModel<FittedSynthesizer>>>,
    /// The methods that make a picture of what this one encodes.
    pub diffusion: Option<Box<DiffusionModels>>,
}

/// The methods behind the encoder of texts.
#[derive(Debug)]
pub struct DiffusionModels {
    /// The method that predicts noise.
    pub denoiser: Selection,
    /// The method that converts latents to a picture.
    pub painter: Selection,
    /// What is known of both.
    pub shape: DiffusionShape,
}

/// A method that runs behind another one.
#[derive(Debug)]
pub struct SecondModel<T> {
    /// The method.
    pub selection: Selection,
    /// Its inputs.
    pub fitted: T,
}

/// No method answers.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// The path has no methods to choose from.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// No recipe fits.
    #[error("{0}")]
    Recipe(String),
}

impl RecipeChoice {
    /// Overrides a value of the recipe, or of the reader's if only that one has it.
    pub fn set(&mut self, name: &str, value: Json, origin: &str) -> Result<(), String> {
        let reader = self.reader.as_mut().map(|reader| &mut reader.recipe);
        set_among(&mut self.recipe, reader, name, value, origin)
    }
}

impl RecipeChoice {
    /// Finds the denoiser and the painter, and takes the values of the scheduler's file.
    fn set_diffusion(&mut self, methods: &[Selection]) -> Result<(), String> {
        let methods = methods.iter().map(|it| (it, component(it), &it.signature));
        let found = self.recipe.diffusion(&methods.collect::<Vec<_>>());
        self.diffusion = found.map(|(denoiser, painter, shape)| {
            Box::new(DiffusionModels {
                denoiser: denoiser.clone(),
                painter: painter.clone(),
                shape,
            })
        });
        let scheduler = selection::component_file(&self.selection, SCHEDULER_COMPONENT);
        let scheduler = scheduler.map_err(|error| error.to_string())?;
        let model = &self.selection.model;
        self.recipe.set_scheduler(scheduler.as_deref(), model)
    }
}

/// Overrides a value of a recipe, or of the reader's if only that one has it.
pub fn set_among(
    recipe: &mut ModelRecipe,
    reader: Option<&mut ModelRecipe>,
    name: &str,
    value: Json,
    origin: &str,
) -> Result<(), String> {
    let has = |recipe: &ModelRecipe| recipe.fitted.values.contains_key(name);
    match reader.filter(|reader| has(reader) && !has(recipe)) {
        Some(reader) => reader.set(name, value, origin),
        None => recipe.set(name, value, origin),
    }
}

/// Chooses the method of a package that answers. `capability` replaces those of the package.
pub fn choose(
    path: &Path,
    criteria: &SelectionCriteria,
    capability: Option<&str>,
) -> Result<RecipeChoice, ChoiceError> {
    let methods = selection::candidates(path, criteria)?;
    let Some(first) = methods.first() else {
        // The error of a selection without recipes names what is missing.
        selection::select(path, criteria)?;
        let reason = format!("{}: no model to run", path.display());
        return Err(ChoiceError::Recipe(reason));
    };
    let variant = first.variant.as_ref();
    let config = variant.map(|variant| selection::config(&variant.config));
    let mut config = config.transpose()?.unwrap_or_default();
    if let Some(capability) = capability {
        config.capabilities = vec![capability.to_owned()];
    }
    choose_among(&methods, &config).map_err(ChoiceError::Recipe)
}

/// Chooses among the methods of a variant, at least one.
pub fn choose_among(methods: &[Selection], config: &Config) -> Result<RecipeChoice, String> {
    let mut fits = Vec::new();
    let mut first_error = None;
    for selection in methods {
        match recipe_for(selection, config) {
            Ok(recipe) => fits.push(RecipeChoice {
                selection: selection.clone(),
                recipe,
                reader: None,
                decoder: None,
                synthesizer: None,
                diffusion: None,
            }),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    let ranks = fits.iter().enumerate();
    let best = ranks.min_by_key(|(_, choice)| choice.recipe.rank());
    let (best, _) = best.ok_or_else(|| first_error.unwrap_or_default())?;
    let mut chosen = fits.remove(best);
    let readers = fits
        .into_iter()
        .filter(|choice| choice.recipe.reads_for(&chosen.recipe));
    chosen.reader = readers
        .min_by_key(|choice| choice.recipe.rank())
        .map(Box::new);
    let recipe = &chosen.recipe;
    chosen.decoder = second(methods, |component, it| recipe.decoder(component, it));
    chosen.synthesizer = second(methods, |component, it| recipe.synthesizer(component, it));
    if chosen.recipe.diffuses() {
        chosen.set_diffusion(methods)?;
    }
    Ok(chosen)
}

/// Returns the first method that fits.
fn second<T>(
    methods: &[Selection],
    fit: impl Fn(Option<&str>, &Signature) -> Option<T>,
) -> Option<Box<SecondModel<T>>> {
    methods.iter().find_map(|selection| {
        let fitted = fit(component(selection), &selection.signature)?;
        let selection = selection.clone();
        Some(Box::new(SecondModel { selection, fitted }))
    })
}

fn component(selection: &Selection) -> Option<&str> {
    selection.variant.as_ref()?.component.as_deref()
}

fn recipe_for(selection: &Selection, config: &Config) -> Result<ModelRecipe, String> {
    if config.capabilities.is_empty() {
        return Err(format!(
            "{}: unknown capability: give the package, or add `--as CAPABILITY`, such as `--as classification`",
            selection.model.display()
        ));
    }
    let model = CandidateModel::of(config, component(selection), &selection.signature);
    ModelRecipe::of(&selection.model, &selection.info, &model)
}
