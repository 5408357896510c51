//! Where the packages are that settings name: directories as they stand there, or what came in place of
//! an address.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Directories in place of addresses.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<OsString, Place>);

/// A directory of packages.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The directory.
    pub(super) directory: PathBuf,
    /// Variants that were not fetched: the config's path in it, places in `variants`.
    pub(super) left_out: Vec<(PathBuf, Vec<usize>)>,
}

impl Places {
    /// What is named so in settings is there.
    pub(super) fn new(places: BTreeMap<OsString, Place>) -> Self {
        Self(places)
    }

    /// Where something is that settings name.
    pub(super) fn of(&self, named: &Path) -> Place {
        // Texts, not paths: addresses differ by a `/` at their end.
        self.0.get(named.as_os_str()).cloned().unwrap_or(Place {
            directory: named.to_owned(),
            left_out: Vec::new(),
        })
    }
}
