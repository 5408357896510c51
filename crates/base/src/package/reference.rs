//! Resolves file references in a config, and rejects references that leave the package.
//!
//! The check is lexical: it considers only the text of a reference and the depth of the config
//! below the package root. Symbolic links do not matter.

use std::path::{Component, Path, PathBuf};

use super::{config, model_file};
use crate::source::normal::is_normal;
pub use crate::source::normal::normalize;

/// The reason why a reference cannot be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// `""`.
    #[error("is empty")]
    Empty,
    /// Only dots: a directory.
    #[error("names a directory, not a file")]
    Dots,
    /// `https://…` and similar.
    #[error("is a URL")]
    Url,
    /// Begins with `/` or a drive letter.
    #[error("is an absolute path")]
    Absolute,
    /// Windows separators.
    #[error("contains a backslash")]
    Backslash,
    /// A NUL character, which no file system supports.
    #[error("contains a NUL character")]
    Nul,
    /// The config that contains the reference.
    #[error("is this config itself")]
    Itself,
    /// More `..` than directories up to the package root.
    #[error("leaves the package root")]
    OutsideRoot,
}

/// Returns the path of the file that `reference` in a config in `directory` leads to.
///
/// `depth` is the number of levels of `directory` below the package root, and so the maximum number
/// of `..`.
pub fn resolve(directory: &Path, depth: usize, reference: &str) -> Result<PathBuf, ReferenceError> {
    if reference.is_empty() {
        return Err(ReferenceError::Empty);
    }
    if is_plain_name(reference) {
        return Ok(beside(directory, reference));
    }
    if reference.contains('\0') {
        return Err(ReferenceError::Nul);
    }
    if is_url(reference) {
        return Err(ReferenceError::Url);
    }
    if reference.starts_with('/') || has_drive(reference) {
        return Err(ReferenceError::Absolute);
    }
    if reference.contains('\\') {
        return Err(ReferenceError::Backslash);
    }
    let mut level = depth;
    let mut named = false;
    for component in Path::new(reference).components() {
        match component {
            Component::ParentDir => {
                level = level.checked_sub(1).ok_or(ReferenceError::OutsideRoot)?;
                named = false;
            }
            Component::Normal(_) => {
                level += 1;
                named = true;
            }
            _ => {}
        }
    }
    // A trailing `/` is valid only for a model that is a directory.
    let is_directory = reference.ends_with('/') && !model_file::is_bundle(reference);
    if !named || is_directory {
        return Err(ReferenceError::Dots);
    }
    let path = normalize(&directory.join(reference));
    let is_config = reference.ends_with(config::FILE_NAME);
    if is_config && path == normalize(&directory.join(config::FILE_NAME)) {
        return Err(ReferenceError::Itself);
    }
    Ok(path)
}

/// Joins a directory and a name with a single allocation.
fn beside(directory: &Path, name: &str) -> PathBuf {
    let mut path = PathBuf::with_capacity(directory.as_os_str().len() + 1 + name.len());
    path.push(directory);
    path.push(name);
    if is_normal(&path) {
        path
    } else {
        normalize(&path)
    }
}

/// Returns whether a reference is obviously the name of a file beside the config, as nearly all
/// are.
fn is_plain_name(reference: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !reference.starts_with('.')
        && !reference.ends_with(config::FILE_NAME)
        && reference.bytes().all(is_plain)
}

fn is_url(reference: &str) -> bool {
    reference.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

fn has_drive(reference: &str) -> bool {
    let bytes = reference.as_bytes();
    bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_normal() {
        for (path, normal) in [
            ("a/b", "a/b"),
            ("/a/b.c", "/a/b.c"),
            ("a/.b", "a/.b"),
            ("./a", "a"),
            ("a//b/", "a/b"),
            ("a/./b/.", "a/b"),
            ("/a/../../b", "/../b"),
            ("../a/..", ".."),
            ("a/..", ""),
            ("/", "/"),
            ("", ""),
        ] {
            let made = normalize(Path::new(path));
            assert_eq!(made.as_os_str(), Path::new(normal).as_os_str(), "{path}");
        }
    }

    #[test]
    fn references_stay_inside_the_root() {
        let at = |reference| resolve(Path::new("repo/1b/xnnpack"), 2, reference);
        assert_eq!(at("m.pte"), Ok(PathBuf::from("repo/1b/xnnpack/m.pte")));
        assert_eq!(
            at("m.mlpackage/"),
            Ok(PathBuf::from("repo/1b/xnnpack/m.mlpackage"))
        );
        assert_eq!(
            at("../config.json"),
            Ok(PathBuf::from("repo/1b/config.json"))
        );
        assert_eq!(at("../../t.json"), Ok(PathBuf::from("repo/t.json")));
        assert_eq!(
            at("./a/../m.pte"),
            Ok(PathBuf::from("repo/1b/xnnpack/m.pte"))
        );
        for (reference, error) in [
            ("", ReferenceError::Empty),
            (".", ReferenceError::Dots),
            ("..", ReferenceError::Dots),
            ("m.pte/", ReferenceError::Dots),
            ("config.json", ReferenceError::Itself),
            ("a/../config.json", ReferenceError::Itself),
            ("../../../t.json", ReferenceError::OutsideRoot),
            ("a/../../../../b", ReferenceError::OutsideRoot),
            ("/etc/passwd", ReferenceError::Absolute),
            ("C:\\m.pte", ReferenceError::Absolute),
            ("..\\m.pte", ReferenceError::Backslash),
            ("https://example.com/m.pte", ReferenceError::Url),
            ("file:///m.pte", ReferenceError::Url),
            ("m\0.pte", ReferenceError::Nul),
        ] {
            assert_eq!(at(reference), Err(error), "{reference:?}");
        }
    }
}
