//! Rows with any number of labels each: their weights, and their split into training and validation rows.

use ndarray::ArrayView2;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::DatasetSplit;
use super::split::{shuffle, validation_row_count};

/// The labels of a row, in ascending order.
pub type LabelSet = Vec<usize>;

/// Vectors with a set of labels each.
#[derive(Debug, Clone, Copy)]
pub struct SetExamples<'a> {
    /// `rows × width` numbers.
    pub vectors: &'a [f32],
    /// Numbers per row.
    pub width: usize,
    /// Labels of each row.
    pub sets: &'a [LabelSet],
    /// Number of labels.
    pub count: usize,
}

/// Copies of some rows.
#[derive(Debug)]
pub struct SetSubset {
    /// `rows × width` numbers.
    pub vectors: Vec<f32>,
    /// Labels of each row.
    pub sets: Vec<LabelSet>,
}

/// Weights of rows by label.
#[derive(Debug, Clone, PartialEq)]
pub struct SetWeights {
    /// Weight of a row with the label.
    pub with: Vec<f64>,
    /// Weight of a row without it.
    pub without: Vec<f64>,
}

impl<'a> SetExamples<'a> {
    /// Returns the vector of a row.
    fn vector(&self, row: usize) -> &'a [f32] {
        &self.vectors[row * self.width..(row + 1) * self.width]
    }

    /// Returns the number of rows of each label.
    pub fn rows_by_label(&self) -> Vec<usize> {
        let mut counts = vec![0; self.count];
        for label in self.sets.iter().flatten() {
            counts[*label] += 1;
        }
        counts
    }
}

impl SetSubset {
    /// Copies these rows.
    pub fn of(examples: SetExamples<'_>, rows: &[usize]) -> Self {
        let vectors = rows.iter().flat_map(|row| examples.vector(*row));
        Self {
            vectors: vectors.copied().collect(),
            sets: rows.iter().map(|row| examples.sets[*row].clone()).collect(),
        }
    }

    /// Returns them as examples with the width and labels of `like`.
    pub fn examples<'s>(&'s self, like: SetExamples<'_>) -> SetExamples<'s> {
        SetExamples {
            vectors: &self.vectors,
            sets: &self.sets,
            ..like
        }
    }
}

/// Returns the labels of each row with at least this probability.
pub fn above(probabilities: &ArrayView2<'_, f32>, threshold: f32) -> Vec<LabelSet> {
    let rows = probabilities.rows().into_iter();
    rows.map(|row| {
        let labels = row.iter().enumerate();
        let labels = labels.filter(|(_, score)| **score >= threshold);
        labels.map(|(label, _)| label).collect()
    })
    .collect()
}

/// Reserves a fraction of the rows for validation, chosen by the seed, so that each label has about this fraction there,
/// the rarest label first. Every label keeps at least one training row.
pub fn split_sets(examples: SetExamples<'_>, fraction: f64, seed: u64) -> DatasetSplit {
    let SetExamples { sets, count, .. } = examples;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // The last group has the rows without labels.
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); count + 1];
    for (row, set) in sets.iter().enumerate() {
        for label in set {
            groups[*label].push(row);
        }
        if set.is_empty() {
            groups[count].push(row);
        }
    }
    groups.sort_by_key(Vec::len);
    let mut is_validation: Vec<Option<bool>> = vec![None; sets.len()];
    for group in &groups {
        let wanted = validation_row_count(group.len(), fraction);
        let (settled, mut open): (Vec<usize>, Vec<usize>) =
            group.iter().partition(|row| is_validation[**row].is_some());
        let held_out = settled
            .iter()
            .filter(|row| is_validation[**row] == Some(true));
        let missing = wanted.saturating_sub(held_out.count());
        shuffle(&mut open, &mut random);
        for (place, row) in open.into_iter().enumerate() {
            is_validation[row] = Some(place < missing);
        }
    }
    for group in &groups {
        if let [first, ..] = group[..]
            && group.iter().all(|row| is_validation[*row] == Some(true))
        {
            is_validation[first] = Some(false);
        }
    }
    let (validation, training) = (0..sets.len()).partition(|row| is_validation[*row] == Some(true));
    DatasetSplit {
        training,
        validation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples(sets: &[LabelSet], count: usize) -> SetExamples<'_> {
        SetExamples {
            vectors: &[],
            width: 0,
            sets,
            count,
        }
    }

    #[test]
    fn each_label_is_held_out_in_proportion() {
        let sets: Vec<LabelSet> = (0..200)
            .map(|row| {
                let labels = [(0, 2), (1, 5), (2, 20)].into_iter();
                labels
                    .filter(|(_, every)| row % every == 0)
                    .map(|(label, _)| label)
                    .collect()
            })
            .collect();
        let split = split_sets(examples(&sets, 3), 0.2, 1);
        for (label, rows) in [(0, 100.0), (1, 40.0), (2, 10.0_f64)] {
            let held_out = split
                .validation
                .iter()
                .filter(|row| sets[**row].contains(&label));
            let share = f64::from(u32::try_from(held_out.count()).expect("few")) / rows;
            assert!((share - 0.2).abs() < 0.08, "{label}: {share}");
        }
        assert_eq!(split.training.len() + split.validation.len(), 200);
        assert_eq!(split, split_sets(examples(&sets, 3), 0.2, 1));
        assert_ne!(split, split_sets(examples(&sets, 3), 0.2, 2));
    }

    #[test]
    fn each_label_keeps_a_training_row() {
        // All rows of the last label have rarer labels too.
        let sets: Vec<LabelSet> = (0..12).map(|row| vec![row / 2, 6]).collect();
        for seed in 0..20 {
            let split = split_sets(examples(&sets, 7), 0.9, seed);
            for label in 0..7 {
                assert!(split.training.iter().any(|row| sets[*row].contains(&label)));
            }
        }
        assert_eq!(
            split_sets(examples(&sets, 7), 0.0, 0).validation,
            Vec::<usize>::new()
        );
        assert_eq!(
            split_sets(examples(&[], 1), 0.5, 0).training,
            Vec::<usize>::new()
        );
    }
}
