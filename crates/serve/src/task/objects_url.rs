//! The address of objects: a bucket and the beginning of all names.

use std::fmt;
use std::str::FromStr;

use object_store::path::Path as Name;
use serde::{Deserialize, Serialize};

/// Scheme of an address.
const SCHEME: &str = "s3://";

/// The address of a bucket and a prefix: `s3://bucket/prefix`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectsUrl {
    pub(super) bucket: String,
    pub(super) prefix: Name,
}

/// A text that is not the address of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid address of objects: expected s3://BUCKET or s3://BUCKET/PREFIX, {found}")]
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
        Ok(Self { bucket, prefix })
    }
}

impl fmt::Display for ObjectsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.bucket)?;
        if self.prefix.as_ref().is_empty() {
            return Ok(());
        }
        write!(f, "/{}", self.prefix)
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
        ] {
            let error = text.parse::<ObjectsUrl>().expect_err(text).to_string();
            assert!(error.contains("expected s3://BUCKET"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
