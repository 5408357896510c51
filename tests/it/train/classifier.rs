//! The classifier against scikit-learn's: `tests/fixtures/train/make.py` writes what that makes of the same rows.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use pkgtool::train::classifier::{Examples, FitError, Metrics, fit};
use pkgtool::train::{ClassWeights, FitOptions};
use serde_json::Value;

fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/train/classifier.json");
    let text = fs::read_to_string(path).expect("the fixture is there");
    let mut read: Value = serde_json::from_str(&text).expect("JSON");
    serde_json::from_value(read["cases"].take()).expect("a list")
}

fn of<T: serde::de::DeserializeOwned>(case: &Value, key: &str) -> T {
    serde_json::from_value(case[key].clone()).expect(key)
}

/// How much each row counts, as scikit-learn has it.
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

fn options(case: &Value, tolerance: f64) -> FitOptions {
    FitOptions {
        l2: of(case, "l2"),
        tolerance,
        max_iterations: 10_000,
        class_weights: ClassWeights::Equal,
        ..FitOptions::default()
    }
}

#[test]
fn probabilities_are_those_of_scikit_learn() {
    for (number, case) in cases().iter().enumerate() {
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
            &options(case, 1e-9),
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
        let fitted = pool
            .expect("a pool")
            .install(|| fit(examples, vec![1.0; 1000], &FitOptions::default(), &|_| true));
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
    let stopped = fit(examples(&good), vec![1.0; 4], &FitOptions::default(), &stop);
    assert!(matches!(stopped, Err(FitError::Stopped)), "{stopped:?}");
    assert_eq!(looks.get(), 2);
    let bad = [0.0, f32::NAN, 0.5, 0.7];
    let refused = fit(
        examples(&bad),
        vec![1.0; 4],
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
        l2: 0.0,
        max_iterations: 5,
        tolerance: 1e-12,
        ..FitOptions::default()
    };
    let fitted = fit(examples, vec![1.0; 4], &options, &|_| true).expect("it is found");
    assert!(!fitted.converged);
    assert_eq!(fitted.classifier.predict(&[0.0, 1.0, 5.0, 6.0]), labels);
}
