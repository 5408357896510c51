//! Boxes that a model's graph has decoded, and the answer of boxes.

use super::{Array, Data, DataKind, FoundBox, Operator, StepContext, boxes, values};
use crate::answer::{BoxAnswer, DetectedObject, TypedAnswer, TypedAnswerKind};
use crate::labels::Labels;
use crate::operators::{Arguments, Parameter, ParameterKind};

pub(super) const FORMAT: Parameter = Parameter {
    name: "format",
    kind: ParameterKind::Choice(&["xyxy", "xywh", "cxcywh"]),
    default: Some("\"xyxy\""),
};

pub(super) const UNIT: Parameter = Parameter {
    name: "unit",
    kind: ParameterKind::Choice(&["pixels", "unit"]),
    default: Some("\"pixels\""),
};

pub(super) const THRESHOLD: Parameter = Parameter {
    name: "threshold",
    kind: ParameterKind::Number(0.0, 1.0),
    default: Some("0.5"),
};

const LABELS: Parameter = Parameter {
    name: "labels",
    kind: ParameterKind::Labels,
    default: Some("\"auto\""),
};

pub(super) const TABLE: &[Operator] = &[
    // Boxes [N, 4], scores [N] and classes [N].
    Operator {
        name: "boxes",
        from: &[DataKind::Values, DataKind::Values, DataKind::Values],
        to: DataKind::Boxes,
        parameters: &[FORMAT, UNIT, THRESHOLD],
        run: separate,
    },
    // Boxes [N, 4] and scores of every class [N, C].
    Operator {
        name: "boxes_by_class",
        from: &[DataKind::Values, DataKind::Values],
        to: DataKind::Boxes,
        parameters: &[FORMAT, UNIT, THRESHOLD],
        run: by_class,
    },
    // Boxes [N, 4] and pairs of score and class [N, 2].
    Operator {
        name: "boxes_with_pairs",
        from: &[DataKind::Values, DataKind::Values],
        to: DataKind::Boxes,
        parameters: &[FORMAT, UNIT, THRESHOLD],
        run: pairs,
    },
    // Rows [N, 6] of corners, score and class.
    Operator {
        name: "box_rows",
        from: &[DataKind::Values],
        to: DataKind::Boxes,
        parameters: &[FORMAT, UNIT, THRESHOLD],
        run: rows,
    },
    Operator {
        name: "detections",
        from: &[DataKind::Boxes],
        to: DataKind::Answer(TypedAnswerKind::Boxes),
        parameters: &[LABELS],
        run: detections,
    },
];

/// Converts four numbers to corners in pixels of the input.
pub(super) struct Corners {
    format: String,
    factor: [f64; 2],
}

impl Corners {
    pub(super) fn of(arguments: &Arguments, context: &StepContext<'_>) -> Self {
        let is_unit = arguments.word("unit") == "unit";
        let sides = context.geometry.model.map(f64::from);
        Self {
            format: arguments.word("format").to_owned(),
            factor: if is_unit { sides } else { [1.0; 2] },
        }
    }

    pub(super) fn read(&self, numbers: [f32; 4]) -> [f64; 4] {
        let numbers = numbers.map(f64::from);
        let [x, y, width, height] = numbers;
        let [left, top, right, bottom] = match self.format.as_str() {
            "xywh" => [x, y, x + width, y + height],
            "cxcywh" => [
                x - width / 2.0,
                y - height / 2.0,
                x + width / 2.0,
                y + height / 2.0,
            ],
            _ => numbers,
        };
        let [across, down] = self.factor;
        [left * across, top * down, right * across, bottom * down]
    }
}

/// Keeps a box whose score reaches the threshold and whose numbers are finite.
pub(super) fn kept(found: FoundBox, threshold: f64) -> Option<FoundBox> {
    let is_sound = found.corners.iter().all(|at| at.is_finite());
    (found.score >= threshold && is_sound).then_some(found)
}

/// Converts a class that a model gives as a float.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be in range"
)]
fn class(value: f32) -> Option<usize> {
    let rounded = value.round();
    (0.0..1e6).contains(&rounded).then_some(rounded as usize)
}

/// Builds boxes of rows: `row` gives the four numbers, the score and the class of a row.
fn collect(
    count: usize,
    arguments: &Arguments,
    context: &StepContext<'_>,
    row: impl Fn(usize) -> ([f32; 4], f32, Option<usize>),
) -> Data {
    let corners = Corners::of(arguments, context);
    let threshold = arguments.number("threshold");
    let found = (0..count).filter_map(|at| {
        let (numbers, score, class) = row(at);
        let found = FoundBox {
            corners: corners.read(numbers),
            score: f64::from(score),
            class: class?,
            row: at,
        };
        kept(found, threshold)
    });
    Data::Boxes(found.collect())
}

/// Returns the boxes and their number.
fn four(array: &Array) -> Result<(impl Fn(usize) -> [f32; 4], usize), String> {
    let [count, 4] = array.last::<2>()? else {
        return Err(format!(
            "expected boxes of 4 numbers, got {:?}",
            array.shape
        ));
    };
    let (numbers, _) = array.values.as_chunks::<4>();
    Ok((|at: usize| numbers[at], count))
}

fn same_count(count: usize, array: &Array) -> Result<(), String> {
    if array.values.len() == count {
        return Ok(());
    }
    Err(format!(
        "{count} boxes need as many scores and classes, got {:?}",
        array.shape
    ))
}

fn separate(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let (scores, classes) = (values(from, 1)?, values(from, 2)?);
    let (numbers, count) = four(values(from, 0)?)?;
    same_count(count, scores)?;
    same_count(count, classes)?;
    let row = |at: usize| (numbers(at), scores.values[at], class(classes.values[at]));
    Ok(collect(count, arguments, context, row))
}

fn by_class(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let scores = values(from, 1)?;
    let (numbers, count) = four(values(from, 0)?)?;
    let [rows, width] = scores.last::<2>()?;
    if rows != count || width == 0 {
        return Err(format!(
            "{count} boxes need as many rows of scores, got {:?}",
            scores.shape
        ));
    }
    let row = |at: usize| {
        let (class, score) = best(&scores.values[at * width..(at + 1) * width]);
        (numbers(at), score, Some(class))
    };
    Ok(collect(count, arguments, context, row))
}

/// Returns the first class with the highest score.
pub(super) fn best(scores: &[f32]) -> (usize, f32) {
    let start = (0, f32::NEG_INFINITY);
    scores
        .iter()
        .enumerate()
        .fold(start, |best, (class, score)| {
            if *score > best.1 {
                (class, *score)
            } else {
                best
            }
        })
}

fn pairs(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let pairs = values(from, 1)?;
    let (numbers, count) = four(values(from, 0)?)?;
    if pairs.last::<2>()? != [count, 2] {
        return Err(format!(
            "{count} boxes need as many pairs of score and class, got {:?}",
            pairs.shape
        ));
    }
    let row = |at: usize| {
        (
            numbers(at),
            pairs.values[at * 2],
            class(pairs.values[at * 2 + 1]),
        )
    };
    Ok(collect(count, arguments, context, row))
}

fn rows(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [count, 6] = array.last::<2>()? else {
        return Err(format!("expected rows of 6 numbers, got {:?}", array.shape));
    };
    let (rows, _) = array.values.as_chunks::<6>();
    let row = |at: usize| {
        let [a, b, c, d, score, of] = rows[at];
        ([a, b, c, d], score, class(of))
    };
    Ok(collect(count, arguments, context, row))
}

/// Converts a box to pixels of the picture, with its label.
pub(super) fn detected(
    found: &FoundBox,
    names: &Labels,
    context: &StepContext<'_>,
) -> DetectedObject {
    let [left, top, right, bottom] = found.corners;
    let [xmin, ymin] = context
        .geometry
        .to_picture([left.min(right), top.min(bottom)]);
    let [xmax, ymax] = context
        .geometry
        .to_picture([left.max(right), top.max(bottom)]);
    DetectedObject {
        label: names.name(found.class),
        score: found.score,
        index: found.class,
        corners: [xmin, ymin, xmax, ymax],
        mask: None,
    }
}

fn detections(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let names = context.labels(arguments.json("labels"), None)?;
    let found = boxes(from, 0)?.iter();
    Ok(Data::Answer(TypedAnswer::Boxes(BoxAnswer {
        runs: false,
        boxes: found
            .map(|found| detected(found, &names, context))
            .collect(),
        size: context.geometry.picture,
        label_source: names.source.clone(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::Symbols;
    use crate::picture::Geometry;
    use serde_json::json;

    fn array(shape: &[usize], values: &[f32]) -> Data {
        Data::Values(Array {
            shape: shape.to_vec(),
            values: values.to_vec(),
        })
    }

    #[test]
    fn every_form_gives_the_same_boxes() {
        let symbols = Symbols::new();
        let geometry = Geometry {
            picture: [100, 100],
            model: [10, 20],
            scale: [0.1, 0.2],
            offset: [0.0; 2],
        };
        let mut context = StepContext {
            geometry,
            ..StepContext::new(&symbols)
        };
        let forms = [
            ("xyxy", "pixels", [2.0, 4.0, 6.0, 8.0]),
            ("xywh", "pixels", [2.0, 4.0, 4.0, 4.0]),
            ("cxcywh", "unit", [0.4, 0.3, 0.4, 0.2]),
        ];
        for (format, unit, numbers) in forms {
            let arguments = Arguments(
                [
                    ("format", json!(format)),
                    ("unit", json!(unit)),
                    ("threshold", json!(0.5)),
                ]
                .into(),
            );
            let four = array(&[1, 1, 4], &numbers);
            let [a, b, c, d] = numbers;
            let all = [
                separate(
                    &[&four, &array(&[1, 1], &[0.5]), &array(&[1, 1], &[2.0])],
                    &arguments,
                    &mut context,
                ),
                by_class(
                    &[&four, &array(&[1, 1, 3], &[0.1, 0.2, 0.5])],
                    &arguments,
                    &mut context,
                ),
                pairs(
                    &[&four, &array(&[1, 1, 2], &[0.5, 2.0])],
                    &arguments,
                    &mut context,
                ),
                rows(
                    &[&array(&[1, 1, 6], &[a, b, c, d, 0.5, 2.0])],
                    &arguments,
                    &mut context,
                ),
            ];
            for data in all {
                let Ok(Data::Boxes(found)) = data else {
                    panic!("boxes")
                };
                let object = detected(&found[0], &Labels::default(), &context);
                assert_eq!((found.len(), object.index), (1, 2));
                for (at, expected) in object.corners.iter().zip([20.0, 20.0, 60.0, 40.0]) {
                    assert!(
                        (at - expected).abs() < 1e-4,
                        "{format}: {:?}",
                        object.corners
                    );
                }
            }
        }
    }

    #[test]
    fn wrong_shapes_and_numbers_are_refused_or_dropped() {
        let symbols = Symbols::new();
        let mut context = StepContext {
            geometry: Geometry::same([8, 8]),
            ..StepContext::new(&symbols)
        };
        let arguments = Arguments([("threshold", json!(0.5))].into());
        let four = array(&[1, 4], &[0.0, 0.0, f32::NAN, 4.0]);
        for (score, class) in [(0.9, 1.0), (f32::NAN, 1.0), (0.9, -3.0), (0.9, f32::NAN)] {
            let data = [&four, &array(&[1], &[score]), &array(&[1], &[class])];
            let Ok(Data::Boxes(found)) = separate(&data, &arguments, &mut context) else {
                panic!("boxes")
            };
            assert_eq!(found, []);
        }
        let two = array(&[2], &[0.5, 0.5]);
        let error =
            separate(&[&four, &two, &two], &arguments, &mut context).expect_err("two scores");
        assert!(error.contains("as many scores"), "{error}");
        let error = rows(&[&four], &arguments, &mut context).expect_err("four numbers");
        assert!(error.contains("rows of 6 numbers"), "{error}");
    }
}
