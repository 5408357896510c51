//! Small files of packages, read with a limit.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value as Json;

/// Reads a text of at most `most` bytes. Errors name the file.
pub(crate) fn text(path: &Path, most: u64) -> Result<String, String> {
    let fault = |reason: String| format!("{}: {reason}", path.display());
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text));
    read.map_err(|error| fault(error.to_string()))?;
    if text.len() as u64 > most {
        let most = most >> 20;
        return Err(fault(format!("too large: expected at most {most} MiB")));
    }
    Ok(text)
}

/// Reads JSON of at most `most` bytes. Errors name the file.
pub(crate) fn json(path: &Path, most: u64) -> Result<Json, String> {
    let parsed = serde_json::from_str(&text(path, most)?);
    parsed.map_err(|error| format!("{}: {error}", path.display()))
}
