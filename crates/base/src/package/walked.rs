//! Directory contents recorded during a walk, so that later checks need no further system calls.
//!
//! Invariant: answers cover only directories that were listed: those between a found file and the
//! given directory, or a single listed directory and its parent.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::listing::{DirectoryListing, MARKER_FILES};
use super::sieve::SETTINGS_FILE;
use super::{card, precision};

/// The directory contents that walks recorded.
#[derive(Debug, Default)]
pub struct WalkRecord {
    /// The given directories, as given, with their absolute paths.
    tops: HashMap<OsString, PathBuf>,
    /// Absolute paths of files whose names are marks.
    marks: HashSet<OsString>,
    /// Names of model files by directory; directories are spelled as in the found paths.
    models: HashMap<OsString, Vec<String>>,
}

/// The recorded contents that apply to one file.
#[derive(Debug, Clone, Copy)]
pub struct RecordedDirectories<'a>(RecordSource<'a>);

#[derive(Debug, Clone, Copy)]
enum RecordSource<'a> {
    /// Directories below one that the caller gave.
    Walk {
        top: &'a Path,
        walked: &'a WalkRecord,
    },
    /// A single directory and its parent.
    Listing(&'a DirectoryListing),
}

impl WalkRecord {
    pub(super) fn add_top(&mut self, named: &Path, absolute: PathBuf) {
        self.tops.insert(named.into(), absolute);
    }

    pub(super) fn add_mark(&mut self, absolute: PathBuf) {
        self.marks.insert(absolute.into_os_string());
    }

    pub(super) fn add_models(&mut self, directory: PathBuf, names: Vec<String>) {
        self.models.insert(directory.into_os_string(), names);
    }

    /// Returns the directories with model files, spelled as in the found paths, and the names of
    /// the files.
    pub fn model_directories(&self) -> impl Iterator<Item = (&Path, &[String])> {
        let models = self.models.iter();
        models.map(|(directory, names)| (Path::new(directory), names.as_slice()))
    }

    /// Returns the recorded contents below a given directory; `None` if it was not walked.
    pub fn below(&self, named: &Path) -> Option<RecordedDirectories<'_>> {
        let top = self.tops.get(named.as_os_str())?;
        Some(RecordedDirectories(RecordSource::Walk {
            top,
            walked: self,
        }))
    }
}

impl<'a> RecordedDirectories<'a> {
    /// Wraps a single listing.
    pub fn listed(listing: &'a DirectoryListing) -> Self {
        Self(RecordSource::Listing(listing))
    }

    /// Returns whether the absolute `directory`, and every directory on the way to it, was listed.
    pub fn covers(&self, directory: &Path) -> bool {
        let top = match self.0 {
            RecordSource::Walk { top, .. } => top,
            RecordSource::Listing(listing) => return listing.of(directory).is_some(),
        };
        let [directory, top] = [directory, top].map(|path| path.as_os_str().as_encoded_bytes());
        let rest = directory.strip_prefix(top);
        let is_separator = |byte: &u8| std::path::is_separator(char::from(*byte));
        rest.is_some_and(|rest| {
            rest.first().is_none_or(is_separator) || top.last().is_some_and(is_separator)
        })
    }

    /// Returns whether the absolute `directory` contains this mark; `None` if that was not
    /// recorded.
    pub(super) fn has(&self, directory: &Path, mark: &str) -> Option<bool> {
        match self.0 {
            RecordSource::Walk { walked, .. } => self.covers(directory).then(|| {
                let marks = &walked.marks;
                !marks.is_empty() && marks.contains(directory.join(mark).as_os_str())
            }),
            RecordSource::Listing(listing) => listing.has(directory, mark),
        }
    }

    /// Returns whether the absolute `directory` contains a precision list; `None` if that was not
    /// recorded.
    pub fn has_list(&self, directory: &Path) -> Option<bool> {
        self.has(directory, precision::FILE_NAME)
    }

    /// Returns whether the absolute `directory` contains project settings; `None` if that was not
    /// recorded.
    pub fn has_settings(&self, directory: &Path) -> Option<bool> {
        self.has(directory, SETTINGS_FILE)
    }

    /// Returns whether the absolute `directory` contains a model card; `None` if that was not
    /// recorded.
    pub fn has_card(&self, directory: &Path) -> Option<bool> {
        self.has(directory, card::FILE_NAME)
    }

    /// Returns the names of the model files in the directory of a found file.
    pub fn models_in(&self, directory: &Path) -> &'a [String] {
        match self.0 {
            RecordSource::Walk { walked, .. } => {
                let models = walked.models.get(directory.as_os_str());
                models.map_or(&[], Vec::as_slice)
            }
            RecordSource::Listing(listing) => listing.models(),
        }
    }
}

/// Returns whether a file name is recorded as a mark.
pub(super) fn is_mark(name: &OsStr) -> bool {
    MARKER_FILES.iter().any(|mark| name == *mark)
}

pub(super) fn strip_current_dir(path: &Path) -> PathBuf {
    path.strip_prefix(".").unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{DirectoryListing, RecordedDirectories};

    #[test]
    fn a_listing_speaks_of_its_directory_alone() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path();
        for name in ["pkgtool.toml", "m.pte", "config.json", ".gitattributes"] {
            fs::write(directory.join(name), "").expect("written");
        }
        let listing = DirectoryListing::read(directory, Path::new("/p")).expect("a listing");
        let seen = RecordedDirectories::listed(&listing);
        assert_eq!(seen.has_settings(Path::new("/p")), Some(true));
        assert_eq!(seen.has_list(Path::new("/p")), Some(false));
        assert_eq!(seen.has_settings(Path::new("/")), None, "the disk knows");
        assert_eq!(seen.has_list(Path::new("/p/below")), None, "the disk knows");
        assert_eq!(seen.models_in(Path::new("/p")), ["m.pte"]);
    }
}
