//! Rejects addresses of packages in builds without the feature `remote`. Replaces the module
//! `sources` there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::exit::Failure;
use super::super::far;
use super::places::MirrorPlaces;
use pkgtool_serve::gateway::settings::GatewaySettings;

/// Takes no arguments.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SourceArgs {
    #[command(flatten)]
    far: far::FarArgs,
}

/// Has no addresses.
pub(super) struct PackageSources {}

impl SourceArgs {
    /// Leaves the settings unchanged.
    #[expect(
        clippy::unused_self,
        reason = "with the feature `remote` it uses the options"
    )]
    pub(super) fn apply(&self, _settings: &mut GatewaySettings) {}
}

impl PackageSources {
    /// Returns an error if one of the packages is an address.
    pub(super) fn of(settings: &GatewaySettings, args: &SourceArgs) -> Result<Self, Failure> {
        let publishers = settings.publishers.iter();
        let named = publishers.flat_map(|publisher| &publisher.packages);
        let all: Vec<PathBuf> = settings.packages.iter().chain(named).cloned().collect();
        far::open(&all, &args.far, true)?;
        Ok(Self {})
    }

    /// Always true: all packages are local directories.
    #[expect(
        clippy::unused_self,
        reason = "with the feature `remote` it uses the addresses"
    )]
    pub(super) fn is_empty(&self) -> bool {
        true
    }

    /// Downloads nothing.
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "with the feature `remote` it downloads, which can fail"
    )]
    pub(super) fn fetch(&self, _data_dir: &Path) -> Result<MirrorPlaces, Failure> {
        Ok(MirrorPlaces::new(BTreeMap::new()))
    }
}
