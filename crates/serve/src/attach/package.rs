//! A package that is attached as an instance of a service.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{AttachedService, descriptor};
use crate::account::AccountId;
use crate::service::{BodyMemory, Catalog, Service};
use pkgtool_gate::address::GateAddress;
use pkgtool_gate::instance::{self, InstanceSettings, InstanceToken};

/// Time for the gate to accept a new version of a package.
const ATTACHMENT_TIME: Duration = Duration::from_secs(10);

/// Serves the packages in a folder.
pub type OpenFolder = Box<dyn Fn(&Path) -> Result<Arc<Catalog>, String> + Send + Sync>;

/// How packages become instances.
pub struct PackageOptions {
    /// Settings of the connections. Each instance has a token of its own.
    pub settings: InstanceSettings,
    /// Serves a folder.
    pub open: OpenFolder,
    /// The account that owns the services of such a folder.
    pub owner: AccountId,
    /// Memory for the bodies of all requests.
    pub memory: Arc<BodyMemory>,
}

/// The gates that an instance attaches to, and its token there.
pub(super) struct InstancePlace {
    pub(super) gates: Vec<GateAddress>,
    pub(super) token: String,
}

/// A package that is attached.
pub(super) struct AttachedPackage {
    pub(super) catalog: Arc<Catalog>,
    stop: watch::Sender<bool>,
    /// Becomes true when a gate accepts it.
    attachment: watch::Receiver<bool>,
    serving: JoinHandle<()>,
}

impl PackageOptions {
    /// Returns the service of a package, by its name or the only one.
    pub(super) fn found(
        &self,
        catalog: &Catalog,
        name: Option<&str>,
    ) -> Result<Arc<Service>, String> {
        let found = match name {
            Some(name) => catalog.find(self.owner, name),
            None => catalog.all().first().cloned(),
        };
        found.ok_or_else(|| {
            let unserved = catalog.unserved();
            let reason = unserved.first().map(|unserved| unserved.reason.clone());
            reason.unwrap_or_else(|| match name {
                Some(name) => format!("the package has no service `{name}`"),
                None => "the folder has no package".to_owned(),
            })
        })
    }

    /// Serves a folder with its model loaded.
    pub(super) async fn load(
        &self,
        folder: &Path,
        name: Option<&str>,
    ) -> Result<Arc<Catalog>, String> {
        let catalog = (self.open)(folder)?;
        let service = self.found(&catalog, name)?;
        if let Some(device) = service.device()
            && let Err(error) = device.warm().await
        {
            catalog.stop().await;
            return Err(error.to_string());
        }
        Ok(catalog)
    }

    /// Attaches a service of a catalog.
    pub(super) fn attach(
        &self,
        catalog: Arc<Catalog>,
        service: &Service,
        place: InstancePlace,
    ) -> AttachedPackage {
        let settings = InstanceSettings {
            gates: place.gates,
            token: InstanceToken::new(place.token),
            descriptor: descriptor(service),
            worker: None,
            ..self.settings.clone()
        };
        let (finding, owner, name) = (Arc::clone(&catalog), self.owner, service.name.clone());
        let find = move || finding.find(owner, &name);
        let attached = AttachedService::new(find, Arc::clone(&self.memory));
        let attachment = attached.attachment();
        let (stop, stopped) = watch::channel(false);
        AttachedPackage {
            serving: tokio::spawn(instance::serve(settings, Arc::new(attached), stopped)),
            catalog,
            stop,
            attachment,
        }
    }
}

impl AttachedPackage {
    /// Returns a receiver of whether a gate has accepted it.
    pub(super) fn attachment(&self) -> watch::Receiver<bool> {
        self.attachment.clone()
    }

    /// Ends once a gate has accepted another version.
    pub(super) async fn end_after(self, mut attachment: watch::Receiver<bool>) {
        let attached = attachment.wait_for(|is_attached| *is_attached);
        // The gate may be gone, or the other version may have ended.
        let _ = timeout(ATTACHMENT_TIME, attached).await;
        self.end().await;
    }

    /// Lets requests in flight end.
    pub(super) async fn end(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.serving.await {
            tracing::error!(%error, "an instance failed");
        }
        // Another instance may serve the same package.
        if Arc::strong_count(&self.catalog) == 1 {
            self.catalog.stop().await;
        }
    }
}
