//! The relation between the pixels of a picture and those of a model's input.

use serde::{Deserialize, Serialize};

/// How a picture was placed in a model's input.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Geometry {
    /// Width and height of the picture, in pixels.
    pub picture: [u32; 2],
    /// Width and height of the model's input, in pixels.
    pub model: [u32; 2],
    /// Pixels of the input per pixel of the picture, horizontally and vertically.
    pub scale: [f64; 2],
    /// Position of the picture's upper left corner in the input, in pixels.
    pub offset: [f64; 2],
}

impl Geometry {
    /// The geometry of a picture that is the input as it is.
    pub fn same(size: [u32; 2]) -> Self {
        Self {
            picture: size,
            model: size,
            scale: [1.0; 2],
            offset: [0.0; 2],
        }
    }

    /// Converts a point of the model's input to a point of the picture, clamped to the picture.
    pub fn to_picture(&self, point: [f64; 2]) -> [f64; 2] {
        [0, 1].map(|axis| {
            let at = (point[axis] - self.offset[axis]) / self.scale[axis];
            at.clamp(0.0, f64::from(self.picture[axis]))
        })
    }

    /// Returns the part of the model's input that the picture covers: left, top, right, bottom, in pixels.
    pub(crate) fn covered(&self) -> [f64; 4] {
        let end =
            |axis: usize| self.offset[axis] + f64::from(self.picture[axis]) * self.scale[axis];
        [self.offset[0], self.offset[1], end(0), end(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_return_to_the_picture() {
        let letterbox = Geometry {
            picture: [200, 100],
            model: [64, 64],
            scale: [0.32; 2],
            offset: [0.0, 16.0],
        };
        let [x, y] = letterbox.to_picture([32.0, 32.0]);
        assert!((x - 100.0).abs() < 1e-9 && (y - 50.0).abs() < 1e-9);
        let [x, y] = letterbox.to_picture([-5.0, 80.0]);
        assert!(x.abs() < 1e-9 && (y - 100.0).abs() < 1e-9);
    }
}
