//! Published packages in a running gateway: their copies, and tasks of services that only other servers have.

use std::sync::Arc;
use std::time::Duration;

use super::super::exit::Failure;
use pkgtool_serve::gateway::settings::GatewaySettings;
use pkgtool_serve::package::{MirrorOptions, PackageMirror, PackageObjects, PublishError};
use pkgtool_serve::service::PackageDirectory;
use pkgtool_serve::task::{AbsentServices, Blobs, Stores, TaskStore};
use pkgtool_serve::train::results_directory;

/// Folder of the copies in the data directory.
const COPIES: &str = "packages";

/// How long a task waits for a server that has its service.
const ABSENCE_PATIENCE: Duration = Duration::from_mins(2);

/// Opens the copies of the packages that all servers of the database serve, if they share objects, and fetches what is
/// new. Returns the directories to serve, too.
pub(super) async fn open(
    stores: &Stores,
    blobs: &Blobs,
    settings: &GatewaySettings,
) -> Result<(Option<Arc<PackageMirror>>, Vec<PackageDirectory>), Failure> {
    let (Some(packages), Some(bucket)) = (stores.packages(), blobs.bucket()) else {
        return Ok((None, Vec::new()));
    };
    let directory = &settings.data_dir;
    let mirror = PackageMirror::open(MirrorOptions {
        packages,
        objects: PackageObjects::in_storage(bucket),
        directory: directory.join(COPIES),
        trained: results_directory(directory),
        least_free_bytes: settings.limits.disk_free_bytes,
    })?;
    let directories = mirror.look().await?.directories;
    Ok((Some(Arc::new(mirror)), directories))
}

/// Returns the set of services that this server does not have, for a store that other servers may share.
pub(super) fn absent_services(store: &dyn TaskStore) -> AbsentServices {
    if store.news().is_some() {
        AbsentServices::left_to_others(ABSENCE_PATIENCE)
    } else {
        AbsentServices::default()
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        Self::Other(error.to_string())
    }
}
