//! Pictures: decoding, resizing, and the relation between a picture and a model's input.

mod geometry;
mod resize;

pub use geometry::Geometry;
pub(crate) use resize::{Fit, Interpolation, fit, resize_planes};

use std::io::Cursor;

use image::{ImageFormat, RgbImage};
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
    pub fn encode(self, picture: &RgbImage) -> Result<Vec<u8>, String> {
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

/// Returns the media type of an encoded picture by its first bytes; `None` if they begin no supported picture.
pub fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ if bytes.starts_with(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        _ if bytes.starts_with(b"GIF8") => Some("image/gif"),
        _ => None,
    }
}
