//! The relevant names in one directory, read at once instead of asking the file system for each
//! name.
//!
//! Used for files that no walk found. Invariant: at most `MAX_ENTRIES` names are read. A directory
//! that has more entries, or that cannot be listed completely, gets no listing, and the file system
//! is asked for each name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::sieve::SETTINGS_FILE;
use super::{card, model_file, precision, steps};

/// File names that mark the role of their directory.
pub(super) const MARKER_FILES: [&str; 6] = [
    ".git",
    ".gitattributes",
    ".cache",
    precision::FILE_NAME,
    SETTINGS_FILE,
    card::FILE_NAME,
];

/// Maximum number of entries in a directory that gets a listing.
const MAX_ENTRIES: usize = 10_000;

/// Maximum number of entries in a directory that is listed for its marks alone.
const MAX_MARKER_ENTRIES: usize = 100;

/// Size of the buffer for directory entries, in bytes: enough for hundreds of names.
#[cfg(target_os = "linux")]
const BUFFER_BYTES: usize = 16 * 1024;

/// The relevant names in a directory.
#[derive(Debug)]
pub struct DirectoryListing {
    directory: PathBuf,
    marks: MarkerSet,
    models: Vec<String>,
    /// The marks in the parent directory.
    above: Option<MarkerSet>,
}

/// The set of marks in a directory, as a bit set.
#[derive(Debug, Clone, Copy, Default)]
pub struct MarkerSet(u8);

impl DirectoryListing {
    /// Lists `directory`, whose absolute path is `absolute`.
    pub fn read(directory: &Path, absolute: &Path) -> Option<Self> {
        let (mut marks, mut models) = (MarkerSet::default(), Vec::new());
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

    /// Adds the marks of the parent directory.
    #[must_use]
    pub fn with_above(self, above: Option<MarkerSet>) -> Self {
        Self { above, ..self }
    }

    /// Returns whether the absolute `directory` contains this mark; `None` if it was not listed.
    pub(super) fn has(&self, directory: &Path, mark: &str) -> Option<bool> {
        self.of(directory).map(|marks| marks.has(mark))
    }

    /// Returns the marks in the absolute `directory`, if it was listed.
    pub(super) fn of(&self, directory: &Path) -> Option<MarkerSet> {
        let is = |one: &Path| one.as_os_str() == directory.as_os_str();
        if is(&self.directory) {
            return Some(self.marks);
        }
        self.above
            .filter(|_| steps::above(&self.directory).is_some_and(is))
    }

    /// Returns the names of the model files, in no particular order.
    pub(super) fn models(&self) -> &[String] {
        &self.models
    }
}

impl MarkerSet {
    /// Reads the marks of a directory whose other names are irrelevant. `None` if it has many
    /// entries: asking for each mark is then cheaper.
    pub fn read(directory: &Path) -> Option<Self> {
        let mut marks = Self::default();
        let is_whole = each_name(directory, MAX_MARKER_ENTRIES, |name| {
            marks.take(name);
        })?;
        is_whole.then_some(marks)
    }

    /// Records the name if it is a mark, and returns whether it is.
    fn take(&mut self, name: &OsStr) -> bool {
        let at = MARKER_FILES.iter().position(|mark| name == *mark);
        self.0 |= at.map_or(0, |at| 1 << at);
        at.is_some()
    }

    fn has(self, mark: &str) -> bool {
        let at = MARKER_FILES.iter().position(|known| *known == mark);
        at.is_some_and(|at| self.0 >> at & 1 == 1)
    }
}

/// Returns a path that the system accepts: `.` for an empty one.
fn named(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    }
}

/// Passes each name in a directory to `take`. Returns whether these were all, at most `most`;
/// `None` if the directory cannot be listed.
#[cfg(target_os = "linux")]
fn each_name(directory: &Path, most: usize, mut take: impl FnMut(&OsStr)) -> Option<bool> {
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;

    use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};

    // The standard library would allocate 32 KiB for a listing, and memory for each name.
    let mut room = [MaybeUninit::uninit(); BUFFER_BYTES];
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

/// Portable version of the above.
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
    use super::{DirectoryListing, MAX_ENTRIES};
    use std::fs;
    use std::path::Path;

    #[test]
    fn what_cannot_be_listed_whole_has_no_listing() {
        let scratch = tempfile::tempdir().expect("a directory");
        let read = || DirectoryListing::read(scratch.path(), Path::new("/p"));
        for number in 0..MAX_ENTRIES {
            fs::write(scratch.path().join(number.to_string()), "").expect("written");
        }
        assert!(read().is_some());
        fs::write(scratch.path().join("one more"), "").expect("written");
        assert!(read().is_none());
        let nowhere = scratch.path().join("nowhere");
        assert!(DirectoryListing::read(&nowhere, &nowhere).is_none());
    }
}
