//! Lines of text in maps of characters and of the links between them.

use super::lines::{AreaTouch, Rectangle, areas, as_number, hull, line_answer, row_ends};
use super::{Data, DataKind, Operator, StepContext, values};
use crate::answer::TypedAnswerKind;
use crate::operators::{Arguments, Parameter, ParameterKind};

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
    let mut areas = map.areas(thresholds, arguments.number("threshold"));
    areas.sort_by_key(|area| std::cmp::Reverse(area.len()));
    areas.truncate(MAX_AREAS);
    let words = areas.iter().filter_map(|area| map.word(area));
    let lines = joined(words.collect(), arguments);
    let page = PAGE / as_number(height.max(1));
    let is_large = |line: &LinePart| {
        let [length, height] = line.rectangle.long_and_short();
        height * page > arguments.number("least_height")
            && length * page > arguments.number("least_length")
    };
    let lines = lines.into_iter().filter(is_large);
    let lines = lines.map(|line| (line.rectangle, line.score)).collect();
    let most = arguments.whole("most");
    Ok(line_answer(lines, [width, height], most, context))
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
    /// Returns the areas of characters and links whose best pixel has a score of at least `least`.
    fn areas(&self, [character, link]: [f64; 2], least: f64) -> Vec<Vec<usize>> {
        let pairs = self.pairs.chunks_exact(2);
        let is_text = pairs.map(|pair| f64::from(pair[0]) > character || f64::from(pair[1]) > link);
        let is_text = is_text.take(self.width * self.height).collect();
        let mut areas = areas(is_text, self.width, AreaTouch::Edges);
        areas.retain(|area| area.len() >= MIN_PIXELS && self.best(area) >= least);
        areas
    }

    /// Returns the score of an area's best pixel.
    fn best(&self, area: &[usize]) -> f64 {
        let scores = area.iter().map(|pixel| self.pairs[2 * pixel]);
        f64::from(scores.fold(0.0, f32::max))
    }

    /// Returns the word of an area.
    fn word(&self, area: &[usize]) -> Option<LinePart> {
        Some(LinePart {
            rectangle: Rectangle::around(&self.grown(area))?,
            score: self.best(area),
        })
    }

    /// Returns the hull of an area's pixels and those around them, as far as the area is thick.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a root of a number of pixels"
    )]
    fn grown(&self, area: &[usize]) -> Vec<[f64; 2]> {
        let ends = row_ends(area, self.width);
        let side = |axis: usize| {
            let least = ends
                .iter()
                .map(|end| end[axis])
                .fold(f64::INFINITY, f64::min);
            let most = ends.iter().map(|end| end[axis]).fold(0.0, f64::max);
            most - least + 1.0
        };
        let thickness = (as_number(area.len()) / side(0).max(side(1))).sqrt();
        let radius = (thickness * 2.0) as usize;
        // A square of `radius + 1` pixels: an even one reaches further to the right and down.
        let after = radius.div_ceil(2);
        let [before, after] = [radius - after, after].map(as_number);
        let [right, bottom] = [self.width, self.height].map(|size| as_number(size.max(1) - 1));
        let squares = ends.iter().flat_map(|[x, y]| {
            let (xs, ys) = (
                [(x - before).max(0.0), (x + after).min(right)],
                [(y - before).max(0.0), (y + after).min(bottom)],
            );
            ys.map(|y| xs.map(|x| [x, y]))
        });
        hull(squares.flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::answer::TypedAnswer;
    use crate::operators::{Array, Symbols};
    use crate::picture::Quad;

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
            let areas = map.areas([0.4, 0.4], 0.7);
            let expected = case["boxes"].as_array().expect("a list");
            assert_eq!(areas.len(), expected.len(), "{}", case["name"]);
            for (area, expected) in areas.iter().zip(expected) {
                let found = map.word(area).expect("a box").rectangle;
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
