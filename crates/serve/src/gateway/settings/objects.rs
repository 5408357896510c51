//! Settings for object storage.

use serde::{Deserialize, Serialize};

use crate::objects::{InvalidObjectsUrl, ObjectsUrl};

/// Object storage of bodies, answers, datasets and files of batches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObjectsSettings {
    /// Bucket and prefix, `s3://bucket/prefix`; empty: files in the data directory.
    pub url: OptionalObjectsUrl,
    /// Start even if the public can read the objects.
    pub allow_public: bool,
}

/// An optional address of objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OptionalObjectsUrl(pub Option<ObjectsUrl>);

impl TryFrom<String> for OptionalObjectsUrl {
    type Error = InvalidObjectsUrl;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        text.parse().map(|url| Self(Some(url)))
    }
}

impl From<OptionalObjectsUrl> for String {
    fn from(OptionalObjectsUrl(url): OptionalObjectsUrl) -> Self {
        url.map(Self::from).unwrap_or_default()
    }
}
