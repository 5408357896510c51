//! Measures: what of an answer counts, and the figures of a data set.

mod agreement;
mod objects;
mod pixels;
mod ranks;
mod words;

pub use agreement::AnswerAgreement;

use pkgtool_media::answer::TypedAnswer;
use serde::{Deserialize, Serialize};

use crate::dataset::{ItemTruth, class_numbers};
use crate::task::EvalTask;
use objects::FoundObject;

/// What of an answer counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The place of the true class, from 0; with the class that came first.
    Rank {
        /// The place.
        place: usize,
        /// The first class.
        first: String,
    },
    /// The objects that were found.
    Objects(Vec<FoundObject>),
    /// Numbers of pixels: the true class, the class of the answer, and how many.
    Pixels(Vec<[u64; 3]>),
    /// The words.
    Text(String),
    /// The similarity of two texts.
    Similarity(f64),
}

/// A figure of a data set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, such as `top-1`.
    pub name: &'static str,
    /// The value; `None` if the data set has nothing to measure it by.
    pub value: Option<f64>,
    /// The unit.
    pub scale: Scale,
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// A share, shown in percent.
    Share,
    /// A plain number.
    Number,
}

impl Figure {
    fn share(name: &'static str, value: f64) -> Self {
        Self {
            name,
            value: Some(value).filter(|value| value.is_finite()),
            scale: Scale::Share,
        }
    }

    fn number(name: &'static str, value: f64) -> Self {
        Self {
            scale: Scale::Number,
            ..Self::share(name, value)
        }
    }

    /// Formats the value; `-` stands for none.
    pub fn shown(&self) -> String {
        match (self.value, self.scale) {
            (None, _) => "-".to_owned(),
            (Some(value), Scale::Share) => format!("{:.1}%", value * 100.0),
            (Some(value), Scale::Number) => format!("{value:.4}"),
        }
    }
}

impl Outcome {
    /// Returns what counts of an answer.
    pub fn of(answer: &TypedAnswer, truth: &ItemTruth) -> Result<Self, String> {
        match (answer, truth) {
            (TypedAnswer::Labels(answer), ItemTruth::Class(class)) => ranks::of(answer, class),
            (TypedAnswer::Boxes(answer), ItemTruth::Objects { size, .. }) => {
                objects::of(answer, *size).map(Self::Objects)
            }
            (TypedAnswer::Classes(answer), ItemTruth::Classes(file)) => {
                let (numbers, size) = class_numbers(file)?;
                pixels::of(answer, &numbers, size).map(Self::Pixels)
            }
            (TypedAnswer::Transcript(answer), ItemTruth::Text(_)) => {
                Ok(Self::Text(answer.text.clone()))
            }
            (TypedAnswer::Reply(answer), ItemTruth::Text(_)) => Ok(Self::Text(answer.text.clone())),
            (TypedAnswer::Text(answer), ItemTruth::Text(_)) => Ok(Self::Text(answer.text.clone())),
            (TypedAnswer::Lines(answer), ItemTruth::Text(_)) => {
                answer.text.clone().map(Self::Text).ok_or_else(|| {
                    "the package finds lines, but has no model that reads them".to_owned()
                })
            }
            _ => Err("the answer does not suit the data set".to_owned()),
        }
    }
}

/// Returns the figures of outcomes with their truths.
pub fn figures(task: EvalTask, results: &[(&ItemTruth, &Outcome)]) -> Vec<Figure> {
    match task {
        EvalTask::Classification => ranks::figures(results),
        EvalTask::Detection => objects::figures(results),
        EvalTask::Segmentation => pixels::figures(results),
        EvalTask::Transcription => words::of_speech(results),
        EvalTask::Reading => words::of_pictures(results),
        EvalTask::Similarity => ranks::correlation(results),
    }
}

/// Returns the quotient of two counts; not a number without a count.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of items and pixels are far below 2^52"
)]
fn share(part: u64, all: u64) -> f64 {
    part as f64 / all as f64
}
