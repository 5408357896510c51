//! Maps the packages in the settings to local directories: the directory itself, or the copy of an
//! address.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Local directories by the address they replace.
#[derive(Debug, Default)]
pub(super) struct MirrorPlaces(BTreeMap<OsString, PackageLocation>);

/// A directory of packages.
#[derive(Debug, Clone)]
pub(super) struct PackageLocation {
    /// The directory.
    pub(super) directory: PathBuf,
    /// Variants that were not downloaded: the config's path in the directory, and the indices in
    /// `variants`.
    pub(super) left_out: Vec<(PathBuf, Vec<usize>)>,
}

impl MirrorPlaces {
    /// Creates the map.
    pub(super) fn new(places: BTreeMap<OsString, PackageLocation>) -> Self {
        Self(places)
    }

    /// Returns the local directory of a package in the settings.
    pub(super) fn of(&self, named: &Path) -> PackageLocation {
        // Compare texts, not paths: two addresses may differ only by a final `/`.
        self.0
            .get(named.as_os_str())
            .cloned()
            .unwrap_or(PackageLocation {
                directory: named.to_owned(),
                left_out: Vec::new(),
            })
    }
}
