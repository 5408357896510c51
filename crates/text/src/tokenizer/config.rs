//! Parses `tokenizer_config.json`: the settings of a tokenizer beside the tokenizer itself.
//!
//! Invariant: only known entries are kept; an entry of the wrong type is an error that names it.
//! The chat template in this file is read by the module `template`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::TokenizerError;
use super::read::{bounded, broken_file};

/// The file's usual name.
pub const FILE_NAME: &str = "tokenizer_config.json";

/// Maximum size of the file, in bytes. The largest known ones have about 2 MB, with thousands of
/// added tokens.
pub(super) const MAX_CONFIG_BYTES: u64 = 32 << 20;

/// Lengths from here on mean "no limit": exporters write 10³⁰.
const UNLIMITED_LENGTH: f64 = 1e9;

/// A side of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceSide {
    /// At the beginning.
    Left,
    /// At the end.
    Right,
}

/// A token that is added to the vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the file format has these flags"
)]
pub struct AddedToken {
    /// Its text.
    pub content: String,
    /// True if it is a control token and not text.
    pub special: bool,
    /// True if it is matched after normalisation.
    pub normalized: bool,
    /// True if it includes preceding spaces.
    pub lstrip: bool,
    /// True if it includes following spaces.
    pub rstrip: bool,
    /// True if it matches only as a whole word.
    pub single_word: bool,
}

/// The known entries of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenizerConfig {
    /// Text of the token that begins a sequence.
    pub bos_token: Option<String>,
    /// Text of the token that ends a sequence.
    pub eos_token: Option<String>,
    /// Text of the padding token.
    pub pad_token: Option<String>,
    /// Text of the token for unknown text.
    pub unk_token: Option<String>,
    /// Text of the token that stands for a picture.
    pub image_token: Option<String>,
    /// Maximum number of tokens that the model accepts, if limited.
    pub model_max_length: Option<usize>,
    /// Put `bos_token` before a text, if stated.
    pub add_bos_token: Option<bool>,
    /// Put `eos_token` after a text, if stated.
    pub add_eos_token: Option<bool>,
    /// The side on which rows are padded.
    pub padding_side: Option<SequenceSide>,
    /// The side on which rows are truncated.
    pub truncation_side: Option<SequenceSide>,
    /// Added tokens by id.
    pub added_tokens: BTreeMap<u32, AddedToken>,
    /// The pooling that turns token states into one vector (`cls`, `mean`, …), if stated.
    pub pooling: Option<String>,
}

impl TokenizerConfig {
    /// Reads and parses the file.
    pub fn read(path: &Path) -> Result<Self, TokenizerError> {
        Self::parse(path, &bounded(path, MAX_CONFIG_BYTES)?)
    }

    /// Parses the file's bytes; `path` is for messages.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, TokenizerError> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| broken_file(path, format!("invalid JSON: {error}")))?;
        if !value.is_object() {
            return Err(broken_file(path, "expected an object".to_owned()));
        }
        let read = ConfigReader {
            path,
            value: &value,
        };
        Ok(Self {
            bos_token: read.token("bos_token")?,
            eos_token: read.token("eos_token")?,
            pad_token: read.token("pad_token")?,
            unk_token: read.token("unk_token")?,
            image_token: read.token("image_token")?,
            model_max_length: read.length("model_max_length")?,
            add_bos_token: read.boolean("add_bos_token")?,
            add_eos_token: read.boolean("add_eos_token")?,
            padding_side: read.side("padding_side")?,
            truncation_side: read.side("truncation_side")?,
            added_tokens: read.added_tokens()?,
            pooling: read.pooling(),
        })
    }
}

/// The file's JSON value, with its path for messages.
struct ConfigReader<'a> {
    path: &'a Path,
    value: &'a Value,
}

impl ConfigReader<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, expected: &str, found: &Value) -> TokenizerError {
        let found = match found {
            Value::Array(_) => "an array".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            other => format!("`{other}`"),
        };
        broken_file(
            self.path,
            format!("invalid `{key}`: expected {expected}, got {found}"),
        )
    }

    /// Reads a token, given as a string or as an object with `content`.
    fn token(&self, key: &str) -> Result<Option<String>, TokenizerError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let text = value.as_str().or_else(|| value.get("content")?.as_str());
        let text =
            text.ok_or_else(|| self.wrong(key, "a text, or an object with `content`", value));
        text.map(|text| Some(text.to_owned()))
    }

    fn length(&self, key: &str) -> Result<Option<usize>, TokenizerError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(length) if length >= UNLIMITED_LENGTH => Ok(None),
            Some(length) if length >= 1.0 => {
                let whole = value
                    .as_u64()
                    .and_then(|length| usize::try_from(length).ok());
                whole.map_or_else(
                    || Err(self.wrong(key, "a whole number", value)),
                    |n| Ok(Some(n)),
                )
            }
            _ => Err(self.wrong(key, "a number above 0", value)),
        }
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, TokenizerError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let boolean = value.as_bool();
        boolean.map_or_else(
            || Err(self.wrong(key, "true or false", value)),
            |b| Ok(Some(b)),
        )
    }

    fn side(&self, key: &str) -> Result<Option<SequenceSide>, TokenizerError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_str() {
            Some("left") => Ok(Some(SequenceSide::Left)),
            Some("right") => Ok(Some(SequenceSide::Right)),
            _ => Err(self.wrong(key, "`left` or `right`", value)),
        }
    }

    fn added_tokens(&self) -> Result<BTreeMap<u32, AddedToken>, TokenizerError> {
        let key = "added_tokens_decoder";
        let Some(value) = self.get(key) else {
            return Ok(BTreeMap::new());
        };
        let entries = value.as_object();
        let entries = entries.ok_or_else(|| self.wrong(key, "an object", value))?;
        let token = |(id, token): (&String, &Value)| {
            let entry = format!("{key}.{id}");
            let number = id.parse();
            let number = number.map_err(|_| {
                broken_file(self.path, format!("`{entry}`: `{id}` is not a token id"))
            })?;
            let content = token.as_str().or_else(|| token.get("content")?.as_str());
            let content =
                content.ok_or_else(|| self.wrong(&entry, "a token with `content`", token))?;
            let flag = |name| token.get(name).and_then(Value::as_bool);
            let special = flag("special").unwrap_or(false);
            let token = AddedToken {
                content: content.to_owned(),
                special,
                normalized: flag("normalized").unwrap_or(!special),
                lstrip: flag("lstrip").unwrap_or(false),
                rstrip: flag("rstrip").unwrap_or(false),
                single_word: flag("single_word").unwrap_or(false),
            };
            Ok((number, token))
        };
        entries.iter().map(token).collect()
    }

    /// Reads the pooling. It is not a key of transformers, but packages of embedding models state
    /// it here.
    fn pooling(&self) -> Option<String> {
        let said = ["pooling", "pooling_mode"]
            .into_iter()
            .find_map(|key| self.get(key));
        said.and_then(Value::as_str).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TokenizerConfig, String> {
        let parsed = TokenizerConfig::parse(Path::new("c.json"), text.as_bytes());
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn tokens_are_texts_or_objects() {
        let config = parse(
            r#"{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
                "pad_token": null, "model_max_length": 1000000000000000019884624838656,
                "add_bos_token": true, "padding_side": "left",
                "added_tokens_decoder": {"7": {"content": "<x>", "special": true}}}"#,
        )
        .expect("it is sound");
        assert_eq!(config.bos_token.as_deref(), Some("<s>"));
        assert_eq!(config.eos_token.as_deref(), Some("</s>"));
        assert_eq!(config.pad_token, None);
        assert_eq!(config.model_max_length, None, "no bound");
        assert_eq!(config.add_bos_token, Some(true));
        assert_eq!(config.padding_side, Some(SequenceSide::Left));
        let token = &config.added_tokens[&7];
        assert!(token.special && token.content == "<x>" && !token.normalized);
        let config = parse(r#"{"model_max_length": 512}"#).expect("it is sound");
        assert_eq!(config.model_max_length, Some(512));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, told) in [
            ("[", "c.json is broken: invalid JSON"),
            ("[]", "expected an object"),
            (
                r#"{"bos_token": 1}"#,
                "`bos_token`: expected a text, or an object with `content`, got `1`",
            ),
            (
                r#"{"eos_token": {}}"#,
                "`eos_token`: expected a text, or an object with `content`, got an object",
            ),
            (
                r#"{"model_max_length": -1}"#,
                "`model_max_length`: expected a number above 0, got `-1`",
            ),
            (r#"{"model_max_length": 1.5}"#, "a whole number"),
            (r#"{"padding_side": "up"}"#, "`left` or `right`"),
            (r#"{"add_bos_token": 3}"#, "true or false"),
            (
                r#"{"added_tokens_decoder": {"x": "y"}}"#,
                "`x` is not a token id",
            ),
            (
                r#"{"added_tokens_decoder": {"1": {}}}"#,
                "`added_tokens_decoder.1`",
            ),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
