//! Whether two names in the file system are names of one file.

use std::path::Path;

/// Whether two paths are names of one file that has several: hard links, no copies, no symbolic links.
#[cfg(unix)]
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::fs::{self, Metadata};
    use std::os::unix::fs::MetadataExt;

    let place = |path: &Path| {
        let metadata = fs::symlink_metadata(path).ok().filter(Metadata::is_file)?;
        Some((metadata.dev(), metadata.ino()))
    };
    let (one_place, other_place) = (place(one), place(other));
    one != other && one_place.is_some() && one_place == other_place
}

/// Whether two paths are names of one file: not known here, so no.
#[cfg(not(unix))]
pub fn is_same_file(_: &Path, _: &Path) -> bool {
    false
}
