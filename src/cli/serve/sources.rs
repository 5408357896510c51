//! Packages on servers that `pkgtool serve` is given as addresses.
//!
//! They are downloaded into copies in the data directory before the gateway listens. If a server
//! cannot be reached, the copy of an earlier start is served.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use super::super::exit::Failure;
use super::super::{far, pull};
use super::places::{MirrorPlaces, PackageLocation};
use pkgtool_base::package::Backend;
use pkgtool_remote::cache::{Cache, CachedCopy, CopyState};
use pkgtool_remote::pull::PullOptions;
use pkgtool_remote::{self as remote, Address, RemoteError};
use pkgtool_serve::gateway::settings::GatewaySettings;

/// Folder of the copies in the data directory.
const SOURCES_FOLDER: &str = "sources";
/// Number of files to download in parallel.
const PARALLEL_DOWNLOADS: usize = 4;

/// Options for downloading packages from servers.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Packages on servers")]
pub(super) struct SourceArgs {
    /// Download only packages for this backend; may be given several times
    #[arg(long = "backend", value_name = "NAME", value_parser = pull::backend)]
    backends: Vec<Backend>,

    /// Download only variants of this precision; may be given several times
    #[arg(long = "precision", value_name = "TOKEN")]
    precisions: Vec<String>,

    #[command(flatten)]
    far: far::FarArgs,
}

/// The addresses among the packages to serve.
pub(super) struct PackageSources {
    addresses: Vec<(OsString, Address)>,
    wish: PullOptions,
    settings: remote::RemoteSettings,
}

impl SourceArgs {
    /// Overrides the settings with these options.
    pub(super) fn apply(&self, settings: &mut GatewaySettings) {
        if !self.backends.is_empty() {
            let backends = self.backends.iter();
            settings.sources.backends = backends.map(|it| it.name().to_owned()).collect();
        }
        if !self.precisions.is_empty() {
            settings.sources.precisions.clone_from(&self.precisions);
        }
    }
}

impl PackageSources {
    /// Finds the addresses in the settings. Returns an error if an address or a setting about
    /// sources is invalid.
    pub(super) fn of(settings: &GatewaySettings, args: &SourceArgs) -> Result<Self, Failure> {
        let publishers = settings.publishers.iter();
        let named = publishers.flat_map(|publisher| &publisher.packages);
        let mut addresses = Vec::new();
        for path in settings.packages.iter().chain(named) {
            if let Some(text) = path.to_str().filter(|text| Address::is_one(text)) {
                let address = Address::parse(text).map_err(far::remote_failure)?;
                addresses.push((path.clone().into_os_string(), address));
            }
        }
        let backends = settings.sources.backends.iter();
        let backends: Result<_, String> = backends.map(|name| pull::backend(name)).collect();
        let wish = PullOptions {
            backends: backends
                .map_err(|reason| Failure::Other(format!("`sources.backends`: {reason}")))?,
            precisions: settings.sources.precisions.clone(),
            jobs: PARALLEL_DOWNLOADS,
            ..PullOptions::default()
        };
        Ok(Self {
            addresses,
            wish,
            settings: args.far.download(),
        })
    }

    /// Returns whether all packages are local directories.
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Downloads changes of all sources. If a server cannot be reached, the copy of an earlier
    /// start is used. The caller must hold the lock of the data directory.
    pub(super) fn fetch(&self, data_dir: &Path) -> Result<MirrorPlaces, Failure> {
        let mut places = BTreeMap::new();
        let folder = data_dir.join(SOURCES_FOLDER);
        let mut cache = Cache::new(folder, self.settings.clone(), self.wish.clone());
        let now = SystemTime::now();
        for (named, address) in &self.addresses {
            let (source, into) = (address.shown(), cache.place(address));
            tracing::info!(source, into = %into.display(), "checking a source for changes");
            let kept = pull::with_bar(true, |progress| cache.renew(address, now, progress));
            let kept = kept.map_err(|error| failure(&source, &into, &error))?;
            log_outcome(&source, &kept);
            let place = PackageLocation {
                directory: kept.directory,
                left_out: kept.left_out,
            };
            places.insert(named.clone(), place);
        }
        // A copy that cannot be removed only takes disk space.
        match cache.sweep(now) {
            Ok(removed) => {
                for source in removed {
                    tracing::info!(
                        source,
                        "removed the copy of a source that is no longer served"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "cannot remove the old copy of a source"),
        }
        Ok(MirrorPlaces::new(places))
    }
}

fn log_outcome(source: &str, kept: &CachedCopy) {
    let directory = kept.directory.display();
    match &kept.state {
        CopyState::Fetched { files, bytes } => {
            tracing::info!(source, %directory, files, bytes, "source downloaded");
        }
        CopyState::Same => tracing::info!(source, %directory, "source unchanged"),
        CopyState::Earlier(error) => tracing::warn!(
            source, %directory, %error,
            "cannot update a source; serving its existing copy"
        ),
    }
}

fn failure(source: &str, place: &Path, error: &RemoteError) -> Failure {
    let message = format!(
        "cannot serve {source}: {error}; there is no complete copy of it in {}. Fix the cause and start \
         again, which resumes the download, or give a directory instead",
        place.display()
    );
    match error {
        RemoteError::Nothing { .. } => Failure::Nothing(message),
        _ => Failure::Other(message),
    }
}
