//! Checks which file names from servers may become local paths.
//!
//! Invariant: an accepted path consists of plain segments. It has no `..`, is not absolute, and
//! contains no control characters and no separators of any system. It does not collide with the
//! folders of this tool and of Git.

/// Maximum length of a segment, in bytes, as in common file systems.
const MAX_SEGMENT_BYTES: usize = 255;
/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 1024;
/// Reserved segments. Packages do not need them, and they could do damage in a user's directory.
const RESERVED_SEGMENTS: [&str; 2] = [".git", ".pkgtool"];

/// Returns whether a relative path with `/` as the separator is safe.
pub(super) fn is_safe(path: &str) -> bool {
    path.len() <= MAX_PATH_BYTES && path.split('/').all(is_safe_segment)
}

/// Returns whether a single name of a file or folder is safe.
pub(super) fn is_safe_segment(name: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
    let is_system = cfg!(windows) && name.contains([':', '*', '?', '"', '<', '>', '|']);
    !name.is_empty()
        && name.len() <= MAX_SEGMENT_BYTES
        && name != "."
        && name != ".."
        && name.chars().all(is_plain)
        && !is_system
        && !RESERVED_SEGMENTS
            .iter()
            .any(|taken| name.eq_ignore_ascii_case(taken))
}

/// Decodes percent-encoding in a segment of a URL. Returns `None` if the result is not UTF-8.
pub(super) fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let pair = after.get(..2).filter(|_| first == b'%');
        let digits = pair.filter(|pair| pair.iter().all(u8::is_ascii_hexdigit));
        let hex = digits.and_then(|pair| std::str::from_utf8(pair).ok());
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_pass() {
        for good in [
            "a",
            "a/b.pte",
            "..a",
            "a..",
            "1b/xnnpack/config.json",
            "ü ö",
        ] {
            assert!(is_safe(good), "{good}");
        }
        let long = "x".repeat(256);
        for bad in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "../a",
            "a\\b",
            "a\0b",
            "a\nb",
            ".git/config",
            "a/.GIT/hooks",
            ".pkgtool/lock",
            &long,
        ] {
            assert!(!is_safe(bad), "{bad:?}");
        }
        assert_eq!(decoded("a%20b%2Fc%").as_deref(), Some("a b/c%"));
        assert_eq!(decoded("%FF"), None);
        assert_eq!(decoded("%+1"), Some("%+1".to_owned()));
    }
}
