//! Tasks: what is measured, on which data sets, and by which values of recipes.

use pkgtool_media::answer::TypedAnswerKind;
use serde::Serialize;
use serde_json::{Value as Json, json};

/// The kind of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvalTask {
    /// Labels: top-1 and top-5.
    Classification,
    /// Boxes and masks: mean average precision.
    Detection,
    /// Classes of pixels: mean intersection over union.
    Segmentation,
    /// Words of sounds: word error rate.
    Transcription,
    /// Words in pictures: character error rate.
    Reading,
    /// Similarity of texts: rank correlation.
    Similarity,
}

impl EvalTask {
    /// Returns the task of a recipe's answers, if there is a measure for it.
    pub fn of(answer: TypedAnswerKind) -> Option<Self> {
        match answer {
            TypedAnswerKind::Labels => Some(Self::Classification),
            TypedAnswerKind::Boxes => Some(Self::Detection),
            TypedAnswerKind::Classes => Some(Self::Segmentation),
            TypedAnswerKind::Transcript => Some(Self::Transcription),
            TypedAnswerKind::Text | TypedAnswerKind::Lines | TypedAnswerKind::Reply => {
                Some(Self::Reading)
            }
            TypedAnswerKind::Vector
            | TypedAnswerKind::Picture
            | TypedAnswerKind::Segments
            | TypedAnswerKind::Speech => None,
        }
    }

    /// Describes the data sets that fit, for people.
    pub fn layouts(self) -> &'static str {
        match self {
            Self::Classification => {
                "a folder of pictures for each class, or a table with the columns file and label"
            }
            Self::Detection => "annotations of COCO in a JSON file, and the pictures",
            Self::Segmentation => {
                "pictures in `images` and PNG files with class numbers in `masks`"
            }
            Self::Transcription => {
                "sounds with a .txt file beside each, or a table with the columns file and text"
            }
            Self::Reading => {
                "pictures with a .txt file beside each, or a table with the columns file and text"
            }
            Self::Similarity => "a table with the columns sentence1, sentence2 and score",
        }
    }

    /// Returns values of recipes that the measure needs, in place of those for people.
    pub fn values(self) -> Vec<(&'static str, Json)> {
        match self {
            // Every label has a rank.
            Self::Classification => vec![("top_k", json!(1_000_000)), ("threshold", json!(0.0))],
            // Average precision is about all scores, and about at most 100 objects of a picture.
            Self::Detection => vec![("threshold", json!(0.001)), ("most", json!(100))],
            _ => Vec::new(),
        }
    }
}
