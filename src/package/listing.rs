//! What stands in one directory, for a file there that no walk met: one look at the directory instead of
//! one for each name that matters.
//!
//! Invariant: at most `MAX_ENTRIES` names are looked at; a directory that has more, or that cannot be
//! listed whole, has no listing, and the disk is asked for each name.

use std::fs;
use std::path::{Path, PathBuf};

use super::sieve::SETTINGS_FILE;
use super::{model_file, precision};

/// Names that say something of the directory in which they stand.
pub(super) const MARKS: [&str; 5] = [
    ".git",
    ".gitattributes",
    ".cache",
    precision::FILE_NAME,
    SETTINGS_FILE,
];

/// Most entries of a directory that has a listing.
const MAX_ENTRIES: usize = 10_000;

/// The names in a directory that say something.
#[derive(Debug)]
pub struct Listing {
    directory: PathBuf,
    marks: Vec<&'static str>,
    models: Vec<String>,
}

impl Listing {
    /// Lists `directory`, which is `absolute` from the file system's root.
    pub fn read(directory: &Path, absolute: &Path) -> Option<Self> {
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        let mut listing = Self {
            directory: absolute.to_owned(),
            marks: Vec::new(),
            models: Vec::new(),
        };
        for (count, entry) in fs::read_dir(directory).ok()?.enumerate() {
            if count == MAX_ENTRIES {
                return None;
            }
            let name = entry.ok()?.file_name();
            let mut marks = MARKS.into_iter();
            if let Some(mark) = marks.find(|mark| name == **mark) {
                listing.marks.push(mark);
            } else if name.to_str().is_some_and(model_file::has_extension) {
                listing.models.extend(name.into_string());
            }
        }
        Some(listing)
    }

    /// Whether it is of the absolute `directory`.
    pub(super) fn is_of(&self, directory: &Path) -> bool {
        self.directory.as_os_str() == directory.as_os_str()
    }

    /// Whether something of the name of a mark is there.
    pub(super) fn has(&self, mark: &str) -> bool {
        self.marks.contains(&mark)
    }

    /// Names of the model files, in no order.
    pub(super) fn models(&self) -> &[String] {
        &self.models
    }
}

#[cfg(test)]
mod tests {
    use super::{Listing, MAX_ENTRIES};
    use std::fs;
    use std::path::Path;

    #[test]
    fn what_cannot_be_listed_whole_has_no_listing() {
        let scratch = tempfile::tempdir().expect("a directory");
        let read = || Listing::read(scratch.path(), Path::new("/p"));
        for number in 0..MAX_ENTRIES {
            fs::write(scratch.path().join(number.to_string()), "").expect("written");
        }
        assert!(read().is_some());
        fs::write(scratch.path().join("one more"), "").expect("written");
        assert!(read().is_none());
        let nowhere = scratch.path().join("nowhere");
        assert!(Listing::read(&nowhere, &nowhere).is_none());
    }
}
