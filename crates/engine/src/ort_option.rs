//! Configuration entries of an ONNX Runtime session that a user sets as `KEY=VALUE`.
//!
//! Invariant: key and value fit ONNX Runtime's length limits. ONNX Runtime itself checks whether it
//! knows the key.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum length of a key, in bytes.
const MAX_KEY_BYTES: usize = 128;
/// Maximum length of a value, in bytes.
const MAX_VALUE_BYTES: usize = 1024;

/// An entry of an ONNX Runtime session's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct OrtOption {
    key: String,
    value: String,
}

impl OrtOption {
    /// The key, such as `session.intra_op.allow_spinning`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Fails if two options have the same key.
    pub fn check_all(options: &[Self]) -> Result<(), String> {
        for (place, option) in options.iter().enumerate() {
            if options[..place].iter().any(|other| other.key == option.key) {
                return Err(format!(
                    "the key `{}` is set twice; set each key once",
                    option.key
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for OrtOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            format!("expected KEY=VALUE, such as `session.x64quantprecision=1`, found `{text}`")
        })?;
        for (what, part, most) in [
            ("key", key, MAX_KEY_BYTES),
            ("value", value, MAX_VALUE_BYTES),
        ] {
            if part.len() > most {
                let length = part.len();
                return Err(format!(
                    "the {what} has {length} bytes; ONNX Runtime allows at most {most}"
                ));
            }
            if part.contains('\0') {
                return Err(format!("the {what} contains a zero byte; remove it"));
            }
        }
        if key.trim().is_empty() || key != key.trim() {
            return Err(format!(
                "expected a key without spaces around it before `=`, found `{key}`"
            ));
        }
        Ok(Self {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }
}

impl fmt::Display for OrtOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl From<OrtOption> for String {
    fn from(option: OrtOption) -> Self {
        option.to_string()
    }
}

impl TryFrom<String> for OrtOption {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_a_value_are_read() {
        let option: OrtOption = "session.a=b=c".parse().expect("it is right");
        assert_eq!((option.key(), option.value()), ("session.a", "b=c"));
        assert_eq!(option.to_string(), "session.a=b=c");
        assert!("session.a=".parse::<OrtOption>().is_ok());
    }

    #[test]
    fn other_forms_are_rejected_with_what_was_expected() {
        let long = format!("{}=1", "k".repeat(129));
        let large = format!("k={}", "v".repeat(1025));
        for (text, words) in [
            ("session.a", "expected KEY=VALUE"),
            ("=1", "expected a key"),
            (" k=1", "expected a key"),
            ("k=\0", "zero byte"),
            (&long, "at most 128"),
            (&large, "at most 1024"),
        ] {
            let error = text.parse::<OrtOption>().expect_err(text);
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_key_is_set_once() {
        let option = |text: &str| text.parse::<OrtOption>().expect("it is right");
        assert!(OrtOption::check_all(&[option("a=1"), option("b=1")]).is_ok());
        let error = OrtOption::check_all(&[option("a=1"), option("a=2")]);
        assert!(error.expect_err("it is set twice").contains("`a`"));
    }
}
