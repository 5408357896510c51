//! Removes `.` and `..` from paths lexically, without file system access.

use std::path::{Component, Path, PathBuf};

/// Returns the path without `.` and with each `name/..` removed.
pub fn normalize(path: &Path) -> PathBuf {
    if is_normal(path) {
        return path.to_owned();
    }
    let mut result = PathBuf::with_capacity(path.as_os_str().len());
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(result.components().next_back(), Some(Component::Normal(_))) =>
            {
                result.pop();
            }
            other => result.push(other),
        }
    }
    result
}

/// Returns whether a path certainly needs no change, without splitting it. This holds for nearly
/// every path, and a run checks several paths per file.
pub fn is_normal(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let needs_a_look = |(one, next): (&u8, &u8)| *one == b'/' && matches!(*next, b'/' | b'.');
    // Checking all pairs without an early exit is vectorised, which is faster.
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    std::path::MAIN_SEPARATOR == '/'
        && !bytes.starts_with(b".")
        && !bytes.ends_with(b"/")
        && !pairs.fold(false, |found, pair| found | needs_a_look(pair))
}
