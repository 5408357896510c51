//! Fits a picture into a model's input: stretched, letterboxed or cropped.
//!
//! The kernels follow `OpenCV`, which most publishers use: centres of pixels at one half, and no smoothing when a
//! picture shrinks, except `area`. `smooth`, `smooth_cubic` and `lanczos` follow Pillow, which smooths.

use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};

use super::Geometry;

/// How a picture of other proportions fits into an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Each side is scaled by a factor of its own.
    Stretch,
    /// The whole picture, centred, with borders.
    Letterbox,
    /// As `Letterbox`, with sides rounded down, and borders in the mean colour of the picture's corners.
    Border,
    /// The whole picture in the upper left corner, with borders.
    Corner,
    /// The centre of the picture, without borders.
    Crop,
}

/// The value of a pixel between others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interpolation {
    Nearest,
    Linear,
    Cubic,
    Area,
    Smooth,
    SmoothCubic,
    Lanczos,
    /// Lanczos of `OpenCV`: eight pixels, and no smoothing when a picture shrinks.
    Lanczos4,
}

impl Fit {
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "letterbox" => Self::Letterbox,
            "border" => Self::Border,
            "corner" => Self::Corner,
            "crop" => Self::Crop,
            _ => Self::Stretch,
        }
    }
}

impl Interpolation {
    pub(crate) const NAMES: &[&str] = &[
        "nearest",
        "linear",
        "cubic",
        "area",
        "lanczos4",
        "smooth",
        "smooth_cubic",
        "lanczos",
    ];

    pub(crate) fn of(name: &str) -> Self {
        match name {
            "nearest" => Self::Nearest,
            "cubic" => Self::Cubic,
            "area" => Self::Area,
            "smooth" => Self::Smooth,
            "smooth_cubic" => Self::SmoothCubic,
            "lanczos" => Self::Lanczos,
            "lanczos4" => Self::Lanczos4,
            _ => Self::Linear,
        }
    }
}

/// Fits a picture into `size` (width and height); borders have the colour `pad`. A crop keeps a `part` of the shorter
/// side.
pub(crate) fn fit(
    picture: &RgbImage,
    size: [u32; 2],
    (how, part): (Fit, f64),
    interpolation: Interpolation,
    pad: [u8; 3],
) -> (RgbImage, Geometry) {
    let own = [picture.width(), picture.height()];
    let factors = [0, 1].map(|axis| f64::from(size[axis]) / f64::from(own[axis]));
    let scaled = |factor: f64| own.map(|side| rounded(f64::from(side) * factor));
    let (inner, offset) = match how {
        Fit::Stretch => (size, [0, 0]),
        Fit::Letterbox | Fit::Border | Fit::Corner => {
            let factor = factors[0].min(factors[1]);
            let inner = if how == Fit::Border {
                // A rounding error must not reduce an exact side.
                own.map(|side| rounded((f64::from(side) * factor + 1e-9).floor()))
            } else {
                scaled(factor)
            };
            let inner = [inner[0].min(size[0]), inner[1].min(size[1])];
            let centred = [0, 1].map(|axis| i64::from((size[axis] - inner[axis]) / 2));
            (inner, if how == Fit::Corner { [0, 0] } else { centred })
        }
        Fit::Crop => {
            let inner = scaled(factors[0].max(factors[1]) / part);
            let inner = [inner[0].max(size[0]), inner[1].max(size[1])];
            let outside = [0, 1].map(|axis| -i64::from((inner[axis] - size[axis]) / 2));
            (inner, outside)
        }
    };
    let resized = resize(picture, inner, interpolation);
    #[expect(
        clippy::cast_precision_loss,
        reason = "sides have at most 16384 pixels"
    )]
    let geometry = Geometry {
        picture: own,
        model: size,
        scale: [0, 1].map(|axis| f64::from(inner[axis]) / f64::from(own[axis])),
        offset: offset.map(|at| at as f64),
    };
    if inner == size {
        return (resized, geometry);
    }
    let pad = if how == Fit::Border {
        corner_colour(picture)
    } else {
        pad
    };
    let mut fitted = RgbImage::from_pixel(size[0], size[1], Rgb(pad));
    imageops::replace(&mut fitted, &resized, offset[0], offset[1]);
    (fitted, geometry)
}

/// Returns the mean colour of squares in the four corners, whose sides are a thirtieth of the shorter side, rounded
/// down.
fn corner_colour(picture: &RgbImage) -> [u8; 3] {
    let (width, height) = picture.dimensions();
    let side = (width.min(height) / 30).max(1);
    let mut sums = [0_u64; 3];
    for (x, y) in [
        (0, 0),
        (width - side, 0),
        (0, height - side),
        (width - side, height - side),
    ] {
        let square = imageops::crop_imm(picture, x, y, side, side).to_image();
        for Rgb(channels) in square.pixels() {
            sums = [0, 1, 2].map(|channel| sums[channel] + u64::from(channels[channel]));
        }
    }
    let count = 4 * u64::from(side) * u64::from(side);
    sums.map(|sum| u8::try_from(sum / count).unwrap_or(u8::MAX))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides have at most 16384 pixels"
)]
fn rounded(side: f64) -> u32 {
    side.round().max(1.0) as u32
}

fn resize(picture: &RgbImage, size: [u32; 2], interpolation: Interpolation) -> RgbImage {
    let [width, height] = size;
    if picture.dimensions() == (width, height) {
        return picture.clone();
    }
    let library = match interpolation {
        Interpolation::Smooth => Some(FilterType::Triangle),
        Interpolation::SmoothCubic => Some(FilterType::CatmullRom),
        Interpolation::Lanczos => Some(FilterType::Lanczos3),
        _ => None,
    };
    if let Some(filter) = library {
        return imageops::resize(picture, width, height, filter);
    }
    let bytes = picture.as_raw().iter().map(|byte| f32::from(*byte));
    let from = [picture.width(), picture.height()];
    let values = resize_planes(&bytes.collect::<Vec<_>>(), 3, from, size, interpolation);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a byte"
    )]
    let bytes = values
        .iter()
        .map(|value| value.round().clamp(0.0, 255.0) as u8);
    RgbImage::from_raw(width, height, bytes.collect()).expect("the planes have this size")
}

/// The weights of the source positions that make up one target position.
type Taps = Vec<(usize, f32)>;

/// Resizes interleaved values with `channels` values per position, by the kernels of `OpenCV`.
pub(crate) fn resize_planes(
    values: &[f32],
    channels: usize,
    from: [u32; 2],
    to: [u32; 2],
    interpolation: Interpolation,
) -> Vec<f32> {
    let shrinks = [0, 1].iter().all(|axis| from[*axis] >= to[*axis]);
    let [across, down] = [0, 1].map(|axis| taps(from[axis], to[axis], interpolation, shrinks));
    let row_length = from[0] as usize * channels;
    let mut rows: Vec<f32> = Vec::with_capacity(across.len() * channels * from[1] as usize);
    for row in values.chunks_exact(row_length.max(1)) {
        for taps in &across {
            for channel in 0..channels {
                let parts = taps.iter();
                rows.push(
                    parts
                        .map(|(at, weight)| row[at * channels + channel] * weight)
                        .sum(),
                );
            }
        }
    }
    let width = across.len() * channels;
    let mut resized = vec![0.0; width * down.len()];
    for (taps, target) in down.iter().zip(resized.chunks_exact_mut(width.max(1))) {
        for (at, weight) in taps {
            let source = &rows[at * width..][..width];
            for (value, part) in target.iter_mut().zip(source) {
                *value += part * weight;
            }
        }
    }
    resized
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "positions are within a side of at most 16384 pixels"
)]
fn taps(from: u32, to: u32, interpolation: Interpolation, shrinks: bool) -> Vec<Taps> {
    let scale = f64::from(from) / f64::from(to);
    let last = i64::from(from) - 1;
    let clamped = |at: i64| at.clamp(0, last) as usize;
    let one = |target: u32| -> Taps {
        let centre = (f64::from(target) + 0.5) * scale - 0.5;
        let (base, rest) = (centre.floor() as i64, (centre - centre.floor()) as f32);
        match interpolation {
            Interpolation::Nearest => {
                vec![(clamped((f64::from(target) * scale).floor() as i64), 1.0)]
            }
            Interpolation::Cubic => {
                let weights = cubic(rest);
                let places = weights.into_iter().zip(-1..);
                places
                    .map(|(weight, step)| (clamped(base + step), weight))
                    .collect()
            }
            Interpolation::Lanczos4 => {
                let weights = lanczos4(rest);
                let places = weights.into_iter().zip(-3..);
                places
                    .map(|(weight, step)| (clamped(base + step), weight))
                    .collect()
            }
            Interpolation::Area if shrinks => {
                let (start, end) = (f64::from(target) * scale, f64::from(target + 1) * scale);
                let places = start.floor() as i64..(end.ceil() as i64).min(last + 1);
                let part = |at: i64| (end.min(at as f64 + 1.0) - start.max(at as f64)) / scale;
                let parts = places.map(|at| (clamped(at), part(at) as f32));
                parts.filter(|(_, weight)| *weight > 0.0).collect()
            }
            Interpolation::Area => {
                // Each source pixel keeps its share of the target, without a blur inside of it.
                let base = (f64::from(target) * scale).floor();
                let rest = f64::from(target + 1) - (base + 1.0) / scale;
                let rest = if rest > 0.0 {
                    (rest - rest.floor()) as f32
                } else {
                    0.0
                };
                let base = base as i64;
                vec![(clamped(base), 1.0 - rest), (clamped(base + 1), rest)]
            }
            _ => vec![(clamped(base), 1.0 - rest), (clamped(base + 1), rest)],
        }
    };
    (0..to).map(one).collect()
}

/// Returns the weights of four neighbours at a distance of `x` behind the second one; `OpenCV`'s coefficient is
/// -0.75.
pub(super) fn cubic(x: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    [far(x + 1.0), near(x), near(1.0 - x), far(2.0 - x)]
}

/// Returns the weights of eight neighbours at a distance of `x` behind the fourth one.
fn lanczos4(x: f32) -> [f32; 8] {
    let sinc = |x: f32| {
        let angle = x * std::f32::consts::PI;
        if angle == 0.0 {
            1.0
        } else {
            angle.sin() / angle
        }
    };
    let distances = [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0].map(|step| step - x);
    let weights = distances.map(|distance| sinc(distance) * sinc(distance / 4.0));
    let sum: f32 = weights.iter().sum();
    weights.map(|weight| weight / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient(width: u32, height: u32) -> RgbImage {
        RgbImage::from_fn(width, height, |x, y| {
            Rgb([x, y, x + y].map(|value| u8::try_from(value * 7 % 256).expect("a byte")))
        })
    }

    #[test]
    fn weights_of_every_kernel_sum_up_to_one() {
        for name in Interpolation::NAMES {
            for (from, to) in [(7, 3), (3, 7), (1, 5), (640, 224), (5, 1)] {
                for taps in taps(from, to, Interpolation::of(name), from > to) {
                    let sum: f32 = taps.iter().map(|(_, weight)| weight).sum();
                    assert!((sum - 1.0).abs() < 1e-5, "{name} {from} {to} {sum}");
                }
            }
        }
    }

    #[test]
    fn every_fit_keeps_corners_in_place() {
        let picture = gradient(40, 20);
        for (name, scale, offset) in [
            ("stretch", [0.4, 0.8], [0.0, 0.0]),
            ("letterbox", [0.4, 0.4], [0.0, 4.0]),
            ("corner", [0.4, 0.4], [0.0, 0.0]),
            ("crop", [0.8, 0.8], [-8.0, 0.0]),
        ] {
            let how = Fit::of(name);
            let (fitted, geometry) = fit(
                &picture,
                [16, 16],
                (how, 1.0),
                Interpolation::Linear,
                [9; 3],
            );
            assert_eq!(fitted.dimensions(), (16, 16), "{name}");
            assert_eq!((geometry.scale, geometry.offset), (scale, offset), "{name}");
            let bordered = name == "letterbox" || name == "corner";
            assert_eq!(fitted.get_pixel(0, 15).0 == [9; 3], bordered, "{name}");
        }
    }

    #[test]
    fn a_border_has_the_colour_of_the_corners() {
        let mut picture = RgbImage::from_pixel(60, 35, Rgb([200, 0, 7]));
        picture.put_pixel(30, 17, Rgb([0, 255, 0]));
        picture.put_pixel(0, 0, Rgb([0, 4, 7]));
        let fitted = |size| {
            let how = (Fit::of("border"), 1.0);
            fit(&picture, size, how, Interpolation::Area, [9; 3])
        };
        let (bordered, geometry) = fitted([32, 32]);
        // 35 * 32 / 60 is 18.7.
        assert_eq!(
            (geometry.scale[1], geometry.offset),
            (18.0 / 35.0, [0.0, 7.0])
        );
        // One of four corners differs.
        assert_eq!(bordered.get_pixel(5, 0).0, [150, 1, 7]);
        let (same, _) = fitted([60, 35]);
        assert_eq!(same, picture);
    }

    #[test]
    fn area_averages_and_linear_samples() {
        let values = [0.0, 4.0, 8.0, 100.0];
        let area = resize_planes(&values, 1, [4, 1], [2, 1], Interpolation::Area);
        assert_eq!(area, [2.0, 54.0]);
        let linear = resize_planes(&values, 1, [4, 1], [1, 1], Interpolation::Linear);
        assert_eq!(linear, [6.0]);
        let nearest = resize_planes(&values, 1, [4, 1], [2, 1], Interpolation::Nearest);
        assert_eq!(nearest, [0.0, 8.0]);
    }
}
