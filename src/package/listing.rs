//! What stands in one directory, for a file there that no walk met: one look at the directory instead of
//! one for each name that matters.
//!
//! Invariant: at most `MAX_ENTRIES` names are looked at; a directory that has more, or that cannot be
//! listed whole, has no listing, and the disk is asked for each name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// Most entries of a directory that is listed for a few names.
const MAX_SHORT: usize = 100;

/// Bytes of a listing that are had at once: hundreds of names.
#[cfg(target_os = "linux")]
const ROOM: usize = 16 * 1024;

/// The names in a directory that say something.
#[derive(Debug)]
pub struct Listing {
    directory: PathBuf,
    marks: Vec<&'static str>,
    models: Vec<String>,
    /// Of the directory above.
    above: Option<Arc<Listing>>,
}

impl Listing {
    /// Lists `directory`, which is `absolute` from the file system's root.
    pub fn read(directory: &Path, absolute: &Path) -> Option<Self> {
        Self::bounded(directory, absolute, MAX_ENTRIES)
    }

    /// Lists a directory that is of interest for few names: only if it has few entries, or to ask for each name costs
    /// less.
    pub fn read_short(absolute: &Path) -> Option<Self> {
        Self::bounded(absolute, absolute, MAX_SHORT)
    }

    /// The same with what is known of the directory above.
    #[must_use]
    pub fn with_above(self, above: Option<Arc<Self>>) -> Self {
        Self { above, ..self }
    }

    fn bounded(directory: &Path, absolute: &Path, most: usize) -> Option<Self> {
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        let mut listing = Self {
            directory: absolute.to_owned(),
            marks: Vec::new(),
            models: Vec::new(),
            above: None,
        };
        each_name(directory, most, |name| listing.take(name))?.then_some(listing)
    }

    fn take(&mut self, name: &OsStr) {
        let mut marks = MARKS.into_iter();
        if let Some(mark) = marks.find(|mark| name == *mark) {
            self.marks.push(mark);
        } else if let Some(name) = name.to_str()
            && model_file::has_extension(name)
        {
            self.models.push(name.to_owned());
        }
    }

    /// Whether something of the name of a mark is in the absolute `directory`; `None` if it was not listed.
    pub(super) fn has(&self, directory: &Path, mark: &str) -> Option<bool> {
        self.of(directory)
            .map(|listing| listing.marks.contains(&mark))
    }

    /// The listing of the absolute `directory`.
    pub(super) fn of(&self, directory: &Path) -> Option<&Self> {
        if self.directory.as_os_str() == directory.as_os_str() {
            return Some(self);
        }
        self.above.as_ref()?.of(directory)
    }

    /// Names of the model files, in no order.
    pub(super) fn models(&self) -> &[String] {
        &self.models
    }
}

/// Tells the names in a directory; whether these are all, and not more than `most`. `None` if it cannot be listed.
#[cfg(target_os = "linux")]
fn each_name(directory: &Path, most: usize, mut take: impl FnMut(&OsStr)) -> Option<bool> {
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;

    use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};

    // The standard library takes 32 KiB of memory for a listing, and some for each name.
    let mut room = [MaybeUninit::uninit(); ROOM];
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, directory, flags, Mode::empty()).ok()?;
    let mut entries = RawDir::new(opened, &mut room);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if count == most {
            return Some(false);
        }
        count += 1;
        take(name);
    }
    Some(true)
}

/// The same where the system has no other way.
#[cfg(not(target_os = "linux"))]
fn each_name(directory: &Path, most: usize, mut take: impl FnMut(&OsStr)) -> Option<bool> {
    for (count, entry) in std::fs::read_dir(directory).ok()?.enumerate() {
        let name = entry.ok()?.file_name();
        if count == most {
            return Some(false);
        }
        take(&name);
    }
    Some(true)
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
