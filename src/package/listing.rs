//! What stands in one directory, for a file there that no walk met: one look at the directory instead of
//! one for each name that matters.
//!
//! Invariant: at most `MAX_ENTRIES` names are looked at; a directory that has more, or that cannot be
//! listed whole, has no listing, and the disk is asked for each name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::sieve::SETTINGS_FILE;
use super::{card, model_file, precision, steps};

/// Names that say something of the directory in which they stand.
pub(super) const MARKS: [&str; 6] = [
    ".git",
    ".gitattributes",
    ".cache",
    precision::FILE_NAME,
    SETTINGS_FILE,
    card::FILE_NAME,
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
    marks: Marks,
    models: Vec<String>,
    /// Of the directory above.
    above: Option<Marks>,
}

/// Which of the names that say something of a directory are in it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marks(u8);

impl Listing {
    /// Lists `directory`, which is `absolute` from the file system's root.
    pub fn read(directory: &Path, absolute: &Path) -> Option<Self> {
        let (mut marks, mut models) = (Marks::default(), Vec::new());
        let is_whole = each_name(directory, MAX_ENTRIES, |name| {
            if !marks.take(name)
                && let Some(name) = name.to_str()
                && model_file::has_extension(name)
            {
                models.push(name.to_owned());
            }
        })?;
        is_whole.then(|| Self {
            directory: absolute.to_owned(),
            marks,
            models,
            above: None,
        })
    }

    /// The same with what is known of the directory above.
    #[must_use]
    pub fn with_above(self, above: Option<Marks>) -> Self {
        Self { above, ..self }
    }

    /// Whether something of the name of a mark is in the absolute `directory`; `None` if it was not listed.
    pub(super) fn has(&self, directory: &Path, mark: &str) -> Option<bool> {
        self.of(directory).map(|marks| marks.has(mark))
    }

    /// The marks in the absolute `directory`, if it was listed.
    pub(super) fn of(&self, directory: &Path) -> Option<Marks> {
        let is = |one: &Path| one.as_os_str() == directory.as_os_str();
        if is(&self.directory) {
            return Some(self.marks);
        }
        self.above
            .filter(|_| steps::above(&self.directory).is_some_and(is))
    }

    /// Names of the model files, in no order.
    pub(super) fn models(&self) -> &[String] {
        &self.models
    }
}

impl Marks {
    /// Those in a directory that is of interest for nothing else: only if it has few entries, or to ask for each name
    /// costs less.
    pub fn read(directory: &Path) -> Option<Self> {
        let mut marks = Self::default();
        let is_whole = each_name(directory, MAX_SHORT, |name| {
            marks.take(name);
        })?;
        is_whole.then_some(marks)
    }

    /// Whether a name is a mark, which it is then known to be there.
    fn take(&mut self, name: &OsStr) -> bool {
        let at = MARKS.iter().position(|mark| name == *mark);
        self.0 |= at.map_or(0, |at| 1 << at);
        at.is_some()
    }

    fn has(self, mark: &str) -> bool {
        let at = MARKS.iter().position(|known| *known == mark);
        at.is_some_and(|at| self.0 >> at & 1 == 1)
    }
}

/// A directory as the system takes it, to which no path means nothing.
fn named(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
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
    let opened = openat(CWD, named(directory), flags, Mode::empty()).ok()?;
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
    for (count, entry) in std::fs::read_dir(named(directory)).ok()?.enumerate() {
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
