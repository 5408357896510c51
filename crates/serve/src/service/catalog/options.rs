//! Options of a catalog: package directories, settings, numbering and engines.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::ServiceSettings;
use super::super::attached::AttachedServices;
use super::super::engine::Engines;
use crate::account::AccountId;

/// A directory of packages and the account that owns its services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageDirectory {
    /// The directory.
    pub path: PathBuf,
    /// The owner's account.
    pub owner: AccountId,
    /// The owner's name.
    pub owner_name: String,
    /// True if services are named after their packages' folders instead of their configs. Names of
    /// derived services may contain characters that model tokens cannot.
    pub named_by_folders: bool,
    /// Variants whose files were deliberately not downloaded: the config's path in the directory,
    /// and indices into `variants`. They are neither served nor reported as faulty.
    pub left_out: Vec<(PathBuf, Vec<usize>)>,
}

impl PackageDirectory {
    /// Returns the variants of a config that are left out. The config's path may be relative to the
    /// working directory.
    pub(super) fn left_out(&self, config: &Path) -> &[usize] {
        if self.left_out.is_empty() {
            return &[];
        }
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (config, directory) = (real(config), real(&self.path));
        let mut left_out = self.left_out.iter();
        let found = left_out.find(|(below, _)| directory.join(below) == config);
        found.map_or(&[], |(_, places)| places)
    }
}

/// Returns the permanent number of an account's service with this name, or the reason why it cannot
/// get one now.
pub type Numbering = Box<dyn Fn(AccountId, &str) -> Result<i64, String> + Send + Sync>;

/// Returns the settings of a service, by its owner's name and its own.
pub type SettingsOf = Box<dyn Fn(&str, &str) -> ServiceSettings + Send + Sync>;

/// Options of a catalog.
pub struct CatalogOptions {
    /// The package directories.
    pub directories: Vec<PackageDirectory>,
    /// Looks up settings of services.
    pub settings: SettingsOf,
    /// Looks up the permanent number of a service.
    pub number: Numbering,
    /// Engines that run the models.
    pub engines: Arc<Engines>,
    /// Services whose models workers run, if workers can attach.
    pub attached: Option<Arc<AttachedServices>>,
}

/// A package that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// The package's directory or config.
    pub path: PathBuf,
    /// The reason, with one line per finding.
    pub reason: String,
}
