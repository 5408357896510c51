//! Pictures: decoding, resizing, and the relation between a picture and a model's input.

mod geometry;
mod quad;
mod resize;

pub use geometry::Geometry;
pub use quad::Quad;
pub(crate) use resize::{Fit, Interpolation, fit, resize_planes};

use std::io::Cursor;

use image::{ImageBuffer, ImageFormat, Pixel, PixelWithColorType, RgbImage};
use pkgtool_engine::runtime::picture::MAX_PIXELS;
use pkgtool_engine::tensor::input::decode_image;
use serde::{Deserialize, Serialize};

/// Maximum size of a decoded picture, in bytes.
const MAX_DECODED_BYTES: u64 = 256 << 20;

/// Decodes a picture to upright RGB; transparency is dropped. The header's size is checked before anything
/// is decoded.
pub fn decode(bytes: &[u8]) -> Result<RgbImage, String> {
    let limits = (MAX_DECODED_BYTES, MAX_PIXELS);
    Ok(decode_image(bytes, limits)?.into_rgb8())
}

/// A format of encoded pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PictureFormat {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
}

impl PictureFormat {
    /// All formats, the preferred one first.
    pub const ALL: [Self; 2] = [Self::Png, Self::Jpeg];

    /// Returns its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
        }
    }

    /// Encodes a picture.
    pub fn encode<P>(self, picture: &ImageBuffer<P, Vec<u8>>) -> Result<Vec<u8>, String>
    where
        P: Pixel<Subpixel = u8> + PixelWithColorType,
    {
        let format = match self {
            Self::Png => ImageFormat::Png,
            Self::Jpeg => ImageFormat::Jpeg,
        };
        let mut bytes = Cursor::new(Vec::new());
        let written = picture.write_to(&mut bytes, format);
        written.map_err(|error| error.to_string())?;
        Ok(bytes.into_inner())
    }
}

/// Returns whether bytes begin like a picture that [`decode`] supports.
pub fn begins_like_one(bytes: &[u8]) -> bool {
    use ImageFormat::{Gif, Jpeg, Png, WebP};
    image::guess_format(bytes).is_ok_and(|format| [Png, Jpeg, WebP, Gif].contains(&format))
}
