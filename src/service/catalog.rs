//! The services of a server, kept in step with the packages' directories.
//!
//! Invariant: readers see a whole service or none; a service is replaced only by one whose package
//! was validated and did not change meanwhile.

use std::path::PathBuf;
use std::sync::Arc;

use super::engine::Engines;
use super::{Service, ServiceSettings};
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

/// What a catalog is made of.
pub struct CatalogOptions {
    /// Where packages are.
    pub directories: Vec<PackageDirectory>,
    /// Settings of a service by its name.
    pub settings: Box<dyn Fn(&str) -> ServiceSettings + Send + Sync>,
    /// The lasting number of a service.
    pub number: Box<dyn Fn(AccountId, &str) -> Result<i64, String> + Send + Sync>,
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

/// The services of a server.
pub struct Catalog {}

impl Catalog {
    /// Reads the directories once and watches them from then on.
    pub fn start(options: CatalogOptions) -> Result<Arc<Self>, String> {
        unimplemented!()
    }

    /// The service of this name or number.
    pub fn find(&self, owner: AccountId, model: &str) -> Option<Arc<Service>> {
        unimplemented!()
    }

    /// All services, in the order of owner and name.
    pub fn all(&self) -> Arc<Vec<Arc<Service>>> {
        unimplemented!()
    }

    /// Packages that are there but not served.
    pub fn unserved(&self) -> Arc<Vec<Unserved>> {
        unimplemented!()
    }

    /// Ends all sessions; what runs is let end.
    pub async fn stop(&self) {
        unimplemented!()
    }
}
