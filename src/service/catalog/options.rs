//! What a catalog is made of, and what it leaves out.

use std::path::PathBuf;
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
