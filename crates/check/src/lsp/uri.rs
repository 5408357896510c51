//! Conversion between file URIs (RFC 8089) and paths.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Returns the path of a `file:` URI. Returns `None` for other schemes, other hosts and invalid
/// paths.
pub(super) fn to_path(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let rest = rest.split(['?', '#']).next()?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = decoded(path)?;
    if !path.starts_with('/') || path.contains('\0') {
        return None;
    }
    // On Windows, `/C:/x` means `C:/x`.
    let bytes = path.as_bytes();
    let has_drive = bytes.len() > 2 && bytes[1].is_ascii_alphabetic() && bytes[2] == b':';
    let path = if has_drive && cfg!(windows) {
        &path[1..]
    } else {
        &path
    };
    Some(PathBuf::from(path))
}

/// Returns the `file:` URI of an absolute path, or `None` if the path is not UTF-8.
pub(super) fn from_path(path: &Path) -> Option<String> {
    let text = path.to_str()?.replace(std::path::MAIN_SEPARATOR, "/");
    let mut uri = String::from("file://");
    if !text.starts_with('/') {
        uri.push('/');
    }
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    Some(uri)
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let (digits, tail) = tail.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{from_path, to_path};

    #[test]
    fn paths_come_back() {
        for path in ["/a/b.json", "/with space/é😀%41#?.json", "/"] {
            let uri = from_path(Path::new(path)).expect("UTF-8");
            assert!(uri.is_ascii());
            assert_eq!(to_path(&uri).as_deref(), Some(Path::new(path)));
        }
        for none in [
            "untitled:1",
            "file://host/a",
            "git:/a",
            "file:///%zz",
            "file:///%ff",
            "file:///%00",
            "file:///a%2",
        ] {
            assert_eq!(to_path(none), None, "{none}");
        }
    }
}
