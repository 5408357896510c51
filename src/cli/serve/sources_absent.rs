//! Packages on servers, in a build that asks no servers: told, not taken for directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::exit::Failure;
use super::super::far;
use super::places::Places;
use crate::gateway::settings::Settings;

/// No arguments.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SourceArgs {
    #[command(flatten)]
    far: far::FarArgs,
}

/// No addresses.
pub(super) struct Sources {}

impl SourceArgs {
    /// Leaves the settings as they are.
    #[expect(clippy::unused_self, reason = "with servers it has what was said")]
    pub(super) fn apply(&self, _settings: &mut Settings) {}
}

impl Sources {
    /// Fails if there is an address among the packages.
    pub(super) fn of(settings: &Settings, args: &SourceArgs) -> Result<Self, Failure> {
        let publishers = settings.publishers.iter();
        let named = publishers.flat_map(|publisher| &publisher.packages);
        let all: Vec<PathBuf> = settings.packages.iter().chain(named).cloned().collect();
        far::open(&all, &args.far, true)?;
        Ok(Self {})
    }

    /// All packages are in directories.
    #[expect(clippy::unused_self, reason = "with servers it has what was found")]
    pub(super) fn is_empty(&self) -> bool {
        true
    }

    /// Nothing is to be fetched.
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "with servers something is, and can fail"
    )]
    pub(super) fn fetch(&self, _data_dir: &Path) -> Result<Places, Failure> {
        Ok(Places::new(BTreeMap::new()))
    }
}
