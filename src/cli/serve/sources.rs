//! Packages on servers that are served: fetched before the gateway listens, into copies in its data
//! directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use super::super::exit::Failure;
use super::super::{far, pull};
use super::places::{Place, Places};
use crate::gateway::settings::Settings;
use crate::package::Backend;
use crate::remote::cache::{Cache, Kept, State};
use crate::remote::pull::Wish;
use crate::remote::{self, Address, RemoteError};

/// The folder of the copies in the data directory.
const FOLDER: &str = "sources";
/// Files fetched at once.
const JOBS: usize = 4;

/// How packages on servers are fetched.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Packages on servers")]
pub(super) struct SourceArgs {
    /// Fetch only packages for this backend; may be given several times
    #[arg(long = "backend", value_name = "NAME", value_parser = pull::backend)]
    backends: Vec<Backend>,

    /// Fetch only variants of this precision; may be given several times
    #[arg(long = "precision", value_name = "TOKEN")]
    precisions: Vec<String>,

    #[command(flatten)]
    far: far::FarArgs,
}

/// The addresses among the packages that are to be served.
pub(super) struct Sources {
    addresses: Vec<(OsString, Address)>,
    wish: Wish,
    settings: remote::Settings,
}

impl SourceArgs {
    /// Puts what was said over the settings.
    pub(super) fn apply(&self, settings: &mut Settings) {
        if !self.backends.is_empty() {
            let backends = self.backends.iter();
            settings.sources.backends = backends.map(|it| it.name().to_owned()).collect();
        }
        if !self.precisions.is_empty() {
            settings.sources.precisions.clone_from(&self.precisions);
        }
    }
}

impl Sources {
    /// Finds them; an error if one cannot be an address, or a setting cannot be meant.
    pub(super) fn of(settings: &Settings, args: &SourceArgs) -> Result<Self, Failure> {
        let publishers = settings.publishers.iter();
        let named = publishers.flat_map(|publisher| &publisher.packages);
        let mut addresses = Vec::new();
        for path in settings.packages.iter().chain(named) {
            if let Some(text) = path.to_str().filter(|text| Address::is_one(text)) {
                let address = Address::parse(text).map_err(far::failure)?;
                addresses.push((path.clone().into_os_string(), address));
            }
        }
        let backends = settings.sources.backends.iter();
        let backends: Result<_, String> = backends.map(|name| pull::backend(name)).collect();
        let wish = Wish {
            backends: backends
                .map_err(|reason| Failure::Other(format!("`sources.backends`: {reason}")))?,
            precisions: settings.sources.precisions.clone(),
            jobs: JOBS,
            ..Wish::default()
        };
        Ok(Self {
            addresses,
            wish,
            settings: args.far.download(),
        })
    }

    /// Whether all packages are in directories.
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Fetches what is new of them. Where a server cannot be asked, the copy of an earlier start is taken.
    /// Whoever calls this has the lock of the data directory.
    pub(super) fn fetch(&self, data_dir: &Path) -> Result<Places, Failure> {
        let mut places = BTreeMap::new();
        let folder = data_dir.join(FOLDER);
        let mut cache = Cache::new(folder, self.settings.clone(), self.wish.clone());
        let now = SystemTime::now();
        for (named, address) in &self.addresses {
            let (source, into) = (address.shown(), cache.place(address));
            tracing::info!(source, into = %into.display(), "asking for what is new of a source");
            let kept = pull::with_bar(true, |progress| cache.renew(address, now, progress));
            let kept = kept.map_err(|error| failure(&source, &into, &error))?;
            tell(&source, &kept);
            let place = Place {
                directory: kept.directory,
                left_out: kept.left_out,
            };
            places.insert(named.clone(), place);
        }
        // What cannot be removed takes room, and is in nobody's way.
        match cache.sweep(now) {
            Ok(removed) => {
                for source in removed {
                    tracing::info!(
                        source,
                        "the copy of a source that is not served any more was removed"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "an old copy of a source could not be removed"),
        }
        Ok(Places::new(places))
    }
}

fn tell(source: &str, kept: &Kept) {
    let directory = kept.directory.display();
    match &kept.state {
        State::Fetched { files, bytes } => {
            tracing::info!(source, %directory, files, bytes, "a source was fetched");
        }
        State::Same => tracing::info!(source, %directory, "a source is unchanged"),
        State::Earlier(error) => tracing::warn!(
            source, %directory, %error,
            "a source cannot be renewed: its copy is served as it was fetched before"
        ),
    }
}

fn failure(source: &str, place: &Path, error: &RemoteError) -> Failure {
    let message = format!(
        "{source} cannot be served: {error}; and no whole copy of it is in {}. Start again when that is put \
         right: what was fetched is gone on with; or name a directory",
        place.display()
    );
    match error {
        RemoteError::Nothing { .. } => Failure::Nothing(message),
        _ => Failure::Other(message),
    }
}
