//! Pictures in messages: `{"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}`.
//!
//! Invariant: a picture is part of the request. Nothing is fetched.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use super::fault::{FieldError, quoted};
use super::field::RequestField;
use crate::slot::PictureId;

/// Base64 as clients send it: some leave out the padding.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns a file's bytes as the data URI of a picture.
pub fn data_uri(bytes: &[u8]) -> String {
    format!("data:image/*;base64,{}", BASE64.encode(bytes))
}

/// An encoded picture in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatPicture {
    /// The bytes of its file.
    pub bytes: Arc<[u8]>,
    /// Its identity.
    pub id: PictureId,
    /// Path of its field, for errors.
    pub path: String,
}

impl ChatPicture {
    /// Creates a picture, which errors name as `place`.
    pub(super) fn new(bytes: &[u8], place: &str) -> Self {
        Self {
            id: PictureId::of(bytes),
            bytes: bytes.into(),
            path: place.to_owned(),
        }
    }

    /// Reads the part of a message that is a picture.
    pub(super) fn read(part: &RequestField<'_>) -> Result<Self, FieldError> {
        let field = part.get("image_url");
        let url = if field.value.is_object() {
            field.get("url")
        } else {
            field
        };
        let expected = "a picture as data URI, such as `data:image/png;base64,iVBORw0…`";
        let text = url.text()?;
        let encoded = text
            .strip_prefix("data:")
            .and_then(|text| text.split_once(";base64,"))
            .map(|(_, encoded)| encoded);
        let encoded = encoded.ok_or_else(|| {
            let found = format!("{}; the server fetches nothing", quoted(text));
            FieldError::at(&url.path, expected, found)
        })?;
        let bytes = BASE64.decode(encoded.trim()).map_err(|error| {
            FieldError::at(&url.path, expected, format!("invalid base64: {error}"))
        })?;
        Ok(Self::new(&bytes, &url.path))
    }
}
