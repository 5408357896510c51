//! How far two models agree on the same files, in the terms of their task.

use std::collections::BTreeMap;

use pkgtool_media::answer::{BoxAnswer, LabelAnswer, SegmentAnswer, TypedAnswer};

use super::words::{TextErrors, spoken};
use super::{Figure, pixels, share};

/// Least intersection over union of boxes that stand for one object.
const SAME_OBJECT: f64 = 0.5;

/// Sums over files.
#[derive(Debug, Default)]
pub struct AnswerAgreement {
    files: u64,
    equal: u64,
    /// Values by the name of their figure; each file or object gives one.
    means: BTreeMap<&'static str, (f64, u64)>,
    /// Objects of the reference, of the other model, and of both.
    objects: [u64; 3],
    pixels: BTreeMap<[u64; 2], u64>,
    texts: TextErrors,
}

impl AnswerAgreement {
    /// Adds the answers of the reference and of the other model for a file. Returns whether they are the same in the
    /// terms of the task.
    pub fn add(&mut self, reference: &TypedAnswer, other: &TypedAnswer) -> Result<bool, String> {
        let is_equal = match (reference, other) {
            (TypedAnswer::Labels(a), TypedAnswer::Labels(b)) => self.add_labels(a, b),
            (TypedAnswer::Boxes(a), TypedAnswer::Boxes(b)) => self.add_boxes(a, b),
            (TypedAnswer::Classes(a), TypedAnswer::Classes(b)) => {
                let size = [a.mask.width(), a.mask.height()];
                let counts = pixels::of(b, a.mask.as_raw(), size)?;
                for [truth, found, count] in &counts {
                    *self.pixels.entry([*truth, *found]).or_default() += count;
                }
                counts.iter().all(|[truth, found, _]| truth == found)
            }
            (TypedAnswer::Vector(a), TypedAnswer::Vector(b)) => {
                let cosine = cosine(&a.vector, &b.vector);
                self.mean("cosine", cosine);
                cosine > 0.999
            }
            (TypedAnswer::Picture(a), TypedAnswer::Picture(b)) => {
                if a.picture.dimensions() != b.picture.dimensions() {
                    return Err("the pictures have different sizes".to_owned());
                }
                let pairs = a.picture.as_raw().iter().zip(b.picture.as_raw());
                let sum: u64 = pairs.map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
                let difference = share(sum, a.picture.as_raw().len() as u64);
                self.mean("levels", difference);
                difference < 0.5
            }
            (TypedAnswer::Transcript(a), TypedAnswer::Transcript(b)) => {
                self.texts.add(&spoken(&a.text), &spoken(&b.text))
            }
            (TypedAnswer::Text(a), TypedAnswer::Text(b)) => self.texts.add(&a.text, &b.text),
            (TypedAnswer::Reply(a), TypedAnswer::Reply(b)) => self.texts.add(&a.text, &b.text),
            (TypedAnswer::Lines(a), TypedAnswer::Lines(b)) => {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                self.texts.add(&text(&a.text), &text(&b.text))
            }
            (TypedAnswer::Segments(a), TypedAnswer::Segments(b)) => {
                let shared = shared_time(a, b);
                self.mean("same time", shared);
                shared > 0.99
            }
            _ => return Err("the models give different kinds of answers".to_owned()),
        };
        self.files += 1;
        self.equal += u64::from(is_equal);
        Ok(is_equal)
    }

    fn mean(&mut self, name: &'static str, value: f64) {
        let (sum, count) = self.means.entry(name).or_default();
        *sum += value;
        *count += 1;
    }

    fn add_labels(&mut self, a: &LabelAnswer, b: &LabelAnswer) -> bool {
        let first = |answer: &LabelAnswer| answer.labels.first().map(|label| label.index);
        for label in &a.labels {
            let other = b.labels.iter().find(|it| it.index == label.index);
            let score = other.map_or(0.0, |it| f64::from(it.score));
            self.mean("score difference", (f64::from(label.score) - score).abs());
        }
        first(a) == first(b)
    }

    /// Matches each object of the reference with the best one of the same class.
    fn add_boxes(&mut self, a: &BoxAnswer, b: &BoxAnswer) -> bool {
        let mut taken = vec![false; b.boxes.len()];
        let mut both = 0;
        for object in &a.boxes {
            let rest = b.boxes.iter().enumerate();
            let rest = rest.filter(|(place, it)| !taken[*place] && it.index == object.index);
            let overlaps = rest.map(|(place, it)| (iou(object.corners, it.corners), place));
            let best = overlaps.max_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((overlap, place)) = best.filter(|(overlap, _)| *overlap >= SAME_OBJECT) {
                taken[place] = true;
                both += 1;
                self.mean("IoU", overlap);
            }
        }
        let counts = [a.boxes.len() as u64, b.boxes.len() as u64, both];
        for (sum, count) in self.objects.iter_mut().zip(counts) {
            *sum += count;
        }
        counts == [both; 3]
    }

    /// Returns the figures of all files so far, the most telling one first. `reference` is one of its answers.
    pub fn figures(&self, reference: &TypedAnswer) -> Vec<Figure> {
        let mean = |name: &'static str| {
            let (sum, count) = self.means.get(name).copied().unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "there are few files")]
            let value = sum / count as f64;
            value
        };
        let equal = share(self.equal, self.files);
        match reference {
            TypedAnswer::Labels(_) => vec![
                Figure::share("same top-1", equal),
                Figure::number("score difference", mean("score difference")),
            ],
            TypedAnswer::Boxes(_) => {
                let [reference, other, both] = self.objects;
                vec![
                    Figure::share("IoU", mean("IoU")),
                    Figure::share("objects kept", share(both, reference)),
                    Figure::share("objects new", share(other - both, other)),
                    Figure::share("equal", equal),
                ]
            }
            TypedAnswer::Classes(_) => {
                let (iou, same) = pixels::mean_iou(&self.pixels);
                vec![Figure::share("mIoU", iou), Figure::share("pixels", same)]
            }
            TypedAnswer::Vector(_) => vec![Figure::number("cosine", mean("cosine"))],
            TypedAnswer::Picture(_) => vec![Figure::number("levels", mean("levels"))],
            TypedAnswer::Segments(_) => vec![Figure::share("same time", mean("same time"))],
            TypedAnswer::Transcript(_)
            | TypedAnswer::Text(_)
            | TypedAnswer::Lines(_)
            | TypedAnswer::Reply(_) => self.texts.figures().into(),
            TypedAnswer::Speech(_) => Vec::new(),
        }
    }
}

/// Returns the intersection over union of two boxes.
fn iou(a: [f64; 4], b: [f64; 4]) -> f64 {
    let side = |axis: usize| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis])).max(0.0);
    let area = |it: [f64; 4]| (it[2] - it[0]) * (it[3] - it[1]);
    let common = side(0) * side(1);
    if common > 0.0 {
        common / (area(a) + area(b) - common)
    } else {
        0.0
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    product(a, b) / (product(a, a) * product(b, b)).sqrt()
}

/// Returns the share of the time that is in segments of both or of neither.
fn shared_time(a: &SegmentAnswer, b: &SegmentAnswer) -> f64 {
    let spans = |answer: &SegmentAnswer| {
        let segments = answer.segments.iter();
        segments
            .map(|it| [it.start, it.end])
            .collect::<Vec<[f64; 2]>>()
    };
    let (a_spans, b_spans) = (spans(a), spans(b));
    let length = |spans: &[[f64; 2]]| spans.iter().map(|[start, end]| end - start).sum::<f64>();
    let mut both = 0.0;
    for [start, end] in &a_spans {
        for [from, to] in &b_spans {
            both += (end.min(*to) - start.max(*from)).max(0.0);
        }
    }
    let apart = length(&a_spans) + length(&b_spans) - 2.0 * both;
    if a.seconds > 0.0 {
        1.0 - apart / a.seconds
    } else {
        1.0
    }
}
