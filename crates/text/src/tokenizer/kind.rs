//! Detects tokenizer files of other formats by their first bytes and their JSON keys.
//!
//! Invariant: detection runs only on files that are not a valid `tokenizer.json`. A wrong guess
//! only makes an error message less helpful.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A tokenizer file, or a part of one, that is not a `tokenizer.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForeignKind {
    /// SentencePiece's `tokenizer.model`.
    SentencePiece,
    /// Mistral's `tekken.json`.
    Tekken,
    /// A tiktoken vocabulary, with a base64 token and a rank on each line.
    Tiktoken,
    /// `tokenizer.bin` of llama2.c.
    Llama2c,
    /// `tokenizer_config.json`.
    Config,
    /// `vocab.json`, which has only tokens and ids.
    Vocabulary,
    /// `vocab.txt`, which has only tokens.
    VocabularyLines,
}

/// Remedy for formats that transformers can convert.
const TRANSFORMERS_HELP: &str = "convert it with the Python package transformers, \
    `AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)`, which writes a `tokenizer.json`";

impl ForeignKind {
    /// Returns the remedy.
    pub fn help(self) -> &'static str {
        match self {
            Self::SentencePiece | Self::Tiktoken | Self::Vocabulary | Self::VocabularyLines => {
                TRANSFORMERS_HELP
            }
            Self::Tekken => {
                "convert it with the Python package transformers, whose Mistral tokenizers read it \
                 and whose `save_pretrained` writes a `tokenizer.json`"
            }
            Self::Llama2c => {
                "it has no rules to split text; take the `tokenizer.json` of the model it was made from"
            }
            Self::Config => "set `tokenizer` to the tokenizer, and `tokenizer_config` to this file",
        }
    }

    /// Detects the format of bytes that are not JSON.
    pub(super) fn of_bytes(path: &Path, bytes: &[u8]) -> Option<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        // The first field of the protocol buffer is the list of pieces.
        if matches!(extension, Some("model" | "spm")) || is_sentencepiece(bytes) {
            return Some(Self::SentencePiece);
        }
        if extension == Some("tiktoken") || is_tiktoken(bytes) {
            return Some(Self::Tiktoken);
        }
        match extension {
            Some("bin") => Some(Self::Llama2c),
            Some("txt" | "vocab") => Some(Self::VocabularyLines),
            _ => None,
        }
    }

    /// Detects the format of JSON that is not a tokenizer, by its keys.
    pub(super) fn of_value(value: &Value) -> Option<Self> {
        let keys = value.as_object()?;
        let has = |key: &str| keys.contains_key(key);
        let vocab = keys.get("vocab").and_then(Value::as_array);
        let is_tekken = vocab.and_then(|vocab| vocab.first()?.get("token_bytes"));
        if is_tekken.is_some() {
            Some(Self::Tekken)
        } else if has("model") {
            None
        } else if has("tokenizer_class") || has("model_max_length") || has("added_tokens_decoder") {
            Some(Self::Config)
        } else if !keys.is_empty() && keys.values().all(Value::is_u64) {
            Some(Self::Vocabulary)
        } else {
            None
        }
    }
}

/// Matches the beginning of a SentencePiece file: field 1, its length, and in it field 1 (the
/// piece's text).
fn is_sentencepiece(bytes: &[u8]) -> bool {
    matches!(bytes, [0x0a, length, 0x0a, text, ..] if *text < *length && *length < 0x80)
}

/// Returns whether the first line consists of base64 and a rank.
fn is_tiktoken(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let Some((text, rank)) = std::str::from_utf8(line)
        .ok()
        .and_then(|line| line.trim_end().split_once(' '))
    else {
        return false;
    };
    let is_base64 = |c: u8| c.is_ascii_alphanumeric() || b"+/=".contains(&c);
    let is_text = !text.is_empty() && text.len() % 4 == 0 && text.bytes().all(is_base64);
    is_text && !rank.is_empty() && rank.bytes().all(|c| c.is_ascii_digit())
}

impl fmt::Display for ForeignKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SentencePiece => "a SentencePiece model (`tokenizer.model`)",
            Self::Tekken => "a tekken vocabulary (`tekken.json`)",
            Self::Tiktoken => "a tiktoken vocabulary",
            Self::Llama2c => "a binary tokenizer (`tokenizer.bin`)",
            Self::Config => "a tokenizer's configuration (`tokenizer_config.json`)",
            Self::Vocabulary => "only a vocabulary (`vocab.json`)",
            Self::VocabularyLines => "only a vocabulary (`vocab.txt`)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_formats_are_known_by_their_bytes() {
        let of = |name: &str, bytes: &[u8]| ForeignKind::of_bytes(Path::new(name), bytes);
        let pieces = b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02";
        assert_eq!(
            of("tokenizer.json", pieces),
            Some(ForeignKind::SentencePiece)
        );
        assert_eq!(of("tokenizer.model", b""), Some(ForeignKind::SentencePiece));
        let ranks = b"IQ== 0\nIg== 1\n";
        assert_eq!(of("tokenizer.json", ranks), Some(ForeignKind::Tiktoken));
        assert_eq!(of("tokenizer.bin", b"\0\0"), Some(ForeignKind::Llama2c));
        assert_eq!(of("tokenizer.json", b"<html>"), None);
        assert_eq!(of("tokenizer.json", b""), None);
    }

    #[test]
    fn other_json_is_known_by_its_keys() {
        let of = |text| ForeignKind::of_value(&serde_json::from_str(text).expect("JSON"));
        let tekken = r#"{"config": {}, "vocab": [{"rank": 0, "token_bytes": "AA=="}]}"#;
        assert_eq!(of(tekken), Some(ForeignKind::Tekken));
        assert_eq!(of(r#"{"tokenizer_class": "X"}"#), Some(ForeignKind::Config));
        assert_eq!(of(r#"{"a": 0, "b": 1}"#), Some(ForeignKind::Vocabulary));
        assert_eq!(of("{}"), None);
        assert_eq!(of(r#"{"model": {}}"#), None);
        assert_eq!(of("[]"), None);
    }
}
