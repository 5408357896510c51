//! Classes of pixels, and masks of boxes.

use image::GrayImage;

use super::scores::{sigmoid, softmax};
use super::{Data, DataKind, FoundBox, Operator, StepContext, boxes, picture_size, values};
use crate::answer::{BoxAnswer, ClassAnswer, ClassShare, ObjectMask, TypedAnswer, TypedAnswerKind};
use crate::operators::boxes::detected;
use crate::operators::{Arguments, Parameter, ParameterKind};

/// Maximum number of classes of a mask whose classes are bytes.
const MAX_CLASSES: usize = 256;

/// Maximum number of values of all resized masks of an answer.
const MAX_MASK_PIXELS: u64 = 256 << 20;

pub(super) const TABLE: &[Operator] = &[
    Operator {
        name: "pixels",
        from: &[DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Classes),
        parameters: &[
            Parameter {
                name: "labels",
                kind: ParameterKind::Labels,
                default: Some("\"auto\""),
            },
            Parameter {
                name: "threshold",
                kind: ParameterKind::Number(0.0, 1.0),
                default: Some("0.5"),
            },
            Parameter {
                name: "keep_size",
                kind: ParameterKind::Flag,
                default: Some("true"),
            },
        ],
        run: pixels,
    },
    Operator {
        name: "instances",
        from: &[DataKind::Boxes, DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Boxes),
        parameters: &[
            Parameter {
                name: "labels",
                kind: ParameterKind::Labels,
                default: Some("\"auto\""),
            },
            Parameter {
                name: "mask_threshold",
                kind: ParameterKind::Number(0.0, 1.0),
                default: Some("0.5"),
            },
            Parameter {
                name: "masks",
                kind: ParameterKind::Choice(&["png", "rle"]),
                default: Some("\"png\""),
            },
        ],
        run: instances,
    },
];

/// Classifies each pixel: the class with the most, or one class against the background.
fn pixels(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [count, height, width] = array.last::<3>()?;
    if count == 0 || count > MAX_CLASSES {
        return Err(format!("expected 1 to {MAX_CLASSES} classes, got {count}"));
    }
    let plane = height * width;
    let mut classes = vec![0_u8; plane];
    let mut scores = vec![0.0_f32; plane];
    if count == 1 {
        // Values outside of 0 to 1 are logits.
        let is_logit = array
            .values
            .iter()
            .any(|value| !(0.0..=1.0).contains(value));
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a threshold has few digits"
        )]
        let threshold = arguments.number("threshold") as f32;
        for (pixel, value) in array.values.iter().enumerate() {
            let score = if is_logit { sigmoid(*value) } else { *value };
            classes[pixel] = u8::from(score > threshold);
            scores[pixel] = if score > threshold {
                score
            } else {
                1.0 - score
            };
        }
    } else {
        let mut row = vec![0.0; count];
        for pixel in 0..plane {
            for (class, value) in row.iter_mut().enumerate() {
                *value = array.values[class * plane + pixel];
            }
            let best = (0..count)
                .rev()
                .max_by(|a, b| row[*a].total_cmp(&row[*b]))
                .unwrap_or(0);
            softmax(&mut row);
            classes[pixel] = u8::try_from(best).unwrap_or(u8::MAX);
            scores[pixel] = row[best];
        }
    }
    let names = context.labels(arguments.json("labels"), Some(count.max(2)))?;
    let size = picture_size(width, height)?;
    let mask = GrayImage::from_raw(size[0], size[1], classes).ok_or("the mask is too large")?;
    let classes = shares(&mask, &scores, &names);
    let picture = context.geometry.picture;
    let mask = if arguments.flag("keep_size") && size != picture {
        enlarged(&mask, context)
    } else {
        mask
    };
    Ok(Data::Answer(TypedAnswer::Classes(ClassAnswer {
        mask,
        classes,
        label_source: names.source.clone(),
    })))
}

/// Returns the mask at the size of the picture, of the part that the picture covers in the input.
fn enlarged(mask: &GrayImage, context: &StepContext<'_>) -> GrayImage {
    let geometry = &context.geometry;
    let [left, top, right, bottom] = geometry.covered();
    // Masks may be smaller than the input.
    let step = [0, 1].map(|axis| {
        let size = if axis == 0 {
            mask.width()
        } else {
            mask.height()
        };
        f64::from(size) / f64::from(geometry.model[axis].max(1))
    });
    let [width, height] = geometry.picture;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the mask"
    )]
    let at = |pixel: u32, count: u32, [start, end]: [f64; 2], step: f64, size: u32| {
        let place = start + (f64::from(pixel) + 0.5) * (end - start) / f64::from(count);
        ((place * step).max(0.0) as u32).min(size.saturating_sub(1))
    };
    GrayImage::from_fn(width, height, |x, y| {
        let from_x = at(x, width, [left, right], step[0], mask.width());
        let from_y = at(y, height, [top, bottom], step[1], mask.height());
        *mask.get_pixel(from_x, from_y)
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a mask has less than 2^53 pixels"
)]
fn shares(mask: &GrayImage, scores: &[f32], names: &crate::labels::Labels) -> Vec<ClassShare> {
    let mut sums = vec![(0_u64, 0.0_f64); MAX_CLASSES];
    for (class, score) in mask.as_raw().iter().zip(scores) {
        let sum = &mut sums[usize::from(*class)];
        sum.0 += 1;
        sum.1 += f64::from(*score);
    }
    let all = mask.as_raw().len().max(1) as f64;
    let found = sums
        .into_iter()
        .enumerate()
        .filter(|(_, (pixels, _))| *pixels > 0);
    let shares = found.map(|(index, (pixels, score))| ClassShare {
        index,
        label: names.name(index),
        share: pixels as f64 / all,
        score: score / pixels as f64,
    });
    let mut shares: Vec<ClassShare> = shares.collect();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    shares
}

/// Adds to each box the mask of its row: logits of the whole input, cut to the box.
fn instances(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let found = boxes(from, 0)?;
    let array = values(from, 1)?;
    let [rows, height, width] = array.last::<3>()?;
    let names = context.labels(arguments.json("labels"), None)?;
    let threshold = arguments.number("mask_threshold").clamp(1e-6, 1.0 - 1e-6);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a threshold has few digits"
    )]
    let logit = (threshold / (1.0 - threshold)).ln() as f32;
    let mut left = MAX_MASK_PIXELS;
    let mut objects = Vec::new();
    for found in found {
        let mut object = detected(found, &names, context);
        let plane = height * width;
        let values = array.values.get(found.row * plane..(found.row + 1) * plane);
        let values = values
            .ok_or_else(|| format!("box {} has no mask: the model gives {rows}", found.row))?;
        object.mask = mask(found, values, [width, height], context, logit, &mut left)?;
        objects.push(object);
    }
    Ok(Data::Answer(TypedAnswer::Boxes(BoxAnswer {
        runs: arguments.word("masks") == "rle",
        boxes: objects,
        size: context.geometry.picture,
        label_source: names.source.clone(),
    })))
}

/// Cuts the mask of a box, at the pixels of the picture.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "positions are clamped to the picture"
)]
fn mask(
    found: &FoundBox,
    values: &[f32],
    [width, height]: [usize; 2],
    context: &StepContext<'_>,
    logit: f32,
    left: &mut u64,
) -> Result<Option<ObjectMask>, String> {
    let geometry = &context.geometry;
    let corners = found.corners;
    let start = geometry
        .to_picture([corners[0], corners[1]])
        .map(|at| at.floor() as u32);
    let end = geometry
        .to_picture([corners[2], corners[3]])
        .map(|at| at.ceil() as u32);
    let size = [0, 1].map(|axis| end[axis].saturating_sub(start[axis]));
    if size.contains(&0) || width == 0 || height == 0 {
        return Ok(None);
    }
    *left = left
        .checked_sub(u64::from(size[0]) * u64::from(size[1]))
        .ok_or("the masks have too many pixels: raise the threshold, or send a smaller picture")?;
    // The part of the grid under the box, from which each pixel of the picture is sampled linearly.
    let step = [
        width as f64 / f64::from(geometry.model[0].max(1)),
        height as f64 / f64::from(geometry.model[1].max(1)),
    ];
    let sides = [width, height];
    let place = |axis: usize, pixel: u32| {
        let at = (f64::from(pixel) + 0.5) * geometry.scale[axis] + geometry.offset[axis];
        let at = (at * step[axis] - 0.5).clamp(0.0, (sides[axis] - 1) as f64);
        let low = at.floor() as usize;
        (
            low,
            (low + 1).min(sides[axis] - 1),
            (at - at.floor()) as f32,
        )
    };
    let across: Vec<_> = (0..size[0]).map(|x| place(0, start[0] + x)).collect();
    let cut = GrayImage::from_fn(size[0], size[1], |x, y| {
        let (x0, x1, fx) = across[x as usize];
        let (y0, y1, fy) = place(1, start[1] + y);
        let row = |y: usize| values[y * width + x0] * (1.0 - fx) + values[y * width + x1] * fx;
        let value = row(y0) * (1.0 - fy) + row(y1) * fy;
        image::Luma([if value > logit { 255 } else { 0 }])
    });
    Ok(Some(ObjectMask {
        origin: start,
        mask: cut,
    }))
}
