//! Average precision of objects, as COCO measures it.
//!
//! Every step follows the published evaluation of COCO: how objects are matched, which are ignored, and at which recalls
//! the precision is read.

use std::collections::{BTreeMap, HashMap};

use pkgtool_media::answer::BoxAnswer;
use serde::{Deserialize, Serialize};

use super::ranks::is_same;
use super::{Figure, Outcome};
use crate::dataset::{ItemTruth, TrueObject};
use crate::runs::PixelRuns;

/// Maximum number of objects of a class that count in a picture.
const MAX_OBJECTS: usize = 100;

/// Number of thresholds of the intersection over union: 0.5, 0.55, … 0.95.
const THRESHOLDS: usize = 10;

/// Number of recalls at which the precision is read: 0, 0.01, … 1.
const RECALLS: usize = 101;

/// Areas that count, in pixels: all, small, medium, large.
const AREAS: [[f64; 2]; 4] = [[0.0, 1e10], [0.0, 1024.0], [1024.0, 9216.0], [9216.0, 1e10]];

/// An object that a model has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoundObject {
    class: String,
    score: f64,
    /// Left, top, width and height.
    corner_and_size: [f64; 4],
    pixels: Option<PixelRuns>,
}

/// Returns the objects of an answer.
pub(super) fn of(answer: &BoxAnswer, size: [u32; 2]) -> Result<Vec<FoundObject>, String> {
    if answer.size != size {
        let [width, height] = answer.size;
        return Err(format!(
            "the picture has {width} x {height} pixels, the annotations say {} x {}",
            size[0], size[1]
        ));
    }
    let objects = answer.boxes.iter().map(|object| {
        let [left, top, right, bottom] = object.corners;
        FoundObject {
            class: object.label.clone(),
            score: object.score,
            corner_and_size: [left, top, right - left, bottom - top],
            pixels: object
                .mask
                .as_ref()
                .map(|mask| PixelRuns::of_mask(mask, size)),
        }
    });
    Ok(objects.collect())
}

/// The compared form of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Boxes,
    Masks,
}

/// The objects of one class in one picture.
struct Scene<'r> {
    truths: Vec<&'r TrueObject>,
    /// Best first.
    found: Vec<&'r FoundObject>,
    /// Intersection over union, by found object and truth.
    overlaps: Vec<Vec<f64>>,
}

/// How the objects of a scene were matched, for one range of areas.
struct SceneMatch {
    scores: Vec<f64>,
    /// By threshold and object: matched, and ignored.
    matched: [Vec<(bool, bool)>; THRESHOLDS],
    /// Number of truths that count.
    truths: usize,
}

pub(super) fn figures(results: &[(&ItemTruth, &Outcome)]) -> Vec<Figure> {
    let has_masks = results.iter().any(|(truth, outcome)| {
        matches!((truth, outcome), (ItemTruth::Objects { objects, .. }, Outcome::Objects(found))
            if objects.iter().any(|it| it.pixels.is_some()) && found.iter().any(|it| it.pixels.is_some()))
    });
    let mut figures = of_shape(
        results,
        Shape::Boxes,
        [
            "mAP",
            "AP50",
            "AP75",
            "AP small",
            "AP medium",
            "AP large",
            "AR100",
        ],
    );
    if has_masks {
        let names = [
            "mask mAP",
            "mask AP50",
            "mask AP75",
            "mask AP small",
            "mask AP medium",
            "mask AP large",
            "mask AR100",
        ];
        figures.extend(of_shape(results, Shape::Masks, names));
    }
    figures
}

fn of_shape(
    results: &[(&ItemTruth, &Outcome)],
    shape: Shape,
    names: [&'static str; 7],
) -> Vec<Figure> {
    let classes = scenes(results, shape);
    let areas = AREAS.map(|area| precisions(&classes, shape, area));
    let at = |area: usize, thresholds: std::ops::Range<usize>| {
        let values = areas[area]
            .iter()
            .flat_map(|class| &class.0[thresholds.clone()]);
        mean(values.copied())
    };
    let recall = mean(areas[0].iter().flat_map(|class| class.1));
    let values = [
        at(0, 0..THRESHOLDS),
        at(0, 0..1),
        at(0, 5..6),
        at(1, 0..THRESHOLDS),
        at(2, 0..THRESHOLDS),
        at(3, 0..THRESHOLDS),
        recall,
    ];
    let figures = names.into_iter().zip(values);
    figures
        .map(|(name, value)| Figure::share(name, value))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "there are few classes")]
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    sum / count as f64
}

/// Returns the pictures of each class of the truth. Objects of other classes count nowhere.
fn scenes<'r>(
    results: &[(&'r ItemTruth, &'r Outcome)],
    shape: Shape,
) -> BTreeMap<&'r str, Vec<Scene<'r>>> {
    let pictures = results.iter().filter_map(|pair| match pair {
        (ItemTruth::Objects { objects, .. }, Outcome::Objects(found)) => Some((objects, found)),
        _ => None,
    });
    let pictures: Vec<(&'r Vec<TrueObject>, &'r Vec<FoundObject>)> = pictures.collect();
    let truths = pictures.iter().flat_map(|(objects, _)| *objects);
    let mut classes: BTreeMap<&'r str, Vec<Scene<'r>>> = truths
        .map(|object| (object.class.as_str(), Vec::new()))
        .collect();
    let names: Vec<&'r str> = classes.keys().copied().collect();
    let mut known: HashMap<&'r str, Option<&'r str>> = HashMap::new();
    let mut class_of = |label: &'r str| {
        let find = || names.iter().copied().find(|class| is_same(label, class));
        *known.entry(label).or_insert_with(find)
    };
    let has_shape = |pixels: &Option<PixelRuns>| shape == Shape::Boxes || pixels.is_some();
    for (objects, found) in pictures {
        let mut of_class: BTreeMap<&'r str, (Vec<&'r TrueObject>, Vec<&'r FoundObject>)> =
            BTreeMap::new();
        for object in objects.iter().filter(|it| has_shape(&it.pixels)) {
            of_class.entry(&object.class).or_default().0.push(object);
        }
        for object in found.iter().filter(|it| has_shape(&it.pixels)) {
            if let Some(class) = class_of(&object.class) {
                of_class.entry(class).or_default().1.push(object);
            }
        }
        for (class, (truths, mut found)) in of_class {
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            found.truncate(MAX_OBJECTS);
            let overlaps = found.iter().map(|object| {
                let truths = truths.iter();
                truths.map(|truth| overlap(object, truth, shape)).collect()
            });
            classes.entry(class).or_default().push(Scene {
                overlaps: overlaps.collect(),
                truths,
                found,
            });
        }
    }
    classes
}

/// Returns the intersection over union. For a crowd, it is over the area of the found object.
#[expect(clippy::cast_precision_loss, reason = "pictures have few pixels")]
fn overlap(found: &FoundObject, truth: &TrueObject, shape: Shape) -> f64 {
    let masks = found.pixels.as_ref().zip(truth.pixels.as_ref());
    let (common, mine, its) = if let Some((mine, its)) = masks.filter(|_| shape == Shape::Masks) {
        (
            mine.overlap(its) as f64,
            mine.area() as f64,
            its.area() as f64,
        )
    } else {
        let (a, b) = (found.corner_and_size, truth.corner_and_size);
        let side = |axis: usize| {
            let end = (a[axis] + a[axis + 2]).min(b[axis] + b[axis + 2]);
            (end - a[axis].max(b[axis])).max(0.0)
        };
        (side(0) * side(1), a[2] * a[3], b[2] * b[3])
    };
    let whole = if truth.is_crowd {
        mine
    } else {
        mine + its - common
    };
    if common > 0.0 { common / whole } else { 0.0 }
}

/// Returns for each class with truths: the precision and the highest recall at every threshold.
fn precisions(
    classes: &BTreeMap<&str, Vec<Scene<'_>>>,
    shape: Shape,
    area: [f64; 2],
) -> Vec<([f64; THRESHOLDS], [f64; THRESHOLDS])> {
    let of_class = classes.values().filter_map(|scenes| {
        let matches: Vec<SceneMatch> = scenes
            .iter()
            .map(|scene| scene.matched(shape, area))
            .collect();
        let truths: usize = matches.iter().map(|it| it.truths).sum();
        let mut order: Vec<(usize, usize)> = matches
            .iter()
            .enumerate()
            .flat_map(|(scene, it)| (0..it.scores.len()).map(move |object| (scene, object)))
            .collect();
        let score = |(scene, object): &(usize, usize)| matches[*scene].scores[*object];
        order.sort_by(|a, b| score(b).total_cmp(&score(a)));
        (truths > 0).then(|| {
            let curves: [(f64, f64); THRESHOLDS] = std::array::from_fn(|threshold| {
                let results = order.iter();
                let results =
                    results.map(|(scene, object)| matches[*scene].matched[threshold][*object]);
                curve(results, truths)
            });
            (curves.map(|curve| curve.0), curves.map(|curve| curve.1))
        })
    });
    of_class.collect()
}

/// Returns the mean precision over the recalls, and the highest recall.
#[expect(clippy::cast_precision_loss, reason = "there are few objects")]
fn curve(results: impl Iterator<Item = (bool, bool)>, truths: usize) -> (f64, f64) {
    let (mut right, mut wrong) = (0_u64, 0_u64);
    let (mut recalls, mut precisions) = (Vec::new(), Vec::new());
    for (matched, ignored) in results {
        if !ignored && matched {
            right += 1;
        } else if !ignored {
            wrong += 1;
        }
        recalls.push(right as f64 / truths as f64);
        precisions.push(right as f64 / ((wrong + right) as f64 + f64::EPSILON));
    }
    // A precision is at least those at higher recalls.
    for place in (1..precisions.len()).rev() {
        precisions[place - 1] = precisions[place - 1].max(precisions[place]);
    }
    let at = (0..RECALLS).map(|step| {
        let wanted = step as f64 * 0.01;
        let place = recalls.partition_point(|recall| *recall < wanted);
        precisions.get(place).copied().unwrap_or(0.0)
    });
    let sum: f64 = at.sum();
    (sum / RECALLS as f64, recalls.last().copied().unwrap_or(0.0))
}

impl Scene<'_> {
    /// Matches found objects with truths, best first. Truths outside the areas and crowds are ignored, and so is what
    /// matches them.
    fn matched(&self, shape: Shape, [least, most]: [f64; 2]) -> SceneMatch {
        let is_outside = |area: f64| area < least || area > most;
        let ignored = |truth: &&TrueObject| truth.is_crowd || is_outside(truth.area);
        let mut order: Vec<usize> = (0..self.truths.len()).collect();
        // Truths that count come first.
        order.sort_by_key(|place| ignored(&self.truths[*place]));
        let matched = std::array::from_fn(|step| {
            #[expect(clippy::cast_precision_loss, reason = "ten steps")]
            let threshold = 0.5 + 0.05 * step as f64;
            let mut taken = vec![false; self.truths.len()];
            let found = self.found.iter().zip(&self.overlaps);
            let found = found.map(|(object, overlaps)| {
                let mut best = threshold.min(1.0 - 1e-10);
                let mut partner: Option<usize> = None;
                for place in &order {
                    let truth = &self.truths[*place];
                    if taken[*place] && !truth.is_crowd {
                        continue;
                    }
                    if partner.is_some_and(|it| !ignored(&self.truths[it])) && ignored(truth) {
                        break;
                    }
                    if overlaps[*place] >= best {
                        best = overlaps[*place];
                        partner = Some(*place);
                    }
                }
                match partner {
                    Some(place) => {
                        taken[place] = true;
                        (true, ignored(&self.truths[place]))
                    }
                    None => (false, is_outside(object.area(shape))),
                }
            });
            found.collect()
        });
        let counted = self.truths.iter().filter(|truth| !ignored(truth));
        SceneMatch {
            scores: self.found.iter().map(|object| object.score).collect(),
            matched,
            truths: counted.count(),
        }
    }
}

impl FoundObject {
    #[expect(clippy::cast_precision_loss, reason = "pictures have few pixels")]
    fn area(&self, shape: Shape) -> f64 {
        match (&self.pixels, shape) {
            (Some(pixels), Shape::Masks) => pixels.area() as f64,
            _ => self.corner_and_size[2] * self.corner_and_size[3],
        }
    }
}
