//! Operators: the steps that recipes are made of.
//!
//! Each operator is a row of a table and a function. Invariant: an operator checks the shapes that it
//! reads, and its work is bounded by their size.

mod boxes;
mod characters;
mod diffusion;
mod heads;
mod letters;
mod lines;
mod masks;
mod mel;
mod parameter;
mod phonemes;
mod pictures;
mod scores;
mod sounds;
mod suppress;

use std::collections::BTreeMap;
use std::fmt;

use image::RgbImage;
use pkgtool_engine::tensor::Tensor;

use crate::answer::{TypedAnswer, TypedAnswerKind};
use crate::diffusion::PromptTokens;
use crate::labels::{self, Labels};
use crate::picture::Geometry;
use crate::voice::PieceContext;
pub(crate) use diffusion::length as prompt_length;
pub use parameter::ParameterKind;
pub(crate) use parameter::{Arguments, Parameter};
pub(crate) use phonemes::SymbolRule;

/// All operators, by theme.
const TABLES: [&[Operator]; 13] = [
    pictures::TABLE,
    sounds::TABLE,
    phonemes::TABLE,
    mel::TABLE,
    scores::TABLE,
    masks::TABLE,
    boxes::TABLE,
    heads::TABLE,
    suppress::TABLE,
    lines::TABLE,
    characters::TABLE,
    letters::TABLE,
    diffusion::TABLE,
];

/// The function of an operator.
type Run = fn(&[&Data], &Arguments, &mut StepContext<'_>) -> Result<Data, String>;

/// An operator.
#[derive(Debug)]
pub(crate) struct Operator {
    /// The name in recipes.
    pub(crate) name: &'static str,
    /// The kinds of what it reads.
    pub(crate) from: &'static [DataKind],
    /// The kind of what it makes.
    pub(crate) to: DataKind,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) run: Run,
}

/// The kind of what steps read and make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataKind {
    Picture,
    Sound,
    Text,
    Values,
    Boxes,
    Answer(TypedAnswerKind),
}

/// What a step made.
#[derive(Debug)]
pub(crate) enum Data {
    Picture(RgbImage),
    /// Samples from −1 to 1.
    Sound(Vec<f32>),
    Text(String),
    Values(Array),
    Boxes(Vec<FoundBox>),
    Answer(TypedAnswer),
}

/// Numbers with a shape.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// Sizes of the symbols of a recipe; `None` for a size that the model leaves open.
pub(crate) type Symbols = BTreeMap<String, Option<u64>>;

/// A box in pixels of the model's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FoundBox {
    /// Left, top, right, bottom.
    pub(crate) corners: [f64; 4],
    pub(crate) score: f64,
    pub(crate) class: usize,
    /// Its row in the model's outputs, where further data of it are.
    pub(crate) row: usize,
}

/// What all steps of a run share.
pub(crate) struct StepContext<'a> {
    /// How the picture was placed in the input.
    pub(crate) geometry: Geometry,
    /// Number of samples of the whole sound.
    pub(crate) samples: usize,
    pub(crate) symbols: &'a Symbols,
    /// Labels of the package or of a request.
    pub(crate) labels: Option<&'a Labels>,
    /// The piece of a text, for speech.
    pub(crate) piece: Option<PieceContext<'a>>,
    /// The tokens of a text that a picture shows.
    pub(crate) prompt: Option<&'a PromptTokens>,
    /// Number of ids of the piece or text.
    pub(crate) tokens: usize,
    /// Numbers of frames that durations ask for, and that the model makes.
    pub(crate) frames: [usize; 2],
}

/// Returns an operator by its name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    all().find(|operator| operator.name == name)
}

/// Returns the names of all operators, for errors.
pub(crate) fn names() -> String {
    all()
        .map(|operator| operator.name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the names of the operators that make answers, for errors.
pub(crate) fn answering() -> String {
    let makers = all().filter(|operator| matches!(operator.to, DataKind::Answer(_)));
    makers
        .map(|operator| operator.name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn all() -> impl Iterator<Item = &'static Operator> {
    TABLES.into_iter().flatten()
}

impl fmt::Display for DataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Picture => "a picture",
            Self::Sound => "a sound",
            Self::Text => "a text",
            Self::Values => "a tensor",
            Self::Boxes => "boxes",
            Self::Answer(_) => "an answer",
        })
    }
}

impl Array {
    pub(crate) fn of(tensor: &Tensor) -> Self {
        let shape = tensor.shape().iter();
        Self {
            shape: shape
                .map(|size| usize::try_from(*size).unwrap_or(usize::MAX))
                .collect(),
            values: tensor.to_f32(),
        }
    }

    /// Returns the sizes of the last `N` dimensions, if the others are 1.
    pub(crate) fn last<const N: usize>(&self) -> Result<[usize; N], String> {
        let rank = self.shape.len();
        let sizes = rank.checked_sub(N).map(|start| self.shape.split_at(start));
        let fault = || {
            format!(
                "expected {N} dimensions besides those of size 1, got {:?}",
                self.shape
            )
        };
        match sizes {
            Some((others, last)) if others.iter().all(|size| *size == 1) => {
                last.try_into().map_err(|_| fault())
            }
            _ => Err(fault()),
        }
    }
}

/// Returns the width and height of a picture that a tensor holds.
pub(crate) fn picture_size(width: usize, height: usize) -> Result<[u32; 2], String> {
    let side = |size: usize| {
        let side = u32::try_from(size).ok().filter(|side| *side > 0);
        side.ok_or_else(|| format!("invalid side of {size} pixels"))
    };
    Ok([side(width)?, side(height)?])
}

/// Returns the values of the tensor at this place.
pub(crate) fn values<'d>(from: &[&'d Data], place: usize) -> Result<&'d Array, String> {
    match from.get(place) {
        Some(Data::Values(array)) => Ok(array),
        _ => Err("expected a tensor".to_owned()),
    }
}

/// Returns the boxes at this place.
pub(crate) fn boxes<'d>(from: &[&'d Data], place: usize) -> Result<&'d [FoundBox], String> {
    match from.get(place) {
        Some(Data::Boxes(boxes)) => Ok(boxes),
        _ => Err("expected boxes".to_owned()),
    }
}

impl<'a> StepContext<'a> {
    /// Returns the context of steps for a model with these sizes.
    pub(crate) fn new(symbols: &'a Symbols) -> Self {
        Self {
            geometry: Geometry::same([1, 1]),
            samples: 0,
            symbols,
            labels: None,
            piece: None,
            prompt: None,
            tokens: 0,
            frames: [0, 0],
        }
    }

    /// Returns the size of a symbol, if the model has a fixed one.
    pub(crate) fn fixed(&self, symbol: &str) -> Option<usize> {
        usize::try_from((*self.symbols.get(symbol)?)?).ok()
    }

    /// Returns the labels of `count` classes, by the value of a parameter; `None` for an unknown count.
    pub(crate) fn labels(
        &self,
        value: &serde_json::Value,
        count: Option<usize>,
    ) -> Result<Labels, String> {
        let labels = match (
            self.labels,
            value.as_array(),
            value.as_str().unwrap_or_default(),
        ) {
            (Some(own), ..) => own.clone(),
            (None, Some(names), _) => {
                let names = names
                    .iter()
                    .map(|name| name.as_str().unwrap_or_default().to_owned());
                Labels::listed(names.collect(), "the recipe's value `labels`")
            }
            (None, None, labels::AUTO) => {
                let set = count.and_then(Labels::of_count);
                let none = || Labels::listed(Vec::new(), "none known: classes have numbers");
                return Ok(set.unwrap_or_else(none));
            }
            (None, None, name) => Labels::of_set(name).ok_or_else(|| {
                let sets = Labels::sets();
                format!("unknown labels `{name}`: expected a list, `auto`, or one of {sets}")
            })?,
        };
        match count {
            Some(count) if labels.count() != count => Err(format!(
                "{} labels ({}) do not fit the {count} classes of the model",
                labels.count(),
                labels.source
            )),
            _ => Ok(labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_every_step_with_its_parameters() {
        let page = include_str!("../../../../docs/recipes.md");
        for operator in all() {
            let start = format!("| `{}` |", operator.name);
            let row = page.lines().find(|line| line.starts_with(&start));
            let row = row.unwrap_or_else(|| panic!("no row of `{}`", operator.name));
            for Parameter { name, .. } in operator.parameters {
                let same = row.ends_with("| as `boxes` |");
                assert!(same || row.contains(&format!("`{name}`")), "{start} {name}");
            }
        }
        let examples = page.split("```toml\n").skip(1);
        let examples = examples.map(|rest| rest.split("```").next().expect("an end"));
        assert_eq!(examples.clone().count(), 3);
        for example in examples {
            crate::recipe::Recipe::parse("recipe.toml", example).expect("a sound example");
        }
    }

    #[test]
    fn defaults_are_valid_and_names_are_unique() {
        let mut names: Vec<&str> = all().map(|operator| operator.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for operator in all() {
            for parameter in operator.parameters {
                if let Some(text) = parameter.default {
                    let value = serde_json::from_str(text).expect("JSON");
                    let checked = parameter.kind.check(&value);
                    assert_eq!(checked, Ok(()), "{} {}", operator.name, parameter.name);
                }
            }
        }
    }
}
