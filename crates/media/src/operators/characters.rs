//! Lines of text in maps of characters and of the links between them.

use super::lines::{Rectangle, as_number, hull, in_reading_order};
use super::{Data, DataKind, Operator, StepContext, values};
use crate::answer::{LineAnswer, TextLine, TypedAnswer, TypedAnswerKind};
use crate::operators::{Arguments, Parameter, ParameterKind};
use crate::picture::Quad;

/// Minimum number of pixels of an area.
const MIN_PIXELS: usize = 10;

/// Maximum number of areas. The largest ones are kept.
const MAX_AREAS: usize = 2000;

/// Height of the page that the least sides are for.
const PAGE: f64 = 1280.0;

/// A box whose sides differ by less than this factor may be a single letter, which says nothing of the line's direction.
const MIN_LONG: f64 = 1.2;

pub(super) const TABLE: &[Operator] = &[Operator {
    name: "character_map",
    from: &[DataKind::Values],
    to: DataKind::Answer(TypedAnswerKind::Lines),
    parameters: &[
        // The least score of a pixel of a character.
        Parameter {
            name: "pixel_threshold",
            kind: ParameterKind::Number(0.0, 1.0),
            default: Some("0.4"),
        },
        // The least score of a pixel between characters.
        Parameter {
            name: "link_threshold",
            kind: ParameterKind::Number(0.0, 1.0),
            default: Some("0.4"),
        },
        // The least score of an area's best pixel.
        Parameter {
            name: "threshold",
            kind: ParameterKind::Number(0.0, 1.0),
            default: Some("0.7"),
        },
        // The largest gap between two parts of a line, in heights.
        Parameter {
            name: "gap",
            kind: ParameterKind::Number(0.0, 100.0),
            default: Some("2"),
        },
        // The largest distance of a part from the middle of the line, in heights.
        Parameter {
            name: "offset",
            kind: ParameterKind::Number(0.0, 10.0),
            default: Some("0.5"),
        },
        // The largest difference of the heights of two parts, in heights.
        Parameter {
            name: "height_ratio",
            kind: ParameterKind::Number(0.0, 100.0),
            default: Some("2"),
        },
        // Least height and length of a line, in pixels of a page that is 1280 pixels high.
        Parameter {
            name: "least_height",
            kind: ParameterKind::Number(0.0, PAGE),
            default: Some("15"),
        },
        Parameter {
            name: "least_length",
            kind: ParameterKind::Number(0.0, PAGE),
            default: Some("30"),
        },
        Parameter {
            name: "most",
            kind: ParameterKind::Whole(1, 1000),
            default: Some("1000"),
        },
    ],
    run: character_map,
}];

/// Scores of characters and of links, side by side for each pixel.
struct CharacterMap<'a> {
    width: usize,
    height: usize,
    pairs: &'a [f32],
}

/// Pixels that touch each other.
#[derive(Debug, Default, PartialEq)]
struct Area {
    /// First and last pixel of each row.
    rows: Vec<[usize; 3]>,
    pixels: usize,
    best: f32,
}

/// A part of a line, or a line.
#[derive(Debug, Clone, Copy)]
struct LinePart {
    rectangle: Rectangle,
    score: f64,
}

/// Finds words, and joins those of a line.
fn character_map(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [height, width, channels] = array.last::<3>()?;
    if channels != 2 {
        return Err(format!(
            "expected the scores of characters and links for each pixel, got {channels} numbers"
        ));
    }
    let map = CharacterMap {
        width,
        height,
        pairs: &array.values,
    };
    let thresholds = ["pixel_threshold", "link_threshold"].map(|name| arguments.number(name));
    let least = arguments.number("threshold");
    let mut areas = map.areas(thresholds);
    areas.retain(|area| area.pixels >= MIN_PIXELS && f64::from(area.best) >= least);
    areas.sort_by_key(|area| std::cmp::Reverse(area.pixels));
    areas.truncate(MAX_AREAS);
    let parts = areas.iter().filter_map(|area| {
        let rectangle = Rectangle::around(&area.grown([width, height]))?;
        let score = f64::from(area.best);
        Some(LinePart { rectangle, score })
    });
    let lines = joined(parts.collect(), arguments);
    let geometry = context.geometry;
    let step = [
        f64::from(geometry.model[0]) / as_number(width.max(1)),
        f64::from(geometry.model[1]) / as_number(height.max(1)),
    ];
    let page = PAGE / as_number(height.max(1));
    let is_large = |line: &LinePart| {
        let [length, height] = line.rectangle.long_and_short();
        height * page > arguments.number("least_height")
            && length * page > arguments.number("least_length")
    };
    let lines = lines.into_iter().filter(is_large).map(|line| {
        let corners = line.rectangle.corners();
        TextLine {
            quad: Quad(corners.map(|[x, y]| geometry.to_picture([x * step[0], y * step[1]]))),
            score: line.score,
            read: None,
        }
    });
    let mut lines: Vec<TextLine> = lines.collect();
    lines.sort_by(|a, b| b.score.total_cmp(&a.score));
    lines.truncate(arguments.whole("most"));
    Ok(Data::Answer(TypedAnswer::Lines(LineAnswer {
        lines: in_reading_order(lines, 0),
        text: None,
        size: geometry.picture,
    })))
}

/// Joins parts that follow each other on a line, the longest ones first.
fn joined(mut parts: Vec<LinePart>, arguments: &Arguments) -> Vec<LinePart> {
    let [gap, offset, ratio] = ["gap", "offset", "height_ratio"].map(|name| arguments.number(name));
    let length = |part: &LinePart| part.rectangle.long_and_short()[0];
    parts.sort_by(|a, b| length(a).total_cmp(&length(b)));
    let mut lines = Vec::new();
    while let Some(mut line) = parts.pop() {
        loop {
            let axis = line.rectangle.direction(MIN_LONG);
            let [_, height] = line.rectangle.long_and_short();
            let centre = line.rectangle.centre();
            let follows = |part: &LinePart| {
                let [_, own] = part.rectangle.long_and_short();
                let [x, y] = part.rectangle.centre();
                let across = (y - centre[1]) * axis[0] - (x - centre[0]) * axis[1];
                across.abs() < own * offset
                    && (own - height).abs() < own * ratio
                    && line.rectangle.gap(&part.rectangle) < own * gap
            };
            let distance = |part: &LinePart| {
                let [x, y] = part.rectangle.centre();
                (x - centre[0]).hypot(y - centre[1])
            };
            let near = parts.iter().enumerate().filter(|(_, part)| follows(part));
            let nearest = near.min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)));
            let Some((place, part)) = nearest else {
                break;
            };
            let corners = [line.rectangle.corners(), part.rectangle.corners()].concat();
            line.score = line.score.max(part.score);
            if let Some(both) = Rectangle::around(&hull(corners)) {
                line.rectangle = both;
            }
            parts.remove(place);
        }
        lines.push(line);
    }
    lines
}

impl CharacterMap<'_> {
    /// Returns the areas of characters and links whose pixels touch by an edge.
    fn areas(&self, [character, link]: [f64; 2]) -> Vec<Area> {
        let pairs = self.pairs.chunks_exact(2);
        let is_text = pairs.map(|pair| f64::from(pair[0]) > character || f64::from(pair[1]) > link);
        let mut is_text: Vec<bool> = is_text.take(self.width * self.height).collect();
        let mut areas = Vec::new();
        let mut waiting = Vec::new();
        for start in 0..is_text.len() {
            if !std::mem::take(&mut is_text[start]) {
                continue;
            }
            let mut area = Area::default();
            waiting.push(start);
            while let Some(pixel) = waiting.pop() {
                let (x, y) = (pixel % self.width, pixel / self.width);
                area.add(x, y, self.pairs[2 * pixel]);
                let beside = [
                    (x > 0).then(|| pixel - 1),
                    (x + 1 < self.width).then_some(pixel + 1),
                    (y > 0).then(|| pixel - self.width),
                    (y + 1 < self.height).then_some(pixel + self.width),
                ];
                for near in beside.into_iter().flatten() {
                    if std::mem::take(&mut is_text[near]) {
                        waiting.push(near);
                    }
                }
            }
            areas.push(area);
        }
        areas
    }
}

impl Area {
    fn add(&mut self, x: usize, y: usize, score: f32) {
        self.pixels += 1;
        self.best = self.best.max(score);
        // A start is the uppermost pixel of its area.
        let top = self.rows.first().map_or(y, |row| row[0]);
        for missing in self.rows.len()..=y - top {
            self.rows.push([top + missing, usize::MAX, 0]);
        }
        let [_, first, last] = &mut self.rows[y - top];
        (*first, *last) = ((*first).min(x), (*last).max(x));
    }

    /// Returns the hull of the pixels and those around them, as far as the area is thick.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a root of a number of pixels"
    )]
    fn grown(&self, size: [usize; 2]) -> Vec<[f64; 2]> {
        let left = self.rows.iter().map(|row| row[1]).min().unwrap_or(0);
        let right = self.rows.iter().map(|row| row[2]).max().unwrap_or(0);
        let longest = self.rows.len().max(right + 1 - left.min(right));
        let thickness = (as_number(self.pixels) / as_number(longest)).sqrt();
        let radius = (thickness * 2.0) as usize;
        // A square of `radius + 1` pixels: an even one reaches further to the right and down.
        let after = radius.div_ceil(2);
        let before = radius - after;
        let [width, height] = size;
        let mut points = Vec::new();
        for [y, first, last] in &self.rows {
            let (top, bottom) = (y.saturating_sub(before), (y + after).min(height - 1));
            let (left, right) = (first.saturating_sub(before), (last + after).min(width - 1));
            for y in [top, bottom] {
                points.extend([left, right].map(|x| [as_number(x), as_number(y)]));
            }
        }
        hull(points)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::operators::{Array, Symbols};

    /// Reads maps and what `OpenCV` finds in them.
    fn cases() -> Vec<Json> {
        let text = include_str!("../../tests/golden/characters.json");
        let read: Json = serde_json::from_str(text).expect("JSON");
        read["cases"].as_array().expect("a list").clone()
    }

    fn floats(value: &Json) -> Vec<f64> {
        let list = value.as_array().expect("a list").iter();
        list.map(|it| it.as_f64().expect("a number")).collect()
    }

    /// Returns the map of these blobs: its size, and pairs of scores.
    #[expect(clippy::cast_possible_truncation, reason = "scores")]
    fn map(case: &Json) -> (usize, usize, Vec<f32>) {
        let size = |key: &str| usize::try_from(case[key].as_u64().expect("a size")).expect("small");
        let (width, height) = (size("width"), size("height"));
        let mut pairs = vec![0.0_f32; 2 * width * height];
        for blob in case["blobs"].as_array().expect("a list") {
            let [channel, x, y, across, down, angle, score] = floats(blob)[..] else {
                panic!("seven numbers: {blob}");
            };
            let (sin, cosine) = angle.to_radians().sin_cos();
            for (pixel, pair) in pairs.chunks_exact_mut(2).enumerate() {
                let (dx, dy) = (as_number(pixel % width) - x, as_number(pixel / width) - y);
                let (u, v) = (dx * cosine + dy * sin, dy * cosine - dx * sin);
                if u.abs() <= across && v.abs() <= down {
                    let value = &mut pair[usize::from(channel > 0.0)];
                    *value = value.max(score as f32);
                }
            }
        }
        (width, height, pairs)
    }

    #[test]
    fn words_have_the_boxes_that_opencv_finds() {
        for case in cases() {
            let (width, height, pairs) = map(&case);
            let map = CharacterMap {
                width,
                height,
                pairs: &pairs,
            };
            let mut areas = map.areas([0.4, 0.4]);
            areas.retain(|area| area.pixels >= MIN_PIXELS && area.best >= 0.7);
            let expected = case["boxes"].as_array().expect("a list");
            assert_eq!(areas.len(), expected.len(), "{}", case["name"]);
            for (area, expected) in areas.iter().zip(expected) {
                let found = Rectangle::around(&area.grown([width, height])).expect("a box");
                let [x, y, long, short] = floats(expected)[..] else {
                    panic!("four numbers: {expected}");
                };
                let sides = found.long_and_short();
                let centre = found.centre();
                let apart = [
                    centre[0] - x,
                    centre[1] - y,
                    sides[0] - long,
                    sides[1] - short,
                ];
                assert!(
                    apart.iter().all(|it| it.abs() < 0.51),
                    "{}: {centre:?} {sides:?}, not {expected}",
                    case["name"]
                );
            }
        }
    }

    fn lines(case: &Json, settings: &[(&'static str, &str)]) -> Vec<Quad> {
        let (width, height, values) = map(case);
        let operator = &TABLE[0];
        let arguments = Arguments::given(operator.parameters, settings);
        let symbols = Symbols::new();
        let mut context = StepContext::new(&symbols);
        let size = |side: usize| u32::try_from(2 * side).expect("small");
        context.geometry = crate::picture::Geometry::same([size(width), size(height)]);
        let shape = vec![1, height, width, 2];
        let data = Data::Values(Array { shape, values });
        let answer = (operator.run)(&[&data], &arguments, &mut context).expect("lines");
        let Data::Answer(TypedAnswer::Lines(answer)) = answer else {
            panic!("lines: {answer:?}");
        };
        answer.lines.iter().map(|line| line.quad).collect()
    }

    #[test]
    fn words_of_a_line_are_joined() {
        let cases = cases();
        let page = cases
            .iter()
            .find(|it| it["name"] == "page")
            .expect("a page");
        let found = lines(page, &[]);
        // Two words, then a word in a second line, then one far to the right of it.
        assert_eq!(found.len(), 3, "{found:?}");
        let bounds: Vec<[f64; 4]> = found.iter().map(Quad::bounds).collect();
        assert!(bounds[0][0] < 50.0 && bounds[0][2] > 200.0, "{bounds:?}");
        assert!(bounds[1][1] > bounds[0][3], "{bounds:?}");
        assert_eq!(lines(page, &[("gap", "0")]).len(), 4);
        assert_eq!(lines(page, &[("gap", "50")]).len(), 2);
        assert_eq!(lines(page, &[("least_height", "300")]).len(), 0);
    }

    #[test]
    fn other_shapes_are_refused() {
        let symbols = Symbols::new();
        let mut context = StepContext::new(&symbols);
        let arguments = Arguments::given(TABLE[0].parameters, &[]);
        let data = Data::Values(Array {
            shape: vec![1, 2, 2, 3],
            values: vec![0.0; 12],
        });
        let error = (TABLE[0].run)(&[&data], &arguments, &mut context).expect_err("three maps");
        assert!(error.contains("got 3 numbers"), "{error}");
    }
}
