//! Cross-validation: each row is judged by a regression that was fitted without its fold.

use ndarray::Array2;

use super::super::options::FitOptions;
use super::split::shuffle;
use super::{Examples, FitError, RowSubset, fit};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

/// Number of folds.
const FOLDS: usize = 5;

/// Returns the probabilities of the labels for each row, `rows × labels`, with a penalty for all rows.
pub fn cross_validate(
    examples: Examples<'_>,
    l2: f64,
    options: &FitOptions,
    goes_on: &dyn Fn(u64) -> bool,
) -> Result<Array2<f32>, FitError> {
    let Examples { count, labels, .. } = examples;
    let fold_of = folds(labels, count, options.seed);
    let mut probabilities = Array2::zeros((labels.len(), count));
    for fold in 0..FOLDS {
        let (judged, fitted): (Vec<usize>, Vec<usize>) =
            (0..labels.len()).partition(|row| fold_of[*row] == fold);
        if judged.is_empty() || fitted.is_empty() {
            continue;
        }
        let rows = RowSubset::of(examples, &fitted);
        let weights = vec![1.0; fitted.len()];
        let fitted = fit(rows.examples(examples), weights, l2, options, goes_on)?;
        let others = RowSubset::of(examples, &judged);
        let found = fitted.classifier.probabilities(&others.vectors);
        for (row, found) in judged.iter().zip(found.rows()) {
            probabilities.row_mut(*row).assign(&found);
        }
    }
    Ok(probabilities)
}

/// Returns the fold of each row. The rows of a label are spread evenly.
fn folds(labels: &[u32], count: usize, seed: u64) -> Vec<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut rows: Vec<usize> = (0..labels.len()).collect();
    shuffle(&mut rows, &mut random);
    let mut counts = vec![0; count];
    let mut folds = vec![0; labels.len()];
    for row in rows {
        let before = &mut counts[labels[row] as usize];
        // Labels start at different folds, so that folds have equal sizes.
        folds[row] = (*before + labels[row] as usize) % FOLDS;
        *before += 1;
    }
    folds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_have_rows_of_each_label() {
        let labels: Vec<u32> = (0..45).map(|row| row % 3).collect();
        let folds = folds(&labels, 3, 1);
        for fold in 0..FOLDS {
            for label in 0..3 {
                let rows = folds.iter().zip(&labels);
                let count = rows.filter(|it| *it == (&fold, &label)).count();
                assert_eq!(count, 3, "{fold} {label}");
            }
        }
    }

    #[test]
    fn a_row_is_judged_by_others() {
        // Two labels apart, and a row between the rows of the other label.
        let vectors = [0.0, 0.1, 0.2, 0.15, 1.0, 1.1, 1.2, 1.3, 0.12_f32];
        let labels = [0, 0, 0, 0, 1, 1, 1, 1, 1];
        let examples = Examples {
            vectors: &vectors,
            width: 1,
            labels: &labels,
            count: 2,
        };
        let options = FitOptions::default();
        let judged = cross_validate(examples, 0.01, &options, &|_| true).expect("it fits");
        assert!(judged[[8, 0]] > judged[[8, 1]], "{judged}");
        assert!((0..4).all(|row| judged[[row, 0]] > 0.5), "{judged}");
        let again = cross_validate(examples, 0.01, &options, &|_| true).expect("it fits");
        assert_eq!(judged, again);
    }
}
