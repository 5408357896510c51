//! Fast path operations that cut a path at its last separator.
//!
//! Invariant: the results equal those of [`Path`]. `Path` parses all components, which costs more
//! than a hash lookup, and a run calls these functions several times per file.

use std::ffi::OsStr;
#[cfg(unix)]
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the parent, like [`Path::parent`].
pub fn above(path: &Path) -> Option<&Path> {
    cut(path).map_or_else(|| path.parent(), |(above, _)| Some(above))
}

/// Returns the path and its ancestors, like [`Path::ancestors`].
pub fn upwards(path: &Path) -> impl Iterator<Item = &Path> {
    std::iter::successors(Some(path), |path| above(path))
}

/// Returns the last name, like [`Path::file_name`], if it is valid UTF-8.
pub fn name(path: &Path) -> Option<&str> {
    let text = path.as_os_str();
    let bytes = text.as_encoded_bytes();
    let is_name = bytes.first().is_some_and(|first| *first != b'.')
        && !bytes
            .iter()
            .any(|byte| std::path::is_separator(char::from(*byte)));
    if cfg!(unix) && is_name {
        return text.to_str();
    }
    let name = cut(path).map(|(_, name)| name);
    name.or_else(|| path.file_name())?.to_str()
}

/// Returns the rest of a path below `top`, like [`Path::strip_prefix`]. Neither may contain `.` or
/// `..`.
pub fn below<'p>(path: &'p Path, top: &Path) -> Option<&'p Path> {
    let whole = path.as_os_str().as_encoded_bytes();
    let top_bytes = top.as_os_str().as_encoded_bytes();
    if !whole.starts_with(top_bytes) {
        // On Unix, the bytes of the prefix must be equal. Other systems have two separators, so
        // `Path` decides.
        return (!cfg!(unix)).then(|| path.strip_prefix(top).ok())?;
    }
    let at = match whole.get(top_bytes.len()) {
        None => top_bytes.len(),
        Some(b'/') if !top_bytes.is_empty() && !top_bytes.ends_with(b"/") => top_bytes.len() + 1,
        Some(_) if top_bytes.is_empty() || top_bytes.ends_with(b"/") => top_bytes.len(),
        Some(_) => return path.strip_prefix(top).ok(),
    };
    rest(path, at).or_else(|| path.strip_prefix(top).ok())
}

/// Cuts a path at its last separator; `None` if its end contains dots or otherwise needs parsing by
/// `Path`.
fn cut(path: &Path) -> Option<(&Path, &OsStr)> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'/')?;
    let (above, name) = (&bytes[..at], &bytes[at + 1..]);
    let is_dotted = name.starts_with(b".") || above.ends_with(b".");
    if name.is_empty() || is_dotted || above.ends_with(b"/") {
        return None;
    }
    Some((first(path, at.max(1))?, rest(path, at + 1)?.as_os_str()))
}

#[cfg(unix)]
fn first(path: &Path, length: usize) -> Option<&Path> {
    let bytes = path.as_os_str().as_bytes().get(..length)?;
    Some(Path::new(OsStr::from_bytes(bytes)))
}

#[cfg(unix)]
fn rest(path: &Path, at: usize) -> Option<&Path> {
    let bytes = path.as_os_str().as_bytes().get(at..)?;
    Some(Path::new(OsStr::from_bytes(bytes)))
}

#[cfg(not(unix))]
fn first(_: &Path, _: usize) -> Option<&Path> {
    None
}

#[cfg(not(unix))]
fn rest(_: &Path, _: usize) -> Option<&Path> {
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::{above, below, name, upwards};
    use crate::package::reference::normalize;

    proptest! {
        #[test]
        fn answers_are_those_of_the_standard_library(
            parts in prop::collection::vec(prop::sample::select(PARTS.as_slice()), 0..8),
            others in prop::collection::vec(prop::sample::select(PARTS.as_slice()), 0..4),
        ) {
            let text = parts.concat();
            let path = Path::new(&text);
            let text_of = |path: Option<&Path>| path.map(|path| path.as_os_str().to_owned());
            prop_assert_eq!(above(path), path.parent(), "{}", text);
            prop_assert_eq!(name(path), path.file_name().and_then(|name| name.to_str()), "{}", text);
            prop_assert!(upwards(path).eq(path.ancestors()), "{}", text);
            let path = normalize(path);
            let plain = normalize(Path::new(&others.concat()));
            for top in path.ancestors().chain([plain.as_path()]) {
                let rest = path.strip_prefix(top).ok();
                prop_assert_eq!(text_of(below(&path, top)), text_of(rest), "{:?} {:?}", path, top);
            }
        }
    }

    const PARTS: [&str; 9] = ["/", "/", "a", "b", ".", "..", "ab", ".git", "é"];
}
