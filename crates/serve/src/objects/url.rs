//! The address of objects: a bucket and the beginning of all names, or a folder that several servers share.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use object_store::path::Path as Name;
use serde::{Deserialize, Serialize};

/// Scheme of the address of a bucket, and of a folder.
const SCHEME: &str = "s3://";
const FOLDER_SCHEME: &str = "file://";

/// The address of objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ObjectsUrl {
    /// `s3://bucket/prefix`.
    Bucket {
        /// The bucket.
        bucket: String,
        /// The beginning of all names.
        prefix: Name,
    },
    /// A folder that all servers mount: `file:///srv/objects`.
    Folder(PathBuf),
}

/// A text that is not the address of objects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid address of objects: expected s3://BUCKET, s3://BUCKET/PREFIX or file:///FOLDER, {found}"
)]
pub struct InvalidObjectsUrl {
    /// The reason.
    found: String,
}

impl FromStr for ObjectsUrl {
    type Err = InvalidObjectsUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |found: &str| InvalidObjectsUrl {
            found: found.to_owned(),
        };
        if let Some(folder) = text.strip_prefix(FOLDER_SCHEME) {
            let folder = Path::new(folder);
            return if folder.is_absolute() {
                Ok(Self::Folder(folder.to_owned()))
            } else {
                Err(invalid("got a path that is not absolute"))
            };
        }
        let rest = text.strip_prefix(SCHEME);
        let rest = rest.ok_or_else(|| invalid("got another scheme or none"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_of_bucket =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_of_bucket) {
            let rule =
                "got a bucket name that is not 3 to 63 lower case letters, digits, `.` and `-`";
            return Err(invalid(rule));
        }
        let is_of_prefix = |byte: u8| byte.is_ascii_alphanumeric() || b"/!-_.*'()".contains(&byte);
        if !prefix.bytes().all(is_of_prefix) {
            return Err(invalid("got a prefix with special characters"));
        }
        let empty = || invalid("got a prefix with an empty or relative part");
        if prefix.starts_with('/') {
            return Err(empty());
        }
        let prefix = Name::parse(prefix.trim_end_matches('/')).map_err(|_| empty())?;
        let bucket = bucket.to_owned();
        Ok(Self::Bucket { bucket, prefix })
    }
}

impl fmt::Display for ObjectsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket { bucket, prefix } if prefix.as_ref().is_empty() => {
                write!(f, "{SCHEME}{bucket}")
            }
            Self::Bucket { bucket, prefix } => write!(f, "{SCHEME}{bucket}/{prefix}"),
            Self::Folder(folder) => write!(f, "{FOLDER_SCHEME}{}", folder.display()),
        }
    }
}

impl From<ObjectsUrl> for String {
    fn from(url: ObjectsUrl) -> Self {
        url.to_string()
    }
}

impl TryFrom<String> for ObjectsUrl {
    type Error = InvalidObjectsUrl;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_bucket_and_a_prefix() {
        for (text, shown) in [
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3://my.bucket-1/a/b", "s3://my.bucket-1/a/b"),
            ("s3://bucket/a/", "s3://bucket/a"),
            ("file:///srv/objects", "file:///srv/objects"),
        ] {
            let url: ObjectsUrl = text.parse().expect(text);
            assert_eq!(url.to_string(), shown);
            assert_eq!(shown.parse(), Ok(url));
        }
        for text in [
            "",
            "bucket",
            "gs://bucket",
            "s3://",
            "s3://a",
            "s3://Bucket",
            "s3://key:secret@bucket",
            "s3://bucket//a",
            "s3://bucket/a/../b",
            "s3://bucket/a b",
            "s3://bucket?x=y",
            "file://host/objects",
            "file://",
        ] {
            let error = text.parse::<ObjectsUrl>().expect_err(text).to_string();
            assert!(error.contains("expected s3://BUCKET"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
