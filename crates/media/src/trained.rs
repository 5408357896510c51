//! Labels of trained packages: the component `encoder` computes a vector of a text or picture, and the component `head`
//! maps it to one probability per label.
//!
//! Invariant: answers list labels by descending score; equal scores keep the order of the labels' file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkgtool_engine::tensor::{DType, Tensor};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files;

/// The component that computes vectors.
pub const ENCODER: &str = "encoder";

/// The component that maps vectors to probabilities.
pub const HEAD: &str = "head";

/// Name of the labels' file, in the directory of the package's configs or its parent.
pub const LABELS_FILE: &str = "labels.json";

/// Name of the file that says how probabilities become an answer, in the same places.
pub const DECISION_FILE: &str = "decision.json";

/// Maximum size of these files, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How probabilities become an answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LabelDecision {
    /// Least probability of an answer; with several labels, of a label that holds.
    pub threshold: f32,
    /// True if several labels may hold.
    #[serde(default)]
    pub multi_label: bool,
}

/// Labels, in the order of the head's probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainedLabels {
    /// Their names.
    pub names: Arc<[String]>,
    /// How probabilities become an answer, if not by the greatest one alone.
    pub decision: Option<LabelDecision>,
}

/// Options of a request for its answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct LabelWish {
    /// Maximum number of labels.
    pub most: Option<usize>,
    /// In place of the package's threshold.
    pub threshold: Option<f32>,
}

/// The labels of one text or picture.
#[derive(Debug, Serialize)]
pub struct LabelledAnswer<'l> {
    /// Labels with their probabilities.
    pub labels: Vec<LabelProbability<'l>>,
    /// True if the first label's probability is below the threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abstains: Option<bool>,
}

/// A label with its probability.
#[derive(Debug, Serialize)]
pub struct LabelProbability<'l> {
    /// The label.
    pub label: &'l str,
    /// Its probability.
    pub score: f32,
    /// Its place in the labels' file.
    pub index: usize,
    /// Whether the label holds, if several may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
}

impl TrainedLabels {
    /// Reads the labels beside the first of these configs that has them, with the path of their file.
    pub fn beside<'c>(
        configs: impl Iterator<Item = &'c Path> + Clone,
    ) -> Result<Option<(PathBuf, Self)>, String> {
        let names = read(configs.clone(), LABELS_FILE, "a JSON array of labels")?;
        let Some((path, names)) = names else {
            return Ok(None);
        };
        let expected = "an object with `threshold`, a number from 0 to 1";
        let decision = read::<LabelDecision>(configs, DECISION_FILE, expected)?;
        let decision = decision.map(|(path, decision)| {
            let is_fit = (0.0..=1.0).contains(&decision.threshold);
            is_fit
                .then_some(decision)
                .ok_or_else(|| format!("{}: expected {expected}", path.display()))
        });
        Ok(Some((
            path,
            Self {
                names: Vec::into(names),
                decision: decision.transpose()?,
            },
        )))
    }

    /// Returns the answers for the head's probabilities of these many vectors; `None` for another number of
    /// probabilities.
    pub fn answers(
        &self,
        scores: &[f32],
        vectors: usize,
        wish: LabelWish,
    ) -> Option<Vec<LabelledAnswer<'_>>> {
        let names = self.names.len();
        let rows = scores.chunks_exact(names.max(1));
        let answers = rows.map(|scores| self.answer(scores, wish));
        (scores.len() == vectors * names).then(|| answers.collect())
    }

    /// Returns the answer for the probabilities of a text or picture.
    fn answer(&self, scores: &[f32], wish: LabelWish) -> LabelledAnswer<'_> {
        let multi_label = self.decision.is_some_and(|it| it.multi_label);
        let threshold = wish.threshold.or(self.decision.map(|it| it.threshold));
        let pairs = self.names.iter().zip(scores).enumerate();
        let pairs = pairs.map(|(index, (label, score))| LabelProbability {
            label,
            score: *score,
            index,
            holds: threshold
                .filter(|_| multi_label)
                .map(|least| *score >= least),
        });
        let mut labels: Vec<LabelProbability<'_>> = pairs.collect();
        // The sort is stable: equal scores keep their order.
        labels.sort_by(|a, b| b.score.total_cmp(&a.score));
        let is_below = |least: f32| labels.first().is_none_or(|it| it.score < least);
        let abstains = threshold.filter(|_| !multi_label).map(is_below);
        labels.truncate(wish.most.unwrap_or(usize::MAX));
        LabelledAnswer { labels, abstains }
    }
}

/// Combines vectors into the input of a head.
pub fn head_input(vectors: &[Vec<f32>]) -> Result<Tensor, String> {
    let width = vectors.first().map_or(0, Vec::len);
    let bytes = vectors.iter().flatten().flat_map(|it| it.to_le_bytes());
    let shape = vec![vectors.len() as u64, width as u64];
    let tensor = Tensor::new(DType::Float32, shape, bytes.collect());
    tensor.map_err(|error| format!("vectors have different lengths: {error}"))
}

/// Reads the first file of this name beside the configs.
fn read<'c, T: DeserializeOwned>(
    mut configs: impl Iterator<Item = &'c Path>,
    name: &str,
    expected: &str,
) -> Result<Option<(PathBuf, T)>, String> {
    let Some(path) = configs.find_map(|config| files::beside(config, &[name])) else {
        return Ok(None);
    };
    let text = files::text(&path, MAX_FILE_BYTES)?;
    let read = serde_json::from_str(&text)
        .map_err(|error| format!("{}: expected {expected}: {error}", path.display()))?;
    Ok(Some((path, read)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(decision: Option<LabelDecision>) -> TrainedLabels {
        TrainedLabels {
            names: ["a", "b", "c"].map(str::to_owned).into(),
            decision,
        }
    }

    #[test]
    fn one_label_is_first_or_none_is_sure_enough() {
        let scores = [0.2, 0.5, 0.3];
        let plain = labels(None)
            .answer(&scores, LabelWish::default())
            .labels
            .len();
        assert_eq!(plain, 3);
        let decision = LabelDecision {
            threshold: 0.6,
            multi_label: false,
        };
        let decided = labels(Some(decision));
        let answer = decided.answer(&scores, LabelWish::default());
        assert_eq!((answer.labels[0].label, answer.abstains), ("b", Some(true)));
        let wish = LabelWish {
            most: Some(1),
            threshold: Some(0.5),
        };
        let answer = decided.answer(&scores, wish);
        assert_eq!((answer.labels.len(), answer.abstains), (1, Some(false)));
    }

    #[test]
    fn several_labels_hold_each_by_its_own_probability() {
        let decided = labels(Some(LabelDecision {
            threshold: 0.5,
            multi_label: true,
        }));
        let answer = decided.answer(&[0.7, 0.1, 0.9], LabelWish::default());
        let found = answer.labels.iter().map(|it| (it.label, it.holds));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [("c", Some(true)), ("a", Some(true)), ("b", Some(false))]
        );
        assert_eq!(answer.abstains, None);
    }
}
