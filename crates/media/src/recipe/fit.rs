//! A recipe for one model: the values that apply, each with its origin, and the run of the steps.

use std::collections::BTreeMap;

use image::RgbImage;
use pkgtool_base::package::Config;
use pkgtool_engine::tensor::{Signature, Tensor, TensorSpec};
use pkgtool_model::Dim;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::read::{PICTURE, SOUND, TEXT};
use super::repeat::WindowRepeat;
use super::step::RecipeStep;
use super::{BoundStep, Recipe, TensorPattern};
use crate::answer::{SpeechAnswer, TextAnswer, TypedAnswer, TypedAnswerKind};
use crate::diffusion::PromptTokens;
use crate::kind::MediaKind;
use crate::labels::Labels;
use crate::operators::{
    Arguments, Array, Data, ParameterKind, StepContext, SymbolRule, Symbols, prompt_length,
};
use crate::picture::Geometry;
use crate::voice::PieceContext;

/// What is known of a model before it runs.
#[derive(Debug, Clone, Copy)]
pub struct CandidateModel<'a> {
    /// Capabilities of the package.
    pub capabilities: &'a [String],
    /// Family and model token of the package.
    pub names: [Option<&'a str>; 2],
    /// Component of a multi-component variant.
    pub component: Option<&'a str>,
    /// Signature of the method.
    pub signature: &'a Signature,
}

impl<'a> CandidateModel<'a> {
    /// Describes a model by the config of its package.
    pub fn of(config: &'a Config, component: Option<&'a str>, signature: &'a Signature) -> Self {
        Self {
            capabilities: &config.capabilities,
            names: [config.family.as_deref(), config.model.as_deref()],
            component,
            signature,
        }
    }

    /// Returns whether its family or model token is among these names; a trailing `*` stands for any end.
    fn is_named(&self, names: &[String]) -> bool {
        let mut pairs = names
            .iter()
            .flat_map(|name| self.names.iter().flatten().map(move |own| (name, own)));
        pairs.any(|(name, own)| match name.strip_suffix('*') {
            Some(start) => own.starts_with(start),
            None => name == own,
        })
    }
}

/// A value of a recipe for one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedValue {
    /// The value.
    pub value: Json,
    /// Its origin, for people.
    pub origin: String,
}

/// A recipe with the values for one model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FittedRecipe {
    /// Name of the recipe.
    pub name: String,
    /// The recipe's summary.
    pub summary: String,
    /// File of the recipe.
    pub file: String,
    /// The origin of the recipe's own values.
    pub source: String,
    /// The kind of what it reads.
    pub takes: MediaKind,
    /// The kind of its answers.
    pub answer: TypedAnswerKind,
    /// Values by name.
    pub values: BTreeMap<String, ResolvedValue>,
    /// The steps to the model's inputs.
    pub preparation: Preparation,
    /// How the model runs over a sound; `None` for once.
    pub(super) repeat: Option<WindowRepeat>,
    /// Names of the outputs, in order.
    pub(super) outputs: Vec<String>,
    /// The steps to the inputs of a synthesizer.
    pub(super) between: Vec<BoundStep>,
    interpret: Vec<BoundStep>,
    /// Labels of the package or of a request.
    labels: Option<Labels>,
}

/// The steps from a picture or a window of a sound to a model's inputs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Preparation {
    inputs: Vec<InputTarget>,
    symbols: Symbols,
    steps: Vec<BoundStep>,
}

/// A model's inputs for a window of a sound.
pub(super) struct PreparedWindow {
    pub(super) inputs: Vec<Tensor>,
    /// The rows of a matrix among them, without those that fill it.
    pub(super) rows: Option<usize>,
}

/// A model's inputs for a piece of a text.
pub(super) struct PreparedPiece {
    pub(super) inputs: Vec<Tensor>,
    /// Number of ids.
    pub(super) tokens: usize,
    /// Results of the steps, by name.
    pub(super) known: BTreeMap<String, Data>,
}

/// An input of the model that the steps make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InputTarget {
    name: String,
    dtype: pkgtool_engine::tensor::DType,
    /// True if the channels are the last dimension.
    channels_last: bool,
    /// Sizes; the pattern's for those that the model leaves open, or 1.
    sizes: Vec<u64>,
}

impl Recipe {
    /// Returns the recipe for a model, or `None` if it does not fit.
    pub fn fit(&self, model: &CandidateModel<'_>) -> Option<FittedRecipe> {
        let matches = &self.matches;
        let signature = model.signature;
        let mut symbols = Symbols::new();
        if !model.capabilities.contains(&matches.capability)
            || !(self.only.is_empty() || model.is_named(&self.only))
            || !matches.fits(model.component, signature, &mut symbols)
        {
            return None;
        }
        let ascending = matches.ascending.iter();
        let ascending: Vec<u64> = ascending
            .filter_map(|symbol| *symbols.get(symbol)?)
            .collect();
        if !ascending.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let mut fitted = FittedRecipe {
            name: self.name.clone(),
            summary: self.summary.clone(),
            file: self.file.clone(),
            source: self.source.clone(),
            takes: self.takes,
            answer: self.answer,
            values: self.resolved(model),
            repeat: self.repeat.clone(),
            preparation: Preparation {
                inputs: targets(&matches.inputs, signature),
                symbols,
                steps: Vec::new(),
            },
            outputs: matches
                .outputs
                .iter()
                .map(|tensor| tensor.name.clone())
                .collect(),
            between: Vec::new(),
            interpret: Vec::new(),
            labels: None,
        };
        fitted.bind(self);
        Some(fitted)
    }

    fn resolved(&self, model: &CandidateModel<'_>) -> BTreeMap<String, ResolvedValue> {
        let mut presets = self.presets.iter();
        let preset = presets.find(|preset| model.is_named(&preset.names));
        let values = self.values.iter().map(|(name, value)| {
            let own = preset.and_then(|preset| Some((preset, preset.values.get(name)?)));
            let resolved = match own {
                Some((preset, value)) => ResolvedValue {
                    value: value.clone(),
                    origin: format!(
                        "preset for {} ({})",
                        preset.names.join(", "),
                        preset.source.as_ref().unwrap_or(&self.source)
                    ),
                },
                None => ResolvedValue {
                    value: value.clone(),
                    origin: own_origin(&self.name, &self.source),
                },
            };
            (name.clone(), resolved)
        });
        values.collect()
    }

    /// Overrides a value of a fitted recipe, after a check against every parameter that uses it.
    pub fn set(
        &self,
        fitted: &mut FittedRecipe,
        name: &str,
        value: Json,
        origin: &str,
    ) -> Result<(), String> {
        let Some(resolved) = fitted.values.get_mut(name) else {
            let names: Vec<&str> = fitted.values.keys().map(String::as_str).collect();
            return Err(format!(
                "unknown value `{name}`: recipe `{}` has {}",
                self.name,
                names.join(", ")
            ));
        };
        for kind in self.kinds_of(name) {
            kind.check(&value)
                .map_err(|reason| format!("`{name}`: {reason}"))?;
        }
        *resolved = ResolvedValue {
            value,
            origin: origin.to_owned(),
        };
        // Labels that a user gives take precedence over those of the package.
        if self
            .kinds_of(name)
            .any(|kind| kind == ParameterKind::Labels)
        {
            fitted.labels = None;
        }
        fitted.bind(self);
        Ok(())
    }
}

/// Returns the inputs that patterns describe.
pub(super) fn targets(patterns: &[TensorPattern], signature: &Signature) -> Vec<InputTarget> {
    let inputs = patterns.iter().zip(&signature.inputs);
    let targets = inputs.map(|(pattern, spec)| InputTarget {
        name: pattern.name.clone(),
        dtype: spec.dtype,
        channels_last: channels_last(pattern),
        sizes: sizes(pattern, spec),
    });
    targets.collect()
}

/// Returns the origin of a recipe's own values, for people.
fn own_origin(name: &str, source: &str) -> String {
    format!("recipe `{name}` ({source})")
}

/// Returns the sizes of a tensor. The pattern has those that the model leaves open.
fn sizes(pattern: &TensorPattern, spec: &TensorSpec) -> Vec<u64> {
    let dims = spec.dims.as_deref().unwrap_or_default();
    let rank = dims.len();
    let sizes = dims.iter().enumerate().map(|(place, dim)| match dim {
        Dim::Fixed(size) => *size,
        _ => pattern.size_from_end(rank - 1 - place),
    });
    sizes.collect()
}

/// Returns whether a pattern has the channels behind the width.
fn channels_last(pattern: &TensorPattern) -> bool {
    pattern.place_from_end("W") == Some(1) && pattern.place_from_end("H") == Some(2)
}

impl FittedRecipe {
    fn bind(&mut self, recipe: &Recipe) {
        let value = |name: &str| {
            self.values
                .get(name)
                .map_or(Json::Null, |it| it.value.clone())
        };
        let bound = |steps: &[RecipeStep]| steps.iter().map(|step| step.bind(&value)).collect();
        let (prepare, interpret) = (bound(&recipe.prepare), bound(&recipe.interpret));
        self.between = bound(&recipe.between);
        (self.preparation.steps, self.interpret) = (prepare, interpret);
    }

    /// Sets the labels that apply if the recipe's value leaves them to the package.
    #[must_use]
    pub fn with_labels(mut self, labels: Option<Labels>) -> Self {
        self.labels = labels;
        self
    }

    /// Returns whether a value is the recipe's own.
    pub fn is_own(&self, value: &ResolvedValue) -> bool {
        value.origin == own_origin(&self.name, &self.source)
    }

    /// Returns the labels of the package, if they apply.
    pub fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// Converts the model's outputs for a picture to an answer.
    pub fn interpret(&self, outputs: &[Tensor], geometry: Geometry) -> Result<TypedAnswer, String> {
        let named = self.outputs.iter().zip(outputs);
        let named = named.map(|(name, tensor)| (name.clone(), Array::of(tensor)));
        self.interpreted(named, geometry, 0)
    }

    /// Converts the outputs for a piece of a text to speech.
    pub(super) fn interpret_piece(
        &self,
        outputs: impl Iterator<Item = (String, Array)>,
    ) -> Result<SpeechAnswer, String> {
        match self.interpreted(outputs, Geometry::same([1, 1]), 0)? {
            TypedAnswer::Speech(speech) => Ok(speech),
            _ => Err("the recipe answers with no speech".to_owned()),
        }
    }

    /// Converts the outputs for a sound of this many samples to an answer.
    pub(super) fn interpret_sound(
        &self,
        outputs: impl Iterator<Item = (String, Array)>,
        samples: usize,
    ) -> Result<TypedAnswer, String> {
        self.interpreted(outputs, Geometry::same([1, 1]), samples)
    }

    fn interpreted(
        &self,
        outputs: impl Iterator<Item = (String, Array)>,
        geometry: Geometry,
        samples: usize,
    ) -> Result<TypedAnswer, String> {
        let mut context = StepContext {
            geometry,
            samples,
            labels: self.labels.as_ref(),
            ..StepContext::new(&self.preparation.symbols)
        };
        let mut known: BTreeMap<String, Data> = outputs
            .map(|(name, array)| (name, Data::Values(array)))
            .collect();
        let last = run(&self.interpret, &mut known, &mut context)?;
        match known.remove(&last) {
            Some(Data::Answer(answer)) => Ok(answer),
            _ => Err("the last step makes no answer".to_owned()),
        }
    }

    /// Returns the values of the last step's parameters.
    pub(super) fn last_arguments(&self) -> Result<Arguments, String> {
        let step = self.interpret.last().ok_or("the recipe has no step")?;
        Ok(step.resolved()?.1)
    }

    /// Converts a window of samples to the model's inputs.
    pub fn window(&self, samples: Vec<f32>) -> Result<Vec<Tensor>, String> {
        let window = self.preparation.window(samples, 0, &BTreeMap::new())?;
        Ok(window.map(|window| window.inputs).unwrap_or_default())
    }

    /// Converts the outputs of a model that reads text.
    pub fn interpret_text(
        &self,
        outputs: &[Tensor],
        geometry: Geometry,
    ) -> Result<TextAnswer, String> {
        match self.interpret(outputs, geometry)? {
            TypedAnswer::Text(answer) => Ok(answer),
            _ => Err("the recipe answers with no text".to_owned()),
        }
    }
}

impl Preparation {
    pub(super) fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Converts a picture to the model's inputs.
    pub fn run(&self, picture: RgbImage) -> Result<(Vec<Tensor>, Geometry), String> {
        let mut context = StepContext {
            geometry: Geometry::same([picture.width(), picture.height()]),
            ..StepContext::new(&self.symbols)
        };
        let mut known = BTreeMap::from([(PICTURE.to_owned(), Data::Picture(picture))]);
        let last = run(&self.steps, &mut known, &mut context)?;
        let tensors = tensors(&self.inputs, &known, self.only(&last))?;
        Ok((tensors, context.geometry))
    }

    /// Converts a piece of a text to the model's inputs.
    pub(super) fn piece(&self, piece: PieceContext<'_>) -> Result<PreparedPiece, String> {
        let mut context = StepContext {
            piece: Some(piece),
            ..StepContext::new(&self.symbols)
        };
        let text = Data::Text(piece.phonemes.to_owned());
        let mut known = BTreeMap::from([(TEXT.to_owned(), text)]);
        let last = run(&self.steps, &mut known, &mut context)?;
        Ok(PreparedPiece {
            inputs: tensors(&self.inputs, &known, self.only(&last))?,
            tokens: context.tokens,
            known,
        })
    }

    /// Returns the values of a step's parameters, if a step has this name.
    fn arguments(&self, step: &str) -> Option<Result<Arguments, String>> {
        let found = self.steps.iter().find(|it| it.operator == step)?;
        Some(found.resolved().map(|(_, arguments)| arguments))
    }

    /// Returns the name of the voice that the model takes; `None` for a model without voices.
    pub(super) fn voice(&self) -> Result<Option<String>, String> {
        let arguments = self.arguments("voice").transpose()?;
        Ok(arguments.map(|it| it.word("voice").to_owned()))
    }

    /// Returns the maximum number of phonemes of a piece.
    pub(super) fn most_phonemes(&self) -> Result<usize, String> {
        let arguments = self.arguments("symbols").transpose()?;
        let arguments = arguments.ok_or("no step makes ids of phonemes")?;
        let rule = SymbolRule::of(&arguments, &StepContext::new(&self.symbols));
        Ok(rule.phonemes())
    }

    /// Converts the tokens of a text to the model's inputs.
    pub(super) fn prompt(&self, tokens: &PromptTokens) -> Result<Vec<Tensor>, String> {
        let mut context = StepContext {
            prompt: Some(tokens),
            ..StepContext::new(&self.symbols)
        };
        let mut known = BTreeMap::from([(TEXT.to_owned(), Data::Text(String::new()))]);
        let last = run(&self.steps, &mut known, &mut context)?;
        tensors(&self.inputs, &known, self.only(&last))
    }

    /// Returns the number of tokens of a text.
    pub(super) fn prompt_length(&self) -> Result<usize, String> {
        let arguments = self.arguments("prompt").transpose()?;
        let arguments = arguments.ok_or("no step makes tokens of a text")?;
        Ok(prompt_length(&arguments, &StepContext::new(&self.symbols)))
    }

    /// Returns what the last step made, if it is the only input.
    fn only<'l>(&self, last: &'l str) -> Option<&'l str> {
        (self.inputs.len() == 1).then_some(last)
    }

    /// Converts a window of a sound to the model's inputs, and counts the rows of a matrix among them; `min_rows` is the
    /// number that the model needs. Inputs that no step makes are in `state`, or zeros. Returns `None` for a window
    /// without a row.
    pub(super) fn window(
        &self,
        samples: Vec<f32>,
        min_rows: usize,
        state: &BTreeMap<String, Tensor>,
    ) -> Result<Option<PreparedWindow>, String> {
        let mut context = StepContext {
            samples: samples.len(),
            ..StepContext::new(&self.symbols)
        };
        let mut known = BTreeMap::from([(SOUND.to_owned(), Data::Sound(samples))]);
        let last = run(&self.steps, &mut known, &mut context)?;
        let mut rows = None;
        let mut tensors = Vec::new();
        for input in &self.inputs {
            if let Some(tensor) = state.get(&input.name) {
                tensors.push(tensor.clone());
                continue;
            }
            let Ok(array) = input.made(&known, self.only(&last)) else {
                tensors.push(input.zeros()?);
                continue;
            };
            let [count, width] = array.shape[..] else {
                tensors.push(input.tensor(array)?);
                continue;
            };
            if count == 0 {
                return Ok(None);
            }
            rows = Some(count);
            let mut array = array.clone();
            array.shape[0] = count.max(min_rows);
            array.values.resize(array.shape[0] * width, 0.0);
            tensors.push(input.tensor(&array)?);
        }
        Ok(Some(PreparedWindow {
            inputs: tensors,
            rows,
        }))
    }
}

/// Runs steps, and returns the name of what the last one made.
pub(super) fn run(
    steps: &[BoundStep],
    known: &mut BTreeMap<String, Data>,
    context: &mut StepContext<'_>,
) -> Result<String, String> {
    let mut last = String::new();
    for step in steps {
        let (operator, arguments) = step.resolved()?;
        let from = step.from.iter().map(|name| known.get(name));
        let from: Option<Vec<&Data>> = from.collect();
        let from = from.ok_or_else(|| format!("`{}` reads what no step made", operator.name))?;
        let made = (operator.run)(&from, &arguments, context);
        let made = made.map_err(|reason| format!("step `{}`: {reason}", operator.name))?;
        known.insert(step.to.clone(), made);
        last.clone_from(&step.to);
    }
    Ok(last)
}

/// Converts what steps made to the inputs; `only` names it for a single input.
pub(super) fn tensors(
    inputs: &[InputTarget],
    known: &BTreeMap<String, Data>,
    only: Option<&str>,
) -> Result<Vec<Tensor>, String> {
    let tensors = inputs.iter();
    let tensors = tensors.map(|input| input.tensor(input.made(known, only)?));
    tensors.collect()
}

impl InputTarget {
    /// Returns the array that a step made for it: by its name, or the last one for a single input.
    fn made<'d>(
        &self,
        known: &'d BTreeMap<String, Data>,
        only: Option<&str>,
    ) -> Result<&'d Array, String> {
        let of_last = only.and_then(|last| known.get(last));
        match known.get(&self.name).or(of_last) {
            Some(Data::Values(array)) => Ok(array),
            _ => Err(format!("no step makes the input `{}`", self.name)),
        }
    }

    /// Returns the tensor of a run without a previous one.
    fn zeros(&self) -> Result<Tensor, String> {
        let count: u64 = self.sizes.iter().product();
        let zeros = (0..count).map(|_| 0.0);
        Tensor::from_f64(self.dtype, self.sizes.clone(), zeros).map_err(|error| error.to_string())
    }

    /// Converts an array to the tensor of the input: channels, height and width of a picture, or values of a sound.
    fn tensor(&self, array: &Array) -> Result<Tensor, String> {
        let value = |at: usize| f64::from(array.values[at]);
        let mut sizes = array.shape.clone();
        let values: Box<dyn Iterator<Item = f64>> = match sizes[..] {
            [channels, height, width] if self.channels_last => {
                sizes = vec![height, width, channels];
                let plane = height * width;
                let order = (0..plane).flat_map(move |pixel| {
                    (0..channels).map(move |channel| channel * plane + pixel)
                });
                Box::new(order.map(value))
            }
            _ => Box::new((0..array.values.len()).map(value)),
        };
        let mut shape = vec![1; self.sizes.len().saturating_sub(sizes.len())];
        shape.extend(sizes.into_iter().map(|size| size as u64));
        let rounded: Box<dyn Iterator<Item = f64>> = if self.dtype.is_float() {
            values
        } else {
            Box::new(values.map(f64::round))
        };
        Tensor::from_f64(self.dtype, shape, rounded).map_err(|error| error.to_string())
    }
}
