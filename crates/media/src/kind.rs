//! Kinds of what people send: pictures, sounds and texts.

use serde::{Deserialize, Serialize};

use crate::{picture, sound};

/// The kind of what a recipe reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaKind {
    /// A picture.
    Picture,
    /// A sound.
    Sound,
    /// A text to speak, or that a picture shows.
    Text,
}

impl MediaKind {
    /// Returns the kind that models of a capability read, if recipes know it.
    pub fn of_capability(capability: &str) -> Option<Self> {
        match capability {
            "image-embedding"
            | "classification"
            | "object-detection"
            | "semantic-segmentation"
            | "instance-segmentation"
            | "style-transfer"
            | "text-detection"
            | "text-recognition"
            | "vision" => Some(Self::Picture),
            "voice-activity-detection" | "speech-to-text" => Some(Self::Sound),
            "text-to-speech" | "image-generation" => Some(Self::Text),
            _ => None,
        }
    }

    /// Returns the kind that bytes begin like.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if picture::begins_like_one(bytes) {
            return Some(Self::Picture);
        }
        sound::begins_like_one(bytes).then_some(Self::Sound)
    }

    /// Returns the kind of a media type; any service may get JSON as `text/plain`. Browsers give recordings the types of
    /// films.
    pub fn of_media_type(name: &str) -> Option<Self> {
        match name.split('/').next()? {
            "image" => Some(Self::Picture),
            "audio" | "video" => Some(Self::Sound),
            _ => None,
        }
    }

    /// Checks that bytes do not begin like something else.
    pub fn check(self, bytes: &[u8]) -> Result<(), String> {
        match Self::of_bytes(bytes) {
            Some(other) if other != self => Err(format!(
                "a {}, but the model takes a {}: {}",
                other.noun(),
                self.noun(),
                self.formats()
            )),
            _ => Ok(()),
        }
    }

    /// Returns the word for it.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Picture => "picture",
            Self::Sound => "sound",
            Self::Text => "text",
        }
    }

    /// Returns the formats that can be decoded, for people.
    pub fn formats(self) -> &'static str {
        match self {
            Self::Picture => "PNG, JPEG, WebP or GIF",
            Self::Sound => sound::FORMATS,
            Self::Text => "plain text",
        }
    }

    /// Returns the media types as a range.
    pub fn media_range(self) -> &'static str {
        match self {
            Self::Picture => "image/*",
            Self::Sound => "audio/*",
            Self::Text => "text/plain",
        }
    }
}
