//! Small files of packages, read with a limit.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

/// Returns the directories in which files beside a model may lie: its own, and the one above.
pub(crate) fn directories(model: &Path) -> impl Iterator<Item = &Path> {
    model.ancestors().skip(1).take(2)
}

/// Returns the first existing file with one of these names beside a model.
pub(crate) fn beside(model: &Path, names: &[&str]) -> Option<PathBuf> {
    let mut paths = directories(model).flat_map(|it| names.iter().map(|name| it.join(name)));
    paths.find(|path| path.is_file())
}

/// Reads at most `most` bytes. Errors name the file.
pub(crate) fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let fault = |reason: String| format!("{}: {reason}", path.display());
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|error| fault(error.to_string()))?;
    if bytes.len() as u64 > most {
        let most = most >> 20;
        return Err(fault(format!("too large: expected at most {most} MiB")));
    }
    Ok(bytes)
}

/// Reads a text of at most `most` bytes. Errors name the file.
pub(crate) fn text(path: &Path, most: u64) -> Result<String, String> {
    let text = String::from_utf8(bytes(path, most)?);
    text.map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads JSON of at most `most` bytes. Errors name the file.
pub(crate) fn json(path: &Path, most: u64) -> Result<Json, String> {
    let parsed = serde_json::from_str(&text(path, most)?);
    parsed.map_err(|error| format!("{}: {error}", path.display()))
}
