//! Atomic replacement of a text file.
//!
//! Invariant: a reader of the path sees either the old or the new text, even after a crash or power
//! failure.

use std::fs;
use std::io;
use std::path::Path;

use pkgtool_base::source::{bounds, replace};

/// The treatment of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Replace it. A symbolic link to a file of the package is followed and stays a link.
    Replace,
    /// Replace it only if it is empty.
    Keep,
}

/// Writes `text` to `path`.
pub fn replace(path: &Path, text: &str, existing: Existing) -> io::Result<()> {
    let target = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_symlink() => bounds::real(path)?,
        _ => path.to_owned(),
    };
    replace::replace(&target, text.as_bytes(), || {
        let taken = fs::metadata(&target).is_ok_and(|there| there.len() > 0);
        if existing == Existing::Keep && taken {
            let reason = "a file was created there in the meantime";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::{Existing, replace};
    use std::fs;

    #[test]
    fn a_text_is_there_whole_or_not_at_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config.json");
        replace(&path, "one", Existing::Keep).expect("nothing is there");
        assert!(replace(&path, "two", Existing::Keep).is_err());
        assert_eq!(fs::read_to_string(&path).expect("a text"), "one");
        replace(&path, "two", Existing::Replace).expect("it may");
        assert_eq!(fs::read_to_string(&path).expect("a text"), "two");
        fs::write(&path, "").expect("an empty file");
        replace(&path, "three", Existing::Keep).expect("there is nothing to lose");
        let names = fs::read_dir(directory.path()).expect("a directory").count();
        assert_eq!(names, 1, "nothing is left beside it");
        let nowhere = directory.path().join("no/config.json");
        assert!(replace(&nowhere, "one", Existing::Keep).is_err());
    }
}
