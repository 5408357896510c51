//! What a catalog is made of, and what it leaves out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::ServiceSettings;
use super::super::engine::Engines;
use crate::account::AccountId;

/// A directory of packages and whose services they become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageDirectory {
    /// The directory.
    pub path: PathBuf,
    /// The publisher's account.
    pub owner: AccountId,
    /// Its name.
    pub owner_name: String,
    /// Whether services are named by their packages' folders, not by their configs: a derived service's name may have
    /// characters that no model token has.
    pub named_by_folders: bool,
    /// Variants whose files are not there since nobody wants them: the config's path in the directory,
    /// places in `variants`. They are not served, and nothing is wrong with them.
    pub left_out: Vec<(PathBuf, Vec<usize>)>,
}

impl PackageDirectory {
    /// The variants of a config that are left out. Its path may be from the working directory.
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

/// Gives the lasting number of an account's service of this name, or says why there is none now.
pub type Numbering = Box<dyn Fn(AccountId, &str) -> Result<i64, String> + Send + Sync>;

/// Gives the settings of a service by its owner's name and its own.
pub type SettingsOf = Box<dyn Fn(&str, &str) -> ServiceSettings + Send + Sync>;

/// What a catalog is made of.
pub struct CatalogOptions {
    /// Where packages are.
    pub directories: Vec<PackageDirectory>,
    /// Settings of services.
    pub settings: SettingsOf,
    /// The lasting number of a service.
    pub number: Numbering,
    /// Where sessions come from.
    pub engines: Arc<Engines>,
}

/// A package that is not served, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// The package's directory or config.
    pub path: PathBuf,
    /// Why, in a line for each finding.
    pub reason: String,
}
