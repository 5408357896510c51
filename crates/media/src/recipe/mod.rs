//! Recipes: which models they fit, and the steps from a picture, a sound or a text to tensors and from tensors to an
//! answer.
//!
//! Invariant: a parsed recipe is sound. Its steps exist, read what an earlier step made, of the right kind, and
//! their parameters are valid; the last step makes an answer.

mod builtin;
mod choice;
mod decoder;
mod diffusion;
mod faults;
mod fit;
mod hub;
mod pattern;
mod project;
mod read;
mod repeat;
mod replaced;
mod rounds;
mod run_options;
mod step;
mod synthesizer;
mod utterance;

pub use builtin::{ModelRecipe, RecipeRank, builtin, find};
pub use choice::{
    ChoiceError, DiffusionModels, RecipeChoice, SecondModel, choose, choose_among, set_among,
};
pub use decoder::FittedDecoder;
pub use faults::RecipeError;
pub use fit::{CandidateModel, FittedRecipe, Preparation, ResolvedValue};
pub use rounds::SoundRun;
pub use run_options::ReplyOptions;
pub use synthesizer::FittedSynthesizer;
pub use utterance::TextRun;

pub use crate::operators::ParameterKind;

use std::collections::BTreeMap;

use crate::answer::TypedAnswerKind;
use crate::kind::MediaKind;
use crate::operators::Symbols;
use pattern::TensorPattern;
use pkgtool_engine::tensor::Signature;
use repeat::WindowRepeat;
use serde_json::Value as Json;
use step::{BoundStep, RecipeStep, StepArgument};

/// Name of a package's own recipe, beside its config or in the directory above.
pub const FILE_NAME: &str = "recipe.toml";

/// Stands for any method among those of a recipe.
const ANY_METHOD: &str = "*";

/// A recipe.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Its name.
    pub name: String,
    /// One line about what comes in and what comes out.
    pub summary: String,
    /// The origin of its values.
    pub source: String,
    /// Capability of the model that reads each line of the answer, if the package has one.
    pub then: Option<String>,
    /// Name of the file, for errors and descriptions.
    pub file: String,
    matches: Match,
    /// Families or model tokens that it is for; empty for all.
    only: Vec<String>,
    /// Default values that users may override, by name.
    values: BTreeMap<String, Json>,
    /// Values for certain families, first match first.
    presets: Vec<Preset>,
    /// The decoder or synthesizer that the answer needs beside the model.
    decode: Option<Match>,
    /// The denoiser and the painter of pictures of texts.
    diffusion: Option<[Match; 2]>,
    /// The steps between the model and its synthesizer.
    between: Vec<RecipeStep>,
    /// The kind of what the first step reads.
    takes: MediaKind,
    /// How the model runs over a sound; `None` for once.
    repeat: Option<WindowRepeat>,
    prepare: Vec<RecipeStep>,
    interpret: Vec<RecipeStep>,
    answer: TypedAnswerKind,
}

/// The models that a recipe fits.
#[derive(Debug, Clone)]
struct Match {
    capability: String,
    /// The component, in a variant with several; `None` for any.
    component: Option<String>,
    /// Methods, the preferred one first; empty for any.
    methods: Vec<String>,
    inputs: Vec<TensorPattern>,
    outputs: Vec<TensorPattern>,
    /// Symbols whose known sizes must ascend.
    ascending: Vec<String>,
}

impl Match {
    /// Returns whether a method of a component fits, and adds the sizes of symbols.
    fn fits(&self, component: Option<&str>, signature: &Signature, symbols: &mut Symbols) -> bool {
        let is_method = |name: &String| name == ANY_METHOD || *name == signature.method;
        let is_alike = (component.is_none()
            || self.component.is_none()
            || self.component.as_deref() == component)
            && (self.methods.is_empty() || self.methods.iter().any(is_method))
            && self.inputs.len() == signature.inputs.len()
            && self.outputs.len() == signature.outputs.len();
        let inputs = self.inputs.iter().zip(&signature.inputs);
        let mut tensors = inputs.chain(self.outputs.iter().zip(&signature.outputs));
        is_alike && tensors.all(|(pattern, spec)| pattern.matches(spec, symbols))
    }

    /// Returns the tensors, for errors.
    fn expected(&self) -> String {
        let side = |tensors: &[TensorPattern]| {
            let texts: Vec<String> = tensors.iter().map(ToString::to_string).collect();
            texts.join(", ")
        };
        format!("{} -> {}", side(&self.inputs), side(&self.outputs))
    }
}

/// Values for models of certain families.
#[derive(Debug, Clone)]
struct Preset {
    /// Families or model tokens; a trailing `*` stands for any end.
    names: Vec<String>,
    /// The origin of the values, if it differs from the recipe's.
    source: Option<String>,
    values: BTreeMap<String, Json>,
}

impl Recipe {
    /// Returns one line per tensor that the recipe expects, for errors.
    pub fn expected(&self) -> String {
        self.matches.expected()
    }

    /// Returns the capability that it serves.
    pub fn capability(&self) -> &str {
        &self.matches.capability
    }

    /// Returns the method that it prefers; `None` for a recipe that fits any.
    pub fn preferred_method(&self) -> Option<&str> {
        self.matches.methods.first().map(String::as_str)
    }

    /// Returns the kind of what it reads.
    pub fn takes(&self) -> MediaKind {
        self.takes
    }

    /// Returns the kinds of the parameters that use a value.
    fn kinds_of(&self, name: &str) -> impl Iterator<Item = ParameterKind> {
        let steps = self.prepare.iter().chain(&self.between);
        let steps = steps.chain(&self.interpret);
        let arguments = steps.flat_map(|step| {
            let arguments = step.arguments.iter();
            arguments.map(move |(key, argument)| (step.operator, key, argument))
        });
        arguments.filter_map(move |(operator, key, argument)| {
            let StepArgument::Named(used) = argument else {
                return None;
            };
            let mut parameters = operator.parameters.iter();
            let parameter = parameters.find(|it| it.name == key && used == name)?;
            Some(parameter.kind)
        })
    }
}
