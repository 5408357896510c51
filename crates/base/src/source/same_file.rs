//! Detects hard links: two paths that name the same file.

use std::path::Path;

/// Returns whether two paths are hard links of one file; copies and symbolic links do not count.
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

/// Returns `false`: hard links are not detected on this system.
#[cfg(not(unix))]
pub fn is_same_file(_: &Path, _: &Path) -> bool {
    false
}
