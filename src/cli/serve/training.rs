//! Training in a running gateway: the directory of the results, access to datasets, and services
//! that are not trained yet.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::exit::Failure;
use pkgtool_serve::gateway::settings::GatewaySettings;
use pkgtool_serve::service::engine::Engines;
use pkgtool_serve::service::{Listed, Service, ServiceKind, ServiceSettings, Untrained};
use pkgtool_serve::task::{Blobs, FileKind};
use pkgtool_serve::train::{Dataset, DerivedServices, Jobs, JobsOptions, OpenDataset};

/// Returns the settings of a service. They were checked under each of its names.
pub(super) fn service_settings(
    settings: &GatewaySettings,
    derived: &DerivedServices,
    owner: &str,
    name: &str,
) -> ServiceSettings {
    let mut of = settings.service(owner, name).unwrap_or_default();
    if of.listed == Listed::Auto && derived.is_hidden(owner, name) {
        of.listed = Listed::No;
    }
    of
}

/// Returns the derived services in the form they have until they are trained.
pub(super) fn untrained_services(
    settings: &GatewaySettings,
    derived: &DerivedServices,
    engines: &Engines,
) -> Result<Vec<Service>, Failure> {
    let services = derived.all().into_iter().map(|it| {
        let of = &it.is;
        settings
            .service(&of.owner_name, &of.name)
            .map_err(|error| Failure::Other(error.to_string()))?;
        Ok(Service {
            id: of.service,
            owner: of.owner,
            owner_name: of.owner_name.clone(),
            name: of.name.clone(),
            settings: service_settings(settings, derived, &of.owner_name, &of.name),
            meter: engines.meters().of(&of.owner_name, &of.name),
            kind: ServiceKind::Untrained(Arc::new(Untrained {
                base_owner: of.base_owner,
                base: of.base,
                since: it.created_at,
            })),
        })
    });
    services.collect()
}

/// Returns a function that opens datasets in the blob store.
pub(super) fn dataset_opener(blobs: &Arc<Blobs>) -> OpenDataset {
    let blobs = Arc::clone(blobs);
    Box::new(move |dataset: Dataset| {
        let blobs = Arc::clone(&blobs);
        Box::pin(async move {
            let of = &dataset.is;
            let opened = blobs.open_file(&of.blob, of.size, of.sha256).await;
            opened.map_err(|error| format!("cannot read the dataset: {error}"))
        })
    })
}

/// Removes incomplete uploads and starts the training jobs.
pub(super) async fn jobs(options: JobsOptions, blobs: &Blobs) -> Result<Arc<Jobs>, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let datasets = options.store.datasets(None).await;
    let datasets = datasets.map_err(|error| other(&error))?;
    let known: HashSet<String> = datasets.into_iter().map(|it| it.is.blob).collect();
    blobs.sweep_files(FileKind::Dataset, &known).await;
    Jobs::start(options).await.map_err(|error| other(&error))
}
