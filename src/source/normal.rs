//! Paths without `.` and `..`, by their text alone.

use std::path::{Component, Path, PathBuf};

/// The path without `.` and with each `name/..` taken out.
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

/// Whether a path can be seen to have nothing to take out, without taking it apart: nearly every one has not,
/// and a run asks for several of each file.
pub fn is_normal(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let needs_a_look = |(one, next): (&u8, &u8)| *one == b'/' && matches!(*next, b'/' | b'.');
    // All pairs are looked at, which is done several at once: to stop at the first takes longer.
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    std::path::MAIN_SEPARATOR == '/'
        && !bytes.starts_with(b".")
        && !bytes.ends_with(b"/")
        && !pairs.fold(false, |found, pair| found | needs_a_look(pair))
}
