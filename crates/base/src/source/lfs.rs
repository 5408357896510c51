//! Git LFS pointer files: the short text that stands for a large file in a clone without LFS.
//!
//! Format: <https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md>. Lines of `key value`, the
//! first one `version`, then `oid sha256:<hex>` and `size <bytes>`, all in less than 1024 bytes.

/// Maximum size of a pointer file, in bytes.
pub const MAX_POINTER_SIZE: u64 = 1024;

/// The content of a pointer file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// The object id, `sha256:<hex>`.
    pub oid: String,
    /// Size of the real file in bytes.
    pub size: u64,
}

impl Pointer {
    /// Parses a pointer; returns `None` for anything else.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() as u64 > MAX_POINTER_SIZE {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let version = lines.next()?.strip_prefix("version ")?;
        if !version.contains("git-lfs") && !version.contains("hawser") {
            return None;
        }
        let mut oid = None;
        let mut size = None;
        for line in lines {
            match line.split_once(' ') {
                Some(("oid", value)) => oid = Some(value.trim().to_owned()),
                Some(("size", value)) => size = value.trim().parse().ok(),
                _ => {}
            }
        }
        Some(Self {
            oid: oid?,
            size: size?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_pointer_and_nothing_else() {
        let text = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        let pointer = Pointer::parse(text).expect("a pointer");
        assert_eq!((pointer.oid.as_str(), pointer.size), ("sha256:4d7a", 12345));
        assert_eq!(Pointer::parse(b"version 2\noid x\nsize 1\n"), None);
        assert_eq!(Pointer::parse(b"{}"), None);
        assert_eq!(Pointer::parse(&[0xff; 40]), None);
    }
}
