//! Reads decoder settings from files beside a model: `generation_config.json` of transformers, and
//! `genai_config.json` of ONNX Runtime's model builder.
//!
//! Invariant: at most [`MAX_FILE_BYTES`] bytes of a file are read. A missing file sets nothing; a broken
//! one is an error that names it.

use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value as Json;

use pkgtool_base::source;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Settings from files beside a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DecoderSettings {
    /// Context length, in tokens.
    pub(super) context: Option<usize>,
    pub(super) vocabulary: Option<usize>,
    /// Number of elements in an attention head's key or value.
    pub(super) head_size: Option<u64>,
    pub(super) first: Option<u32>,
    /// The tokens that end a text.
    pub(super) ends: Vec<u32>,
}

impl DecoderSettings {
    /// Reads the files beside `model`.
    pub(super) fn of(model: &Path) -> Result<Self, String> {
        let directory = model.parent().unwrap_or(Path::new(""));
        let mut known = Self::default();
        if let Some(genai) = read(&directory.join("genai_config.json"))? {
            known.genai(genai.get("model").unwrap_or(&Json::Null));
        }
        if let Some(generation) = read(&directory.join("generation_config.json"))? {
            known.tokens(&generation);
        }
        Ok(known)
    }

    fn genai(&mut self, model: &Json) {
        self.context = size(model, "context_length");
        self.vocabulary = size(model, "vocab_size");
        let decoder = model.get("decoder").unwrap_or(&Json::Null);
        self.head_size = decoder.get("head_size").and_then(Json::as_u64);
        self.tokens(model);
    }

    fn tokens(&mut self, from: &Json) {
        let id = |value: &Json| value.as_u64().and_then(|id| u32::try_from(id).ok());
        self.first = self.first.or(from.get("bos_token_id").and_then(id));
        let ends = match from.get("eos_token_id") {
            Some(Json::Array(list)) => list.iter().filter_map(id).collect(),
            Some(one) => id(one).into_iter().collect(),
            None => Vec::new(),
        };
        self.ends.extend(ends);
    }
}

fn size(of: &Json, key: &str) -> Option<usize> {
    let size = of.get(key).and_then(Json::as_u64)?;
    usize::try_from(size).ok().filter(|size| *size > 0)
}

fn read(path: &Path) -> Result<Option<Json>, String> {
    let wrong = |reason: String| format!("{}: {reason}", path.display());
    let text = match source::read(path, MAX_FILE_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
    };
    let parsed = serde_json::from_slice(&text);
    parsed
        .map(Some)
        .map_err(|error| wrong(format!("invalid JSON: {error}; fix the file, or remove it")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_beside_a_model_tell_of_it() {
        let directory = tempfile::TempDir::new().expect("a directory");
        let model = directory.path().join("model.onnx");
        assert_eq!(DecoderSettings::of(&model), Ok(DecoderSettings::default()));
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).expect("it is written");
        };
        let genai = r#"{"model": {"context_length": 64, "vocab_size": 300, "eos_token_id": 2,
            "decoder": {"head_size": 16}}}"#;
        write("genai_config.json", genai);
        write(
            "generation_config.json",
            r#"{"bos_token_id": 1, "eos_token_id": [2, 7, -1]}"#,
        );
        let known = DecoderSettings::of(&model).expect("both are right");
        assert_eq!((known.context, known.vocabulary), (Some(64), Some(300)));
        assert_eq!((known.head_size, known.first), (Some(16), Some(1)));
        assert_eq!(known.ends, [2, 2, 7]);
        write("generation_config.json", "{");
        let error = DecoderSettings::of(&model).expect_err("it is broken");
        assert!(
            error.contains("generation_config.json: invalid JSON"),
            "{error}"
        );
    }
}
