//! Workers in a running gateway: their services, and the listener that they attach to.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::exit::Failure;
use super::training::service_settings;
use pkgtool_serve::account::{AccountStore, Directory};
use pkgtool_serve::gateway::settings::GatewaySettings;
use pkgtool_serve::gateway::{BoundGate, Deadline, ServerCertificate, Services};
use pkgtool_serve::service::engine::Engines;
use pkgtool_serve::service::{AttachedServices, Service};
use pkgtool_serve::train::DerivedServices;
use pkgtool_serve::worker::{Workers, WorkersOptions};

/// Reads the tokens of workers, and adds their services.
pub(super) async fn start(
    current: &Arc<ArcSwap<GatewaySettings>>,
    (directory, store, attached): (
        &Arc<Directory>,
        &Arc<dyn AccountStore>,
        Arc<AttachedServices>,
    ),
    (services, engines, derived): (&Arc<Services>, &Arc<Engines>, &Arc<DerivedServices>),
) -> Result<Arc<Workers>, Failure> {
    let settings = current.load_full();
    let (current, engines) = (Arc::clone(current), Arc::clone(engines));
    let (derived, publishing) = (Arc::clone(derived), Arc::clone(services));
    let (provided, placed) = (Arc::clone(services), Arc::clone(services));
    let options = WorkersOptions {
        directory: Arc::clone(directory),
        store: Arc::clone(store),
        make: Box::new(move |named, kind| {
            let (owner, name) = (&named.owner_name, &named.name);
            Service {
                settings: service_settings(&current.load(), &derived, owner, name),
                meter: engines.meters().of(owner, name),
                id: named.id,
                owner: named.owner,
                owner_name: named.owner_name,
                name: named.name,
                kind,
            }
        }),
        publish: Box::new(move |services| publishing.replace_attached(services)),
        provided: Box::new(move |owner, name| {
            let found = provided.find(owner, name);
            found.is_some_and(|service| !service.is_attached())
        }),
        placed: Box::new(move || {
            let mut services = placed.all();
            services.retain(|service| service.device().is_some() && service.is_attached());
            services
        }),
        attached,
        instances_per_token: settings.workers.instances_per_token,
    };
    let started = Workers::start(options).await;
    started.map_err(|error| Failure::Other(error.to_string()))
}

/// The running listener for workers.
pub(super) struct GateListener {
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl GateListener {
    /// Accepts workers.
    pub(super) fn serve(
        bound: BoundGate,
        workers: Arc<Workers>,
        settings: &GatewaySettings,
        tls: Option<ServerCertificate>,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let limits = (settings.workers.clone(), settings.timeouts.grace());
        Self {
            stop,
            serving: tokio::spawn(bound.serve(workers, limits, tls, stopped)),
        }
    }

    /// Ends the connections of all workers. No request is in flight any more.
    pub(super) async fn stop(self, deadline: Deadline) {
        self.stop.send_replace(true);
        if tokio::time::timeout_at(deadline.end, self.serving)
            .await
            .is_err()
        {
            tracing::warn!("workers did not leave in time");
        }
    }
}
