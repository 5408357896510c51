//! Boxes of raw heads, which the model's graph has not decoded.

use super::boxes::{Corners, FORMAT, THRESHOLD, UNIT, best, kept};
use super::scores::softmax;
use super::{Data, DataKind, FoundBox, Operator, StepContext, values};
use crate::operators::{Arguments, Parameter, ParameterKind};

pub(super) const TABLE: &[Operator] = &[
    // Columns [4 + C, A]: four numbers and the scores of all classes, as YOLOv8 and YOLO11 give them.
    Operator {
        name: "box_columns",
        from: &[DataKind::Values],
        to: DataKind::Boxes,
        parameters: &[FORMAT, UNIT, THRESHOLD],
        run: columns,
    },
    // Rows [A, 5 + C]: four numbers, the score of an object, and the scores of all classes, as YOLOv5 gives them.
    Operator {
        name: "object_rows",
        from: &[DataKind::Values],
        to: DataKind::Boxes,
        parameters: &[FORMAT, UNIT, THRESHOLD],
        run: object_rows,
    },
    // Scores [A, C] and distances [A, 4 * B] of one stride: each distance is a distribution over B steps, as
    // PicoDet and NanoDet give them.
    Operator {
        name: "distances",
        from: &[DataKind::Values, DataKind::Values],
        to: DataKind::Boxes,
        parameters: &[
            Parameter {
                name: "stride",
                kind: ParameterKind::Whole(1, 1024),
                default: None,
            },
            THRESHOLD,
        ],
        run: distances,
    },
];

fn columns(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [height, count] = array.last::<2>()?;
    if height < 5 {
        return Err(format!(
            "expected 4 numbers and scores for each box, got {:?}",
            array.shape
        ));
    }
    let corners = Corners::of(arguments, context);
    let threshold = arguments.number("threshold");
    let value = |row: usize, at: usize| array.values[row * count + at];
    // One pass over each row of scores, since a column's values are far from each other.
    let mut most = vec![(0, f32::NEG_INFINITY); count];
    for (class, scores) in array.values.chunks_exact(count.max(1)).skip(4).enumerate() {
        for (most, score) in most.iter_mut().zip(scores) {
            if *score > most.1 {
                *most = (class, *score);
            }
        }
    }
    let found = most
        .into_iter()
        .enumerate()
        .filter_map(|(at, (class, score))| {
            let numbers = [0, 1, 2, 3].map(|row| value(row, at));
            let found = FoundBox {
                corners: corners.read(numbers),
                score: f64::from(score),
                class,
                row: at,
            };
            kept(found, threshold)
        });
    Ok(Data::Boxes(found.collect()))
}

fn object_rows(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [_, width] = array.last::<2>()?;
    if width < 6 {
        return Err(format!(
            "expected 5 numbers and scores for each box, got {:?}",
            array.shape
        ));
    }
    let corners = Corners::of(arguments, context);
    let threshold = arguments.number("threshold");
    let rows = array.values.chunks_exact(width).enumerate();
    let found = rows.filter_map(|(at, row)| {
        let (class, score) = best(&row[5..]);
        let found = FoundBox {
            corners: corners.read([row[0], row[1], row[2], row[3]]),
            score: f64::from(row[4]) * f64::from(score),
            class,
            row: at,
        };
        kept(found, threshold)
    });
    Ok(Data::Boxes(found.collect()))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an input has at most 4096 pixels per side"
)]
fn distances(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let (scores, distances) = (values(from, 0)?, values(from, 1)?);
    let ([count, classes], [rows, width]) = (scores.last::<2>()?, distances.last::<2>()?);
    let stride = arguments.whole("stride").max(1);
    let [across, down] = context
        .geometry
        .model
        .map(|side| (side as usize).div_ceil(stride));
    let bins = width / 4;
    if count != rows || classes == 0 || bins == 0 || width % 4 != 0 || across * down != count {
        return Err(format!(
            "scores {:?} and distances {:?} do not fit {across} x {down} places of stride {stride}",
            scores.shape, distances.shape
        ));
    }
    let threshold = arguments.number("threshold");
    let mut found = Vec::new();
    for at in 0..count {
        let (class, score) = best(&scores.values[at * classes..(at + 1) * classes]);
        if f64::from(score) < threshold {
            continue;
        }
        let centre = [at % across, at / across].map(|place| (place as f64 + 0.5) * stride as f64);
        let sides = [0, 1, 2, 3].map(|side| {
            let start = at * width + side * bins;
            let mut row = distances.values[start..start + bins].to_vec();
            softmax(&mut row);
            let mean: f64 = row
                .iter()
                .enumerate()
                .map(|(step, part)| step as f64 * f64::from(*part))
                .sum();
            mean * stride as f64
        });
        let corners = [
            centre[0] - sides[0],
            centre[1] - sides[1],
            centre[0] + sides[2],
            centre[1] + sides[3],
        ];
        found.extend(kept(
            FoundBox {
                corners,
                score: f64::from(score),
                class,
                row: at,
            },
            threshold,
        ));
    }
    Ok(Data::Boxes(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::Array;
    use crate::operators::Symbols;
    use crate::picture::Geometry;
    use serde_json::json;

    fn found(
        run: super::super::Run,
        data: &[(&[usize], Vec<f32>)],
        given: &[(&'static str, serde_json::Value)],
    ) -> Vec<FoundBox> {
        let symbols = Symbols::new();
        let mut context = StepContext {
            geometry: Geometry::same([16, 8]),
            ..StepContext::new(&symbols)
        };
        let data: Vec<Data> = data
            .iter()
            .map(|(shape, values)| {
                Data::Values(Array {
                    shape: shape.to_vec(),
                    values: values.clone(),
                })
            })
            .collect();
        let arguments = Arguments(given.iter().cloned().collect());
        match run(&data.iter().collect::<Vec<_>>(), &arguments, &mut context) {
            Ok(Data::Boxes(found)) => found,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn raw_heads_are_decoded() {
        let given = [("format", json!("cxcywh")), ("threshold", json!(0.25))];
        // Two boxes in columns: 4 numbers, 2 classes.
        let values = vec![4.0, 9.0, 4.0, 9.0, 2.0, 2.0, 2.0, 2.0, 0.1, 0.2, 0.6, 0.1];
        let boxes = found(columns, &[(&[1, 6, 2], values)], &given);
        let expected = FoundBox {
            corners: [3.0, 3.0, 5.0, 5.0],
            score: f64::from(0.6_f32),
            class: 1,
            row: 0,
        };
        assert_eq!(boxes, [expected]);
        let rows = vec![
            4.0, 4.0, 2.0, 2.0, 0.5, 0.25, 1.0, 4.0, 4.0, 2.0, 2.0, 0.1, 1.0, 1.0,
        ];
        let boxes = found(object_rows, &[(&[2, 7], rows)], &given);
        assert_eq!((boxes.len(), boxes[0].class, boxes[0].score), (1, 1, 0.5));
        // Two places of stride 8; the distribution is certain of step 1.
        let distances_of = [0.0, 100.0].repeat(8);
        let given = [("stride", json!(8)), ("threshold", json!(0.5))];
        let boxes = found(
            distances,
            &[(&[2, 1], vec![0.9, 0.1]), (&[2, 8], distances_of)],
            &given,
        );
        assert_eq!(
            boxes[0].corners.map(f64::to_bits),
            [-4.0_f64, -4.0, 12.0, 12.0].map(f64::to_bits)
        );
        assert_eq!(boxes.len(), 1);
    }
}
