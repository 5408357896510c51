//! Splits rows into training and validation rows.
//!
//! Invariant: every label keeps at least one training row; both parts are in the order of the rows.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

/// Row indices of both parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetSplit {
    /// Training rows.
    pub training: Vec<usize>,
    /// Validation rows.
    pub validation: Vec<usize>,
}

/// Reserves a fraction of each label's rows for validation, chosen by the seed.
pub fn split(labels: &[u32], count: usize, fraction: f64, seed: u64) -> DatasetSplit {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut by_label: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (row, label) in labels.iter().enumerate() {
        by_label[*label as usize].push(row);
    }
    let mut split = DatasetSplit {
        training: Vec::new(),
        validation: Vec::new(),
    };
    for mut rows in by_label {
        shuffle(&mut rows, &mut random);
        let kept = validation_row_count(rows.len(), fraction);
        split.training.extend(rows.split_off(kept));
        split.validation.extend(rows);
    }
    split.training.sort_unstable();
    split.validation.sort_unstable();
    split
}

/// Returns the number of validation rows of a label with this many rows.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a fraction of the number of rows, which fit into memory"
)]
pub(super) fn validation_row_count(rows: usize, fraction: f64) -> usize {
    ((rows as f64 * fraction).round() as usize).min(rows.saturating_sub(1))
}

/// Shuffles by the Fisher–Yates algorithm. The bias of the remainder is below one in 2³².
pub(super) fn shuffle(rows: &mut [usize], random: &mut ChaCha8Rng) {
    for end in (1..rows.len()).rev() {
        let choice = random.next_u64() % (end as u64 + 1);
        rows.swap(end, usize::try_from(choice).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_kept_in_proportion() {
        let labels: Vec<u32> = (0..100).map(|row| u32::from(row % 10 == 0)).collect();
        let parts = split(&labels, 2, 0.2, 1);
        assert_eq!((parts.training.len(), parts.validation.len()), (80, 20));
        let rare = parts.validation.iter().filter(|row| labels[**row] == 1);
        assert_eq!(rare.count(), 2);
        let mut all = [parts.training.clone(), parts.validation.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        assert_eq!(
            split(&labels, 2, 0.2, 1),
            parts,
            "a seed means the same rows"
        );
        assert_ne!(split(&labels, 2, 0.2, 2), parts);
    }

    #[test]
    fn a_label_of_one_row_is_trained_on() {
        let parts = split(&[0, 1, 1], 2, 0.9, 0);
        assert!(parts.training.contains(&0));
        assert_eq!(parts.training.len(), 2);
        assert_eq!(split(&[0, 1], 2, 0.0, 0).validation, Vec::<usize>::new());
    }
}
