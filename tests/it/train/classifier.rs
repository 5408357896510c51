//! Tests of the classifier against scikit-learn: `tests/fixtures/train/make.py` writes its results
//! for the same rows.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use pkgtool_serve::train::FitOptions;
use pkgtool_serve::train::classifier::{
    Examples, FitError, LabelSet, Metrics, SetExamples, SetWeights, above, choose, fit, fit_sets,
    split,
};
use serde_json::{Value, json};

use crate::support::environment::EnvironmentPiece;
use crate::support::sklearn::scikit_learn;

fn cases(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/train");
    let text = fs::read_to_string(path.join(file)).expect("the fixture is there");
    let mut read: Value = serde_json::from_str(&text).expect("JSON");
    serde_json::from_value(read["cases"].take()).expect("a list")
}

fn of<T: serde::de::DeserializeOwned>(case: &Value, key: &str) -> T {
    serde_json::from_value(case[key].clone()).expect(key)
}

/// Returns the weight of each row, as scikit-learn computes it.
#[expect(clippy::cast_precision_loss, reason = "a few rows")]
fn weights(case: &Value, labels: &[u32]) -> Vec<f64> {
    let count: usize = of(case, "labels");
    match &case["class_weights"] {
        Value::Null => vec![1.0; labels.len()],
        Value::String(_) => {
            let of_label = |label: u32| labels.iter().filter(|it| **it == label).count() as f64;
            let share = labels.len() as f64 / count as f64;
            labels
                .iter()
                .map(|label| share / of_label(*label))
                .collect()
        }
        given => {
            let weight = |label: &u32| given[label.to_string()].as_f64().unwrap_or(1.0);
            labels.iter().map(weight).collect()
        }
    }
}

fn options(tolerance: f64) -> FitOptions {
    FitOptions {
        tolerance,
        max_iterations: 10_000,
        ..FitOptions::default()
    }
}

#[test]
fn probabilities_are_those_of_scikit_learn() {
    for (number, case) in cases("classifier.json").iter().enumerate() {
        let rows: Vec<Vec<f32>> = of(case, "x");
        let vectors = rows.concat();
        let labels: Vec<u32> = of(case, "y");
        let examples = Examples {
            vectors: &vectors,
            width: rows[0].len(),
            labels: &labels,
            count: of(case, "labels"),
        };
        let fitted = fit(
            examples,
            weights(case, &labels),
            of(case, "l2"),
            &options(1e-9),
            &|_| true,
        );
        let fitted = fitted.expect("it is found");
        assert!(fitted.converged, "case {number}");
        let expected: Vec<Vec<f32>> = of(case, "probabilities");
        let found = fitted.classifier.probabilities(&vectors);
        for (found, expected) in found.iter().zip(expected.concat()) {
            assert!(
                (found - expected).abs() < 2e-6,
                "case {number}: {found}, not {expected}"
            );
        }
        let taken = fitted.classifier.predict(&vectors);
        let names: Vec<String> = (0..examples.count).map(|it| it.to_string()).collect();
        let metrics = Metrics::of(&names, &labels, &taken);
        let close = |found: f64, key: &str| assert!((found - of::<f64>(case, key)).abs() < 1e-9);
        close(metrics.accuracy, "accuracy");
        close(metrics.macro_f1, "macro_f1");
        let matrix: Vec<Vec<u64>> = of(case, "confusion_matrix");
        assert_eq!(metrics.confusion_matrix, matrix);
    }
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "a few rows")]
fn probabilities_of_several_labels_are_those_of_scikit_learn() {
    for (number, case) in cases("sets.json").iter().enumerate() {
        let rows: Vec<Vec<f32>> = of(case, "x");
        let vectors = rows.concat();
        let sets: Vec<LabelSet> = of(case, "y");
        let examples = SetExamples {
            vectors: &vectors,
            width: rows[0].len(),
            sets: &sets,
            count: of(case, "labels"),
        };
        let weight = |with: bool| {
            let of_label = |count: usize| {
                let count = if with { count } else { sets.len() - count };
                match case["class_weights"] {
                    Value::Null => 1.0,
                    _ => sets.len() as f64 / (2 * count) as f64,
                }
            };
            examples.rows_by_label().into_iter().map(of_label).collect()
        };
        let weights = SetWeights {
            with: weight(true),
            without: weight(false),
        };
        let fitted = fit_sets(examples, &weights, of(case, "l2"), &options(1e-9), &|_| {
            true
        });
        let fitted = fitted.expect("it is found");
        assert!(fitted.converged, "case {number}");
        let expected: Vec<Vec<f32>> = of(case, "probabilities");
        let found = fitted.classifier.probabilities(&vectors);
        for (found, expected) in found.iter().zip(expected.concat()) {
            assert!(
                (found - expected).abs() < 2e-6,
                "case {number}: {found}, not {expected}"
            );
        }
        let names: Vec<String> = (0..examples.count).map(|it| it.to_string()).collect();
        let metrics = Metrics::of_sets(&names, &sets, &above(&found.view(), 0.5));
        let close = |found: f64, key: &str| assert!((found - of::<f64>(case, key)).abs() < 1e-9);
        close(metrics.accuracy, "accuracy");
        close(metrics.macro_f1, "macro_f1");
    }
}

#[test]
fn the_same_rows_give_the_same_weights_to_the_bit() {
    let width = 33;
    let labels: Vec<u32> = (0..1000).map(|row: u32| row * row % 5).collect();
    let number = |it: u16| (f32::from(it) * 0.7).sin();
    let vectors: Vec<f32> = (0..1000 * 33).map(number).collect();
    let examples = Examples {
        vectors: &vectors,
        width,
        labels: &labels,
        count: 5,
    };
    let once = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let fitted = pool.expect("a pool").install(|| {
            fit(
                examples,
                vec![1.0; 1000],
                1.0,
                &FitOptions::default(),
                &|_| true,
            )
        });
        fitted.expect("it is found")
    };
    let first = once(1);
    assert_eq!(first, once(4));
    assert_eq!(first, once(3), "the third time, too");
}

#[test]
fn a_search_is_stopped_and_bad_numbers_are_refused() {
    let labels = [0, 1, 0, 1];
    let examples = |vectors| Examples {
        vectors,
        width: 1,
        labels: &labels,
        count: 2,
    };
    let looks = Cell::new(0);
    let stop = |_: u64| {
        looks.set(looks.get() + 1);
        looks.get() < 2
    };
    let good = [0.0, 1.0, 0.5, 0.7];
    let stopped = fit(
        examples(&good),
        vec![1.0; 4],
        1.0,
        &FitOptions::default(),
        &stop,
    );
    assert!(matches!(stopped, Err(FitError::Stopped)), "{stopped:?}");
    assert_eq!(looks.get(), 2);
    let bad = [0.0, f32::NAN, 0.5, 0.7];
    let refused = fit(
        examples(&bad),
        vec![1.0; 4],
        1.0,
        &FitOptions::default(),
        &|_| true,
    );
    assert!(matches!(refused, Err(FitError::NotFinite)));
}

#[test]
fn rows_that_can_be_told_apart_without_a_penalty_end_at_the_most_iterations() {
    let labels = [0, 0, 1, 1];
    let examples = Examples {
        vectors: &[0.0, 1.0, 5.0, 6.0],
        width: 1,
        labels: &labels,
        count: 2,
    };
    let options = FitOptions {
        max_iterations: 5,
        tolerance: 1e-12,
        ..FitOptions::default()
    };
    let fitted = fit(examples, vec![1.0; 4], 0.0, &options, &|_| true).expect("it is found");
    assert!(!fitted.converged);
    assert_eq!(fitted.classifier.predict(&[0.0, 1.0, 5.0, 6.0]), labels);
}

/// Script that prints the macro F1 of scikit-learn's classifier: with its default penalty, and the
/// best over several penalties and weights.
const SCIKIT_LEARN: &str = "
import json, sys
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
given = json.load(sys.stdin)
x, y, first = given['x'], given['y'], given['first']
def score(c, weight):
    model = LogisticRegression(C=c, max_iter=1000, class_weight=weight).fit(x[:first], y[:first])
    return f1_score(y[first:], model.predict(x[first:]), average='macro')
all = [score(c, weight) for c in (1, 3, 10, 30, 100) for weight in (None, 'balanced')]
print(json.dumps({'default': score(1, None), 'best': max(all)}))
";

/// Returns rows of length 1, like embeddings, of which few have a label other than the first.
fn imbalanced(times: usize, state: &mut u64) -> (Vec<Vec<f32>>, Vec<u32>) {
    let mut noise = || -> f32 {
        let drawn = (0..4).map(|_| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005);
            *state = state.wrapping_add(1_442_695_040_888_963_407);
            f32::from(u16::try_from(*state >> 48).expect("16 bits")) / 65536.0
        });
        drawn.sum::<f32>() - 2.0
    };
    let (mut rows, mut labels) = (Vec::new(), Vec::new());
    for (label, count) in [300, 20, 15, 10].into_iter().enumerate() {
        for _ in 0..count * times {
            let of = |place: usize| if place % 4 == label { 0.7 } else { 0.0 };
            let row: Vec<f32> = (0..32).map(|place| noise() + of(place)).collect();
            let length = row.iter().map(|it| it * it).sum::<f32>().sqrt();
            rows.push(row.iter().map(|it| it / length).collect());
            labels.push(u32::try_from(label).expect("few"));
        }
    }
    (rows, labels)
}

fn examples((vectors, labels): &(Vec<f32>, Vec<u32>)) -> Examples<'_> {
    Examples {
        vectors,
        width: 32,
        labels,
        count: 4,
    }
}

#[test]
fn a_chosen_penalty_does_not_starve_labels_with_few_rows() {
    let test = "a_chosen_penalty_does_not_starve_labels_with_few_rows";
    let Some(sklearn) = EnvironmentPiece::Sklearn.or_skip(test) else {
        return;
    };
    let mut state = 1;
    let (mut rows, mut labels) = imbalanced(1, &mut state);
    let first = rows.len();
    let (others, their_labels) = imbalanced(3, &mut state);
    let parts = split(&labels, 4, 0.2, 0);
    let of = |places: &[usize]| -> (Vec<f32>, Vec<u32>) {
        let vectors = places.iter().flat_map(|row| rows[*row].clone()).collect();
        (vectors, places.iter().map(|row| labels[*row]).collect())
    };
    let (training, kept) = (of(&parts.training), of(&parts.validation));
    let both = (examples(&training), examples(&kept));
    let count = |label: u32| training.1.iter().filter(|it| **it == label).count();
    let counts: Vec<f64> = (0..4)
        .map(|it| f64::from(u32::try_from(count(it)).expect("few")))
        .collect();
    let equal = vec![1.0; training.1.len()];
    let balanced = training
        .1
        .iter()
        .map(|label| 69.0 / counts[*label as usize])
        .collect();
    let weighings = [equal.clone(), balanced];
    let options = FitOptions::default();
    let chosen = choose(both, &weighings, &options, &|_| true).expect("it is found");
    let again = choose(both, &weighings, &options, &|_| true).expect("it is found");
    assert_eq!(chosen, again, "the same rows give the same choice");
    assert_eq!(chosen.tried, 16);
    let test_vectors = others.concat();
    let names: Vec<String> = (0..4).map(|it: u32| it.to_string()).collect();
    let score = |l2: f64, weights: &[f64]| {
        let fitted = fit(both.0, weights.to_vec(), l2, &options, &|_| true).expect("it is found");
        let taken = fitted.classifier.predict(&test_vectors);
        Metrics::of(&names, &their_labels, &taken)
    };
    let own = score(chosen.l2, &weighings[chosen.weights]).macro_f1;
    let starved = score(1.0, &equal);
    assert!(
        own > starved.macro_f1 + 0.05,
        "{chosen:?}: {own}, not {}",
        starved.macro_f1
    );
    let warned = starved.warning();
    assert_eq!(warned.is_some(), starved.accuracy - starved.macro_f1 > 0.1);
    rows.extend(others);
    labels.extend(&their_labels);
    let given = json!({"x": rows, "y": labels, "first": first});
    let said = scikit_learn(&sklearn, SCIKIT_LEARN, &given);
    let (default, best): (f64, f64) = (self::of(&said, "default"), self::of(&said, "best"));
    // Scikit-learn also trains on the rows that pkgtool keeps for validation.
    assert!(own > default, "{own}, and scikit-learn's default {default}");
    assert!(own > best - 0.05, "{own}, and scikit-learn's best {best}");
}
