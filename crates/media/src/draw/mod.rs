//! Draws answers over the picture: boxes, masks, classes and lines of text in colours.

mod caption;

use image::{Rgb, RgbImage};

use crate::answer::{BoxAnswer, ClassAnswer, LineAnswer, TypedAnswer};

/// Share of a mask's colour in the pixels that it covers.
const OPACITY: f32 = 0.5;

/// Angle between the colours of successive classes, in degrees.
const HUE_STEP: f32 = 137.5;

/// Draws an answer over the picture. Returns `None` for an answer without places.
pub fn draw(answer: &TypedAnswer, picture: &RgbImage) -> Option<RgbImage> {
    match answer {
        TypedAnswer::Boxes(answer) => Some(boxes(answer, picture.clone())),
        TypedAnswer::Classes(answer) => Some(classes(answer, picture.clone())),
        TypedAnswer::Picture(answer) => Some(answer.picture.clone()),
        TypedAnswer::Lines(answer) => Some(lines(answer, picture.clone())),
        TypedAnswer::Labels(_)
        | TypedAnswer::Vector(_)
        | TypedAnswer::Text(_)
        | TypedAnswer::Segments(_)
        | TypedAnswer::Transcript(_)
        | TypedAnswer::Reply(_)
        | TypedAnswer::Speech(_) => None,
    }
}

/// Returns the colour of a class.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "hues and bytes are small"
)]
fn colour(class: usize) -> [u8; 3] {
    let hue = (class % 1000) as f32 * HUE_STEP % 360.0 / 60.0;
    let part = |shift: f32| {
        let at = (hue + shift) % 6.0;
        let value = (at.min(4.0 - at)).clamp(0.0, 1.0);
        (255.0 * (1.0 - 0.95 * value)) as u8
    };
    [part(5.0), part(3.0), part(1.0)]
}

fn blend(pixel: &mut Rgb<u8>, colour: [u8; 3]) {
    for (value, colour) in pixel.0.iter_mut().zip(colour) {
        let mixed = f32::from(*value) * (1.0 - OPACITY) + f32::from(colour) * OPACITY;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between two bytes"
        )]
        let mixed = mixed as u8;
        *value = mixed;
    }
}

fn classes(answer: &ClassAnswer, mut picture: RgbImage) -> RgbImage {
    for (pixel, class) in picture.pixels_mut().zip(answer.mask.as_raw()) {
        // Class 0 is the background.
        if *class > 0 {
            blend(pixel, colour(usize::from(*class)));
        }
    }
    picture
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "corners are within the picture"
)]
fn boxes(answer: &BoxAnswer, mut picture: RgbImage) -> RgbImage {
    let (width, height) = picture.dimensions();
    if width == 0 || height == 0 {
        return picture;
    }
    let line = line_width(&picture);
    // The best box is drawn last, above the others.
    for object in answer.boxes.iter().rev() {
        let colour = colour(object.index);
        if let Some(mask) = &object.mask {
            for (x, y, value) in mask.mask.enumerate_pixels() {
                let at = (mask.origin[0] + x, mask.origin[1] + y);
                if value.0[0] > 0 && at.0 < width && at.1 < height {
                    blend(picture.get_pixel_mut(at.0, at.1), colour);
                }
            }
        }
        let [left, top, right, bottom] = object.corners.map(|at| at.max(0.0).round() as u32);
        let (left, right) = (left.min(width - 1), right.min(width - 1));
        let (top, bottom) = (top.min(height - 1), bottom.min(height - 1));
        // The width of a line inwards from each edge.
        let inner = [
            right.min(left + line - 1),
            bottom.min(top + line - 1),
            left.max((right + 1).saturating_sub(line)),
            top.max((bottom + 1).saturating_sub(line)),
        ];
        for [left, top, right, bottom] in [
            [left, top, right, inner[1]],
            [left, inner[3], right, bottom],
            [left, top, inner[0], bottom],
            [inner[2], top, right, bottom],
        ] {
            for y in top..=bottom {
                for x in left..=right {
                    picture.put_pixel(x, y, Rgb(colour));
                }
            }
        }
        let caption = format!("{} {:.0}%", object.label, object.score * 100.0);
        caption::write(&mut picture, &caption, [left, top], colour);
    }
    picture
}

/// Returns the width of a drawn line, in pixels.
fn line_width(picture: &RgbImage) -> u32 {
    (picture.width().max(picture.height()) / 300).max(1)
}

/// Draws the edges of each line's quadrilateral.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions beyond the picture are skipped"
)]
fn lines(answer: &LineAnswer, mut picture: RgbImage) -> RgbImage {
    let width = line_width(&picture);
    for (number, line) in answer.lines.iter().enumerate() {
        let colour = Rgb(colour(number));
        for (place, from) in line.quad.0.iter().enumerate() {
            let to = line.quad.0[(place + 1) % 4];
            let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
            let steps = dx.abs().max(dy.abs()).ceil().max(1.0);
            for step in 0..=steps as u32 {
                let part = f64::from(step) / steps;
                let (x, y) = ((from[0] + dx * part) as u32, (from[1] + dy * part) as u32);
                for (across, down) in (0..width).flat_map(|x| (0..width).map(move |y| (x, y))) {
                    if let Some(pixel) = picture.get_pixel_mut_checked(x + across, y + down) {
                        *pixel = colour;
                    }
                }
            }
        }
    }
    picture
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::DetectedObject;

    #[test]
    fn boxes_are_drawn_inside_the_picture() {
        let object = DetectedObject {
            label: "dog".to_owned(),
            score: 0.9,
            index: 0,
            corners: [20.0, 20.0, 80.0, 200.0],
            mask: None,
        };
        let answer = BoxAnswer {
            runs: false,
            boxes: vec![object],
            size: [100, 100],
            label_source: String::new(),
        };
        let drawn = draw(&TypedAnswer::Boxes(answer), &RgbImage::new(100, 100)).expect("a picture");
        assert_ne!(drawn.get_pixel(20, 50).0, [0; 3]);
        assert_ne!(drawn.get_pixel(80, 99).0, [0; 3]);
        assert_eq!(drawn.get_pixel(50, 50).0, [0; 3]);
        assert_eq!(drawn.get_pixel(10, 30).0, [0; 3]);
    }

    #[test]
    fn neighbouring_classes_have_different_colours() {
        let colours: Vec<_> = (0..20).map(colour).collect();
        for (class, own) in colours.iter().enumerate() {
            assert!(!colours[..class].contains(own), "{class}");
        }
    }
}
