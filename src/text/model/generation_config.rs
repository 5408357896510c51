//! `generation_config.json`: what a model's makers say of drawing tokens, and which ones end an answer.
//!
//! Invariant: at most [`MAX_BYTES`] are read; a file that is not there says nothing, a broken one is told.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::TextError;
use crate::source;

/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

const NAME: &str = "generation_config.json";

/// The file's fields, and where it is.
#[derive(Debug, Default)]
pub(super) struct GenerationConfig {
    pub(super) file: PathBuf,
    pub(super) fields: Map<String, Value>,
}

impl GenerationConfig {
    /// The first that lies beside one of these files.
    pub(super) fn beside(files: &[Option<&Path>]) -> Result<Self, TextError> {
        for file in files.iter().flatten() {
            let file = file.with_file_name(NAME);
            if let Some(fields) = read(&file)? {
                return Ok(Self { file, fields });
            }
        }
        Ok(Self::default())
    }
}

fn read(file: &Path) -> Result<Option<Map<String, Value>>, TextError> {
    let wrong = |reason: String| TextError::File {
        file: file.to_owned(),
        reason,
    };
    let text = match source::read(file, MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
    };
    match serde_json::from_slice(&text) {
        Ok(Value::Object(fields)) => Ok(Some(fields)),
        Ok(_) => Err(wrong("is no JSON object".to_owned())),
        Err(error) => Err(wrong(format!("is no JSON: {error}"))),
    }
}
