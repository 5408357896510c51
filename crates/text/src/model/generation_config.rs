//! `generation_config.json`: default sampling settings and end tokens from the model's authors.
//!
//! Invariant: at most [`MAX_CONFIG_BYTES`] are read. A missing file counts as empty; a broken file is an
//! error.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::TextError;
use pkgtool_base::source;

/// Maximum size of the file, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

const FILE_NAME: &str = "generation_config.json";

/// The file's fields and its path.
#[derive(Debug, Default)]
pub(super) struct GenerationConfig {
    pub(super) file: PathBuf,
    pub(super) fields: Map<String, Value>,
}

impl GenerationConfig {
    /// Reads the first `generation_config.json` in a folder of one of these files.
    pub(super) fn beside(files: &[Option<&Path>]) -> Result<Self, TextError> {
        for file in files.iter().flatten() {
            let file = file.with_file_name(FILE_NAME);
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
    let text = match source::read(file, MAX_CONFIG_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
    };
    match serde_json::from_slice(&text) {
        Ok(Value::Object(fields)) => Ok(Some(fields)),
        Ok(_) => Err(wrong("is not a JSON object".to_owned())),
        Err(error) => Err(wrong(format!("is invalid JSON: {error}"))),
    }
}
