//! Classes of pixels.

use std::collections::BTreeMap;

use pkgtool_media::answer::ClassAnswer;

use super::{Figure, Outcome, share};
use crate::dataset::ItemTruth;

/// The number of pixels without a class, as Pascal VOC and Cityscapes have it.
const IGNORED: u8 = 255;

/// Counts the pixels by true class and class of the answer.
pub(super) fn of(
    answer: &ClassAnswer,
    truth: &[u8],
    size: [u32; 2],
) -> Result<Vec<[u64; 3]>, String> {
    let mask = &answer.mask;
    let [width, height] = [mask.width(), mask.height()];
    if [width, height] != size {
        return Err(format!(
            "the answer has {width} x {height} pixels, the mask of the data set {} x {}",
            size[0], size[1]
        ));
    }
    let mut counts: BTreeMap<[u8; 2], u64> = BTreeMap::new();
    for (truth, found) in truth.iter().zip(mask.as_raw()) {
        if *truth != IGNORED {
            *counts.entry([*truth, *found]).or_default() += 1;
        }
    }
    let counts = counts.into_iter();
    Ok(counts
        .map(|([truth, found], count)| [truth.into(), found.into(), count])
        .collect())
}

pub(super) fn figures(results: &[(&ItemTruth, &Outcome)]) -> Vec<Figure> {
    let mut counts: BTreeMap<[u64; 2], u64> = BTreeMap::new();
    for (_, outcome) in results {
        if let Outcome::Pixels(pixels) = outcome {
            for [truth, found, count] in pixels {
                *counts.entry([*truth, *found]).or_default() += count;
            }
        }
    }
    let (mean, equal) = mean_iou(&counts);
    vec![Figure::share("mIoU", mean), Figure::share("pixels", equal)]
}

/// Returns the mean intersection over union of the classes that occur in the truth, and the share of equal pixels.
pub(super) fn mean_iou(counts: &BTreeMap<[u64; 2], u64>) -> (f64, f64) {
    let mut of_truth: BTreeMap<u64, u64> = BTreeMap::new();
    let mut of_answer: BTreeMap<u64, u64> = BTreeMap::new();
    let mut equal: BTreeMap<u64, u64> = BTreeMap::new();
    for ([truth, found], count) in counts {
        *of_truth.entry(*truth).or_default() += count;
        *of_answer.entry(*found).or_default() += count;
        if truth == found {
            *equal.entry(*truth).or_default() += count;
        }
    }
    let at = |counts: &BTreeMap<u64, u64>, class: u64| counts.get(&class).copied().unwrap_or(0);
    let shares = of_truth.iter().map(|(class, pixels)| {
        let both = at(&equal, *class);
        share(both, pixels + at(&of_answer, *class) - both)
    });
    let sum: f64 = shares.sum();
    let all: u64 = of_truth.values().sum();
    #[expect(clippy::cast_precision_loss, reason = "at most 256 classes")]
    let mean = sum / of_truth.len() as f64;
    (mean, share(equal.values().sum(), all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_the_truth_count_alike() {
        let counts = [([0, 0], 6), ([0, 1], 2), ([1, 1], 3), ([2, 1], 1)];
        let (mean, equal) = mean_iou(&counts.into_iter().collect());
        let expected = (6.0 / 8.0 + 3.0 / 6.0 + 0.0) / 3.0;
        assert!((mean - expected).abs() < 1e-12, "{mean}");
        assert!((equal - 9.0 / 12.0).abs() < 1e-12, "{equal}");
    }
}
