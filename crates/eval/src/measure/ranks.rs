//! Places of true classes, and the correlation of ranks.

use pkgtool_media::answer::LabelAnswer;

use super::{Figure, Outcome, share};
use crate::dataset::ItemTruth;

/// Number of labels that an error names.
const NAMED: usize = 5;

/// Finds the true class among the labels of an answer, which has all of them.
pub(super) fn of(answer: &LabelAnswer, class: &str) -> Result<Outcome, String> {
    let labels = &answer.labels;
    let mut place = labels.iter().position(|it| is_same(&it.label, class));
    if place.is_none()
        && let Ok(index) = class.trim().parse::<usize>()
    {
        place = labels.iter().position(|it| it.index == index);
    }
    let place = place.ok_or_else(|| {
        let names = labels.iter().take(NAMED).map(|it| it.label.as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        let count = labels.len();
        format!(
            "the model has no label {class} among its {count}: {names}, …; rename the class, or give the model's \
             labels with `--set labels=[…]`"
        )
    })?;
    Ok(Outcome::Rank {
        place,
        first: labels[0].label.clone(),
    })
}

/// Returns whether a label is a class: equal but for case and separators, or one of several names between commas.
pub(super) fn is_same(label: &str, class: &str) -> bool {
    let same = |a: &str, b: &str| {
        let plain = |text: &str| {
            let letters = text.trim().chars().map(|c| match c {
                '_' | '-' => ' ',
                c => c,
            });
            letters.flat_map(char::to_lowercase).collect::<String>()
        };
        plain(a) == plain(b)
    };
    same(label, class) || label.contains(',') && label.split(',').any(|name| same(name, class))
}

pub(super) fn figures(results: &[(&ItemTruth, &Outcome)]) -> Vec<Figure> {
    let places = results.iter().filter_map(|(_, outcome)| match outcome {
        Outcome::Rank { place, .. } => Some(*place),
        _ => None,
    });
    let places: Vec<usize> = places.collect();
    let among = |first: usize| {
        let found = places.iter().filter(|place| **place < first).count();
        share(found as u64, places.len() as u64)
    };
    vec![
        Figure::share("top-1", among(1)),
        Figure::share("top-5", among(5)),
    ]
}

/// Returns Spearman's rank correlation between similarities and scores.
pub(super) fn correlation(results: &[(&ItemTruth, &Outcome)]) -> Vec<Figure> {
    let pairs = results.iter().filter_map(|pair| match pair {
        (ItemTruth::Similarity { score, .. }, Outcome::Similarity(found)) => Some((*score, *found)),
        _ => None,
    });
    let (scores, found): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let value = pearson(&ranks(&scores), &ranks(&found));
    vec![
        Figure::number("Spearman", value),
        Figure::number("Pearson", pearson(&scores, &found)),
    ]
}

/// Returns the rank of each value; equal values share the mean of their ranks.
#[expect(clippy::cast_precision_loss, reason = "a data set has few items")]
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let rank = first as f64 + (equal.len() - 1) as f64 / 2.0;
        for place in equal {
            ranks[*place] = rank;
        }
        first += equal.len();
    }
    ranks
}

#[expect(clippy::cast_precision_loss, reason = "a data set has few items")]
fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let product = |x: &[f64], y: &[f64], mean_x: f64, mean_y: f64| -> f64 {
        let pairs = x.iter().zip(y);
        pairs.map(|(x, y)| (x - mean_x) * (y - mean_y)).sum()
    };
    let spread = product(a, a, mean_a, mean_a) * product(b, b, mean_b, mean_b);
    product(a, b, mean_a, mean_b) / spread.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The truth is that of scipy.stats.spearmanr.
    #[test]
    fn ranks_are_those_of_scipy() {
        let scores = [1.0, 2.0, 2.0, 5.0, 4.0, 0.0];
        let found = [0.1, 0.4, 0.2, 0.9, 0.9, -0.3];
        assert_eq!(ranks(&scores), [1.0, 2.5, 2.5, 5.0, 4.0, 0.0]);
        let value = pearson(&ranks(&scores), &ranks(&found));
        assert!((value - 0.970_588_235_294_117_6).abs() < 1e-12, "{value}");
        assert!(pearson(&[1.0, 1.0], &[0.2, 0.4]).is_nan());
    }

    #[test]
    fn labels_are_classes_whatever_the_separators() {
        for (label, class, expected) in [
            ("golden retriever", "Golden_Retriever", true),
            ("tench, Tinca tinca", "tench", true),
            ("cat", "dog", false),
            ("cat", "c", false),
        ] {
            assert_eq!(is_same(label, class), expected, "{label} {class}");
        }
    }
}
