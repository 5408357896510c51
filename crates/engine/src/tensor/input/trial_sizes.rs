//! Proposes sizes for open dimensions of models that fail with the default size 1: those that the
//! graph suggests, then common ones.
//!
//! Invariant: a size is only a proposal; the caller verifies it by running the model.

use std::path::Path;

use super::{Axis, OpenDim, SizeEvidence, SizeSuggestion, axes, evidence};
use crate::tensor::Signature;

/// Common sizes, most likely first.
const COMMON_SIZES: [u64; 9] = [32, 64, 224, 16, 512, 8, 4, 128, 2];

/// The size of a dimension in a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialSize {
    /// The dimension's symbol, or `input[axis]`.
    pub label: String,
    /// The proposed size.
    pub size: u64,
    /// The evidence in the graph, if any.
    pub why: Option<String>,
}

/// Returns sizes for the `open` dimensions of a method of the model at `model`, most likely first.
/// The combination of all ones is left out.
pub fn trial_sizes(model: &Path, signature: &Signature, open: &[OpenDim]) -> Vec<Vec<TrialSize>> {
    let evidence = evidence(model, signature);
    ordered(open, &evidence, &leading(signature, open))
}

/// Marks the open dimensions that lead an input of several dimensions, which are most likely
/// batches.
fn leading(signature: &Signature, open: &[OpenDim]) -> Vec<bool> {
    let axes = axes(signature);
    let comes_first = |dim: &OpenDim| {
        let mut inputs = axes.iter().flatten();
        inputs.any(|axes| axes.len() > 1 && axes[0] == Axis::Open(dim.label.clone()))
    };
    open.iter().map(comes_first).collect()
}

/// Returns combinations of sizes for all open dimensions, most likely first.
fn ordered(open: &[OpenDim], evidence: &SizeEvidence, leading: &[bool]) -> Vec<Vec<TrialSize>> {
    let mut trials: Vec<Vec<TrialSize>> = Vec::new();
    let rounds = std::iter::once(None).chain(COMMON_SIZES.map(Some));
    for common in rounds {
        let choices = open.iter().zip(leading).map(|(dim, leading)| {
            let (size, why) = suggested_size(dim, evidence, common.filter(|_| !leading));
            TrialSize {
                label: dim.label.clone(),
                size,
                why,
            }
        });
        trials.push(choices.collect());
    }
    // Last, try leading dimensions that are not batches.
    let all = open.iter().map(|dim| {
        let (size, why) = suggested_size(dim, evidence, Some(COMMON_SIZES[0]));
        TrialSize {
            label: dim.label.clone(),
            size,
            why,
        }
    });
    trials.push(all.collect());
    let sizes = |trial: &[TrialSize]| trial.iter().map(|choice| choice.size).collect::<Vec<_>>();
    let mut seen = vec![vec![1; open.len()]];
    trials.retain(|trial| {
        let sizes = sizes(trial);
        let is_new = !seen.contains(&sizes);
        seen.push(sizes);
        is_new
    });
    trials
}

/// Returns the size that the graph suggests for a dimension, or else a common size that is a
/// multiple of its strides.
fn suggested_size(
    dim: &OpenDim,
    evidence: &SizeEvidence,
    common: Option<u64>,
) -> (u64, Option<String>) {
    let why = |found: &SizeSuggestion| Some(found.why.clone());
    if let Some(exact) = evidence.exact.get(&dim.label) {
        return (exact.size, why(exact));
    }
    let divisor = evidence.divisor.get(&dim.label);
    match (divisor, common) {
        (Some(divisor), common) => {
            let size = common.unwrap_or(1).next_multiple_of(divisor.size.max(1));
            (size, why(divisor))
        }
        (None, common) => (common.unwrap_or(1), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(label: &str) -> OpenDim {
        OpenDim {
            label: label.to_owned(),
            bound: None,
            allowed: Vec::new(),
        }
    }

    #[test]
    fn what_the_graph_says_comes_first() {
        let mut evidence = SizeEvidence::default();
        let suggestion = |size, why: &str| SizeSuggestion {
            size,
            why: why.to_owned(),
        };
        let labels = ["batch", "features", "height", "length"];
        evidence
            .exact
            .insert("features".to_owned(), suggestion(6, "six rows"));
        evidence
            .divisor
            .insert("height".to_owned(), suggestion(48, "strides"));
        let open = labels.map(open);
        let trials = ordered(&open, &evidence, &[true, false, false, false]);
        let sizes: Vec<Vec<u64>> = trials
            .iter()
            .map(|trial| trial.iter().map(|choice| choice.size).collect())
            .collect();
        let why = |place: usize| trials[0][place].why.as_deref();
        assert_eq!((why(1), why(2)), (Some("six rows"), Some("strides")));
        assert_eq!(sizes[0], [1, 6, 48, 1]);
        assert_eq!(sizes[1], [1, 6, 48, 32]);
        assert_eq!(sizes[2], [1, 6, 96, 64]);
        assert_eq!(sizes.last().map(Vec::as_slice), Some(&[32, 6, 48, 32][..]));
    }
}
