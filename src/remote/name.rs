//! Names that a server gives to files, and which of them may become paths here.
//!
//! Invariant: a name that passes is one or more plain segments: no `..`, nothing absolute, no control
//! character, no separator of any system, and nothing that would become this tool's or git's own.

/// Longest segment, in bytes: what file systems take.
const MAX_SEGMENT: usize = 255;
/// Longest path, in bytes.
const MAX_PATH: usize = 1024;
/// Segments that no package has, and that would do harm in a directory of the user.
const TAKEN: [&str; 2] = [".git", ".pkgtool"];

/// Whether a relative path with `/` between its segments may be one here.
pub(super) fn is_safe(path: &str) -> bool {
    path.len() <= MAX_PATH && path.split('/').all(is_safe_segment)
}

/// Whether a single name may be a file's or folder's.
pub(super) fn is_safe_segment(name: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
    let is_system = cfg!(windows) && name.contains([':', '*', '?', '"', '<', '>', '|']);
    !name.is_empty()
        && name.len() <= MAX_SEGMENT
        && name != "."
        && name != ".."
        && name.chars().all(is_plain)
        && !is_system
        && !TAKEN.iter().any(|taken| name.eq_ignore_ascii_case(taken))
}

/// A name from a URL, `%20` and the like undone; `None` if that is no UTF-8.
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
