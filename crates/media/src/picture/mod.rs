//! Pictures: decoding, resizing, and the relation between a picture and a model's input.

mod geometry;
mod resize;

pub use geometry::Geometry;
pub(crate) use resize::{Fit, Interpolation, fit, resize_planes};

use image::RgbImage;
use pkgtool_engine::runtime::picture::MAX_PIXELS;
use pkgtool_engine::tensor::input::decode_image;

/// Maximum size of a decoded picture, in bytes.
const MAX_DECODED_BYTES: u64 = 256 << 20;

/// Decodes a picture to upright RGB; transparency is dropped. The header's size is checked before anything
/// is decoded.
pub fn decode(bytes: &[u8]) -> Result<RgbImage, String> {
    let limits = (MAX_DECODED_BYTES, MAX_PIXELS);
    Ok(decode_image(bytes, limits)?.into_rgb8())
}
