//! Suppression of boxes that overlap better ones, and joining of boxes.

use super::{Data, DataKind, FoundBox, Operator, StepContext, boxes};
use crate::operators::{Arguments, Parameter, ParameterKind};

/// Maximum number of boxes that are compared with each other; the best ones are kept.
const MAX_COMPARED: usize = 8192;

pub(super) const TABLE: &[Operator] = &[
    Operator {
        name: "suppress",
        from: &[DataKind::Boxes],
        to: DataKind::Boxes,
        parameters: &[
            Parameter {
                name: "iou",
                kind: ParameterKind::Number(0.0, 1.0),
                default: Some("0.5"),
            },
            Parameter {
                name: "by_class",
                kind: ParameterKind::Flag,
                default: Some("true"),
            },
            Parameter {
                name: "most",
                kind: ParameterKind::Whole(1, 8192),
                default: Some("300"),
            },
        ],
        run: suppress,
    },
    Operator {
        name: "join",
        from: &[DataKind::Boxes, DataKind::Boxes],
        to: DataKind::Boxes,
        parameters: &[],
        run: join,
    },
];

/// Keeps the boxes that overlap no better box by more than `iou`, best first.
fn suppress(
    from: &[&Data],
    arguments: &Arguments,
    _: &mut StepContext<'_>,
) -> Result<Data, String> {
    let mut found = boxes(from, 0)?.to_vec();
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(MAX_COMPARED);
    let (most, iou) = (arguments.whole("most"), arguments.number("iou"));
    let by_class = arguments.flag("by_class");
    let mut kept: Vec<FoundBox> = Vec::new();
    for candidate in found {
        let overlaps = |better: &FoundBox| {
            (!by_class || better.class == candidate.class)
                && overlap(&better.corners, &candidate.corners) > iou
        };
        if !kept.iter().any(overlaps) {
            kept.push(candidate);
            if kept.len() == most {
                break;
            }
        }
    }
    Ok(Data::Boxes(kept))
}

/// Returns the common area of two boxes relative to the area that they cover.
pub(crate) fn overlap(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let area = |b: &[f64; 4]| (b[2] - b[0]).max(0.0) * (b[3] - b[1]).max(0.0);
    let common = [
        a[0].max(b[0]),
        a[1].max(b[1]),
        a[2].min(b[2]),
        a[3].min(b[3]),
    ];
    let common = area(&common);
    let covered = area(a) + area(b) - common;
    if covered > 0.0 { common / covered } else { 0.0 }
}

fn join(from: &[&Data], _: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    let mut joined = boxes(from, 0)?.to_vec();
    joined.extend_from_slice(boxes(from, 1)?);
    Ok(Data::Boxes(joined))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::Symbols;
    use crate::picture::Geometry;
    use serde_json::json;

    #[test]
    fn worse_boxes_at_the_same_place_go() {
        let found = |left: f64, score: f64, class: usize| FoundBox {
            corners: [left, 0.0, left + 10.0, 10.0],
            score,
            class,
            row: 0,
        };
        let data = Data::Boxes(vec![
            found(1.0, 0.6, 1),
            found(0.0, 0.9, 0),
            found(2.0, 0.8, 0),
            found(50.0, 0.3, 0),
        ]);
        let symbols = Symbols::new();
        let mut context = StepContext {
            geometry: Geometry::same([9, 9]),
            ..StepContext::new(&symbols)
        };
        for (by_class, most, expected) in [
            (true, 9, vec![0.9, 0.6, 0.3]),
            (false, 9, vec![0.9, 0.3]),
            (true, 1, vec![0.9]),
        ] {
            let arguments = Arguments(
                [
                    ("iou", json!(0.5)),
                    ("by_class", json!(by_class)),
                    ("most", json!(most)),
                ]
                .into(),
            );
            let Ok(Data::Boxes(kept)) = suppress(&[&data], &arguments, &mut context) else {
                panic!("boxes")
            };
            assert_eq!(kept.iter().map(|it| it.score).collect::<Vec<_>>(), expected);
        }
        assert!((overlap(&[0.0, 0.0, 2.0, 2.0], &[1.0, 0.0, 3.0, 2.0]) - 1.0 / 3.0).abs() < 1e-12);
        assert!(overlap(&[0.0; 4], &[0.0; 4]).abs() < f64::EPSILON);
    }
}
