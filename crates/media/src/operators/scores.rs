//! Scores of classes, labels, and vectors.

use super::{Array, Data, DataKind, Operator, StepContext, values};
use crate::answer::{LabelAnswer, ScoredLabel, TypedAnswer, TypedAnswerKind, VectorAnswer};
use crate::operators::{Arguments, Parameter, ParameterKind};

/// Largest deviation from 1 of the sum of probabilities.
const SUM_TOLERANCE: f32 = 1e-3;

pub(super) const TABLE: &[Operator] = &[
    Operator {
        name: "scores",
        from: &[DataKind::Values],
        to: DataKind::Values,
        parameters: &[Parameter {
            name: "function",
            kind: ParameterKind::Choice(&["auto", "softmax", "sigmoid", "none"]),
            default: Some("\"auto\""),
        }],
        run: scores,
    },
    Operator {
        name: "labels",
        from: &[DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Labels),
        parameters: &[
            Parameter {
                name: "top_k",
                kind: ParameterKind::Whole(1, 1_000_000),
                default: Some("5"),
            },
            Parameter {
                name: "threshold",
                kind: ParameterKind::Number(0.0, 1.0),
                default: Some("0"),
            },
            Parameter {
                name: "labels",
                kind: ParameterKind::Labels,
                default: Some("\"auto\""),
            },
        ],
        run: labels,
    },
    Operator {
        name: "vector",
        from: &[DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Vector),
        parameters: &[Parameter {
            name: "normalize",
            kind: ParameterKind::Flag,
            default: Some("true"),
        }],
        run: vector,
    },
];

/// Converts the values of the last dimension to probabilities. `auto` applies softmax unless they are
/// probabilities already.
fn scores(from: &[&Data], arguments: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    let array = values(from, 0)?;
    let width = array.shape.last().copied().unwrap_or(1).max(1);
    let mut scores = array.values.clone();
    for row in scores.chunks_mut(width) {
        match arguments.word("function") {
            "none" => {}
            "sigmoid" => {
                for value in row.iter_mut() {
                    *value = sigmoid(*value);
                }
            }
            "softmax" => softmax(row),
            _ if is_distribution(row) => {}
            _ => softmax(row),
        }
    }
    let shape = array.shape.clone();
    Ok(Data::Values(Array {
        shape,
        values: scores,
    }))
}

pub(super) fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

fn is_distribution(row: &[f32]) -> bool {
    let sum: f32 = row.iter().sum();
    (sum - 1.0).abs() <= SUM_TOLERANCE && row.iter().all(|value| (0.0..=1.0).contains(value))
}

/// Converts logits to probabilities; the largest one is subtracted first.
pub(super) fn softmax(row: &mut [f32]) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - most).exp();
        sum += *value;
    }
    for value in row {
        *value /= sum;
    }
}

fn labels(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [count] = array.last::<1>()?;
    if let Some(at) = array.values.iter().position(|value| value.is_nan()) {
        return Err(format!("the score of class {at} is not a number"));
    }
    let names = context.labels(arguments.json("labels"), Some(count))?;
    let threshold = arguments.number("threshold");
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| array.values[*b].total_cmp(&array.values[*a]));
    let kept = order.into_iter().take(arguments.whole("top_k"));
    let kept = kept.filter(|class| f64::from(array.values[*class]) >= threshold);
    let labels = kept.map(|index| ScoredLabel {
        label: names.name(index),
        score: array.values[index],
        index,
    });
    Ok(Data::Answer(TypedAnswer::Labels(LabelAnswer {
        labels: labels.collect(),
        label_source: names.source.clone(),
    })))
}

fn vector(from: &[&Data], arguments: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [_] = array.last::<1>()?;
    let mut vector = array.values.clone();
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if arguments.flag("normalize") && length > 0.0 {
        for value in &mut vector {
            *value /= length;
        }
    }
    Ok(Data::Answer(TypedAnswer::Vector(VectorAnswer { vector })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_stay_and_logits_become_probabilities() {
        assert!(is_distribution(&[0.25, 0.75]));
        assert!(!is_distribution(&[0.25, 0.25]));
        assert!(!is_distribution(&[-0.5, 1.5]));
        let mut row = [1000.0, 1000.0, f32::NEG_INFINITY];
        softmax(&mut row);
        assert_eq!(row.map(f32::to_bits), [0.5_f32, 0.5, 0.0].map(f32::to_bits));
        assert!((sigmoid(0.0) - 0.5).abs() < f32::EPSILON);
    }
}
