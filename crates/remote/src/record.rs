//! Small records in JSON files: their size is limited, and they are replaced atomically.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Maximum size of a record, in bytes.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Reads a record. Returns `None` if it is missing or invalid.
pub(super) fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    if fs::symlink_metadata(path).ok()?.len() > MAX_RECORD_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes a temporary file and renames it, so that a complete record exists at any moment.
pub(super) fn write(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    let mut file = File::create(&beside)?;
    file.write_all(&serde_json::to_vec_pretty(record)?)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
