//! Small records in JSON files: read in bounds, replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Largest record that is read, in bytes.
const MAX_RECORD: u64 = 16 << 20;

/// Reads a record; `None` if there is none, or none of this form.
pub(super) fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    if fs::symlink_metadata(path).ok()?.len() > MAX_RECORD {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes beside it and puts it in its place: at any moment one of the two is whole.
pub(super) fn write(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    let mut file = File::create(&beside)?;
    file.write_all(&serde_json::to_vec_pretty(record)?)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
