//! Quadrilaterals in a picture, and the upright pictures of what is in them.

use image::{Rgb, RgbImage, imageops};
use serde::{Deserialize, Serialize};

use super::resize::cubic;

/// Ratio of height to width above which the text of a crop runs downwards.
const MAX_UPRIGHT: f64 = 1.5;

/// A quadrilateral: upper left, upper right, lower right and lower left corner, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quad(pub [[f64; 2]; 4]);

impl Quad {
    /// Returns left, top, right and bottom of the box around it.
    pub fn bounds(&self) -> [f64; 4] {
        let axis = |axis: usize| self.0.map(|point| point[axis]);
        let least = |values: [f64; 4]| values.into_iter().fold(f64::INFINITY, f64::min);
        let most = |values: [f64; 4]| values.into_iter().fold(f64::NEG_INFINITY, f64::max);
        [least(axis(0)), least(axis(1)), most(axis(0)), most(axis(1))]
    }

    /// Returns width and height of what it encloses.
    fn size(&self) -> [f64; 2] {
        let [a, b, c, d] = self.0;
        let length = |from: [f64; 2], to: [f64; 2]| (to[0] - from[0]).hypot(to[1] - from[1]);
        [
            length(a, b).max(length(d, c)),
            length(a, d).max(length(b, c)),
        ]
    }

    /// Returns the number of pixels that [`Quad::crop`] makes.
    pub(crate) fn area(&self) -> f64 {
        let [width, height] = self.size();
        width.max(1.0) * height.max(1.0)
    }

    /// Cuts it out of a picture and makes it a rectangle. One that is much higher than wide is turned, so that
    /// its text runs to the right.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "corners are within a picture"
    )]
    pub(crate) fn crop(&self, picture: &RgbImage) -> RgbImage {
        let size = self.size();
        let [width, height] = size.map(|side| (side as u32).max(1));
        let map = Perspective::of(self);
        let cut = RgbImage::from_fn(width, height, |x, y| {
            let [u, v] = [
                f64::from(x) / f64::from(width),
                f64::from(y) / f64::from(height),
            ];
            sampled(picture, map.at(u, v))
        });
        if f64::from(height) / f64::from(width) >= MAX_UPRIGHT {
            return imageops::rotate270(&cut);
        }
        cut
    }
}

/// A projective map of the unit square to a quadrilateral.
struct Perspective {
    x: [f64; 3],
    y: [f64; 3],
    z: [f64; 2],
}

impl Perspective {
    fn of(quad: &Quad) -> Self {
        let corners = &quad.0;
        let side = |axis: usize| {
            let [upper_left, upper_right, lower_right, lower_left] = corners.map(|it| it[axis]);
            let (first, second) = (upper_right - lower_right, lower_left - lower_right);
            (first, second, upper_left - upper_right - second)
        };
        let ((x1, x2, x3), (y1, y2, y3)) = (side(0), side(1));
        let determinant = x1 * y2 - x2 * y1;
        // A parallelogram has no vanishing point, and a line has no area.
        let z = if determinant.abs() < 1e-9 {
            [0.0; 2]
        } else {
            [
                (x3 * y2 - x2 * y3) / determinant,
                (x1 * y3 - x3 * y1) / determinant,
            ]
        };
        let row = |axis: usize| {
            let [upper_left, upper_right, _, lower_left] = corners.map(|it| it[axis]);
            [
                upper_right - upper_left + z[0] * upper_right,
                lower_left - upper_left + z[1] * lower_left,
                upper_left,
            ]
        };
        Self {
            x: row(0),
            y: row(1),
            z,
        }
    }

    fn at(&self, u: f64, v: f64) -> [f64; 2] {
        let scale = 1.0 / (self.z[0] * u + self.z[1] * v + 1.0);
        [&self.x, &self.y].map(|row| (row[0] * u + row[1] * v + row[2]) * scale)
    }
}

/// Returns the colour at a position by cubic interpolation. Beyond an edge, its pixels repeat.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the picture and to a byte"
)]
fn sampled(picture: &RgbImage, at: [f64; 2]) -> Rgb<u8> {
    let sides = [picture.width(), picture.height()];
    let axis = |axis: usize| {
        let last = i64::from(sides[axis]) - 1;
        let at = if at[axis].is_finite() { at[axis] } else { 0.0 };
        let base = at.floor();
        let weights = cubic((at - base) as f32);
        let places =
            [-1, 0, 1, 2].map(|step| (base as i64).saturating_add(step).clamp(0, last) as u32);
        (weights, places)
    };
    let ((across, xs), (down, ys)) = (axis(0), axis(1));
    let mut sum = [0.0_f32; 3];
    for (y, weight) in ys.iter().zip(down) {
        for (x, other) in xs.iter().zip(across) {
            let pixel = picture.get_pixel(*x, *y).0;
            for (total, byte) in sum.iter_mut().zip(pixel) {
                *total += weight * other * f32::from(byte);
            }
        }
    }
    Rgb(sum.map(|value| value.round().clamp(0.0, 255.0) as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient() -> RgbImage {
        RgbImage::from_fn(40, 30, |x, y| {
            Rgb([x, y, 7].map(|value| u8::try_from(value * 5).expect("a byte")))
        })
    }

    #[test]
    fn an_upright_rectangle_is_cut_as_it_is() {
        let picture = gradient();
        let quad = Quad([[4.0, 6.0], [24.0, 6.0], [24.0, 16.0], [4.0, 16.0]]);
        let cut = quad.crop(&picture);
        assert_eq!(cut.dimensions(), (20, 10));
        for (x, y, pixel) in cut.enumerate_pixels() {
            assert_eq!(pixel, picture.get_pixel(x + 4, y + 6));
        }
        assert_eq!(
            quad.bounds().map(f64::to_bits),
            [4.0_f64, 6.0, 24.0, 16.0].map(f64::to_bits)
        );
    }

    #[test]
    fn corners_of_a_trapezium_become_corners() {
        let quad = Quad([[5.0, 5.0], [35.0, 2.0], [30.0, 20.0], [8.0, 18.0]]);
        let map = Perspective::of(&quad);
        for ((u, v), corner) in [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
            .into_iter()
            .zip(quad.0)
        {
            let found = map.at(u, v);
            assert!((found[0] - corner[0]).abs() < 1e-9 && (found[1] - corner[1]).abs() < 1e-9);
        }
    }

    #[test]
    fn text_that_runs_downwards_is_turned() {
        let quad = Quad([[4.0, 2.0], [10.0, 2.0], [10.0, 28.0], [4.0, 28.0]]);
        assert_eq!(quad.crop(&gradient()).dimensions(), (26, 6));
        for broken in [[[0.0; 2]; 4], [[f64::NAN; 2]; 4]] {
            assert!(Quad(broken).crop(&gradient()).width() >= 1);
        }
    }
}
