//! A machine without packages of its own: it serves the packages that gates assign to it.
//!
//! Invariant: a new version of a package is fetched, loaded and attached before the old one leaves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{AttachedService, PackageCache, descriptor, unsupported};
use crate::account::AccountId;
use crate::service::{BodyMemory, Catalog, Service};
use pkgtool_gate::address::GateAddress;
use pkgtool_gate::instance::{
    self, AnswerParts, GateRequest, Handler, InstanceSettings, InstanceToken, LastAnswer,
};
use pkgtool_gate::protocol::{AssignedServiceProto, AssignmentProto};

/// Pause before a package that could not be served is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Time for the gate to accept a new version of a package.
const ATTACHMENT_TIME: Duration = Duration::from_secs(10);

/// Serves the packages in a folder.
pub type OpenFolder = Box<dyn Fn(&Path) -> Result<Arc<Catalog>, String> + Send + Sync>;

/// Settings of a machine that serves assigned packages.
pub struct MachineOptions {
    /// Settings of its connections. Its instances have tokens of their own.
    pub settings: InstanceSettings,
    /// The fetched packages.
    pub cache: PackageCache,
    /// Serves a folder of the cache.
    pub open: OpenFolder,
    /// The account that owns the services of such a folder.
    pub owner: AccountId,
    /// Memory for the bodies of all requests.
    pub memory: Arc<BodyMemory>,
}

/// The last assignment of each gate.
type Assignments = BTreeMap<GateAddress, AssignmentProto>;

/// Takes assignments, and no requests.
struct AssignmentTaker(watch::Sender<Assignments>);

impl Handler for AssignmentTaker {
    async fn answer(&self, _: GateRequest, _: AnswerParts) -> LastAnswer {
        LastAnswer {
            body: unsupported("the machine answers for assigned services only"),
            headers: HashMap::new(),
        }
    }

    fn assigned(&self, gate: &GateAddress, assignment: AssignmentProto) {
        self.0.send_modify(|all| {
            all.insert(gate.clone(), assignment);
        });
    }
}

/// A gate and a service that it assigned.
type AssignedPlace = (GateAddress, String);

/// A package that is served.
struct RunningPackage {
    version: String,
    token: String,
    catalog: Arc<Catalog>,
    stop: watch::Sender<bool>,
    /// Becomes true when its gate accepts it.
    attachment: watch::Receiver<bool>,
    serving: JoinHandle<()>,
}

/// Serves assigned packages until `stop` becomes true. Requests in flight then end.
pub async fn serve_assigned(options: MachineOptions, mut stop: watch::Receiver<bool>) {
    let (assignments, mut assigned) = watch::channel(Assignments::new());
    let taker = Arc::new(AssignmentTaker(assignments));
    let attached = instance::serve(options.settings.clone(), taker, stop.clone());
    let attached = tokio::spawn(attached);
    let mut served: HashMap<AssignedPlace, RunningPackage> = HashMap::new();
    let mut endings = tokio::task::JoinSet::new();
    loop {
        let wanted = assigned.borrow_and_update().clone();
        let follow = follow(&options, &wanted, &mut served, &mut endings);
        let complete = tokio::select! {
            complete = follow => complete,
            // A package that is being fetched is left.
            _ = stop.wait_for(|stop| *stop) => break,
        };
        while endings.try_join_next().is_some() {}
        let pause = if complete { Duration::MAX } else { RETRY_DELAY };
        tokio::select! {
            changed = assigned.changed() => if changed.is_err() { break },
            _ = stop.wait_for(|stop| *stop) => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    for (_, package) in served {
        endings.spawn(package.end());
    }
    while endings.join_next().await.is_some() {}
    // It ends with the same signal.
    let _ = attached.await;
}

/// Serves what is wanted, and leaves the rest. Returns `false` if a package could not be served.
async fn follow(
    options: &MachineOptions,
    wanted: &Assignments,
    served: &mut HashMap<AssignedPlace, RunningPackage>,
    endings: &mut tokio::task::JoinSet<()>,
) -> bool {
    let all = wanted.iter().flat_map(|(gate, assignment)| {
        let services = assignment.services.iter();
        services.map(move |it| ((gate.clone(), it.name.clone()), it))
    });
    let all: BTreeMap<AssignedPlace, &AssignedServiceProto> = all.collect();
    let gone: Vec<AssignedPlace> = served
        .keys()
        .filter(|place| !all.contains_key(place))
        .cloned()
        .collect();
    for place in gone {
        if let Some(package) = served.remove(&place) {
            tracing::info!(gate = %place.0, service = place.1, "not assigned any more");
            endings.spawn(package.end());
        }
    }
    let mut complete = true;
    if !wanted.is_empty() {
        tracing::info!(services = all.len(), "assigned");
    }
    for (place, assigned) in all {
        let before = served.get(&place);
        if before.is_some_and(|it| {
            it.version == assigned.version && it.token == assigned.connection_token
        }) {
            continue;
        }
        // Only the token is new after a restart of the gate.
        let same = before.filter(|it| it.version == assigned.version);
        let catalog = same.map(|it| Arc::clone(&it.catalog));
        let catalog = if let Some(catalog) = catalog {
            Ok(catalog)
        } else {
            let in_use = served.values().map(|it| it.version.clone()).collect();
            load(options, &place.0, assigned, &in_use).await
        };
        let started = catalog.and_then(|catalog| start(options, &place, assigned, catalog));
        match started {
            Ok(package) => {
                let version = assigned.version.get(..12).unwrap_or_default();
                tracing::info!(gate = %place.0, service = place.1, version, "serves a package");
                let attachment = package.attachment.clone();
                if let Some(old) = served.insert(place, package) {
                    endings.spawn(old.end_after(attachment));
                }
            }
            Err(reason) => {
                tracing::warn!(gate = %place.0, service = place.1, reason, "cannot serve a package");
                complete = false;
            }
        }
    }
    complete
}

/// Fetches a package, and loads its model.
async fn load(
    options: &MachineOptions,
    gate: &GateAddress,
    assigned: &AssignedServiceProto,
    in_use: &BTreeSet<String>,
) -> Result<Arc<Catalog>, String> {
    let from = (&options.settings.security, gate);
    let folder: PathBuf = options
        .cache
        .folder(from, assigned, in_use)
        .await
        .map_err(|error| error.to_string())?;
    let catalog = (options.open)(&folder)?;
    let service = found(&catalog, options.owner, &assigned.name)?;
    if let Some(device) = service.device()
        && let Err(error) = device.warm().await
    {
        catalog.stop().await;
        return Err(error.to_string());
    }
    Ok(catalog)
}

fn found(catalog: &Catalog, owner: AccountId, name: &str) -> Result<Arc<Service>, String> {
    catalog.find(owner, name).ok_or_else(|| {
        let unserved = catalog.unserved();
        let reason = unserved.first().map(|unserved| unserved.reason.clone());
        reason.unwrap_or_else(|| format!("the package has no service `{name}`"))
    })
}

fn start(
    options: &MachineOptions,
    (gate, name): &AssignedPlace,
    assigned: &AssignedServiceProto,
    catalog: Arc<Catalog>,
) -> Result<RunningPackage, String> {
    let service = found(&catalog, options.owner, name)?;
    let settings = InstanceSettings {
        gates: vec![gate.clone()],
        token: InstanceToken::new(assigned.connection_token.clone()),
        descriptor: descriptor(&service),
        worker: None,
        ..options.settings.clone()
    };
    let (finding, owner, name) = (Arc::clone(&catalog), options.owner, name.clone());
    let find = move || finding.find(owner, &name);
    let attached = AttachedService::new(find, Arc::clone(&options.memory));
    let attachment = attached.attachment();
    let (stop, stopped) = watch::channel(false);
    Ok(RunningPackage {
        version: assigned.version.clone(),
        token: assigned.connection_token.clone(),
        serving: tokio::spawn(instance::serve(settings, Arc::new(attached), stopped)),
        catalog,
        stop,
        attachment,
    })
}

impl RunningPackage {
    /// Ends once the gate has accepted another version.
    async fn end_after(self, mut attachment: watch::Receiver<bool>) {
        let attached = attachment.wait_for(|is_attached| *is_attached);
        // The gate may be gone, or the other version may have ended.
        let _ = timeout(ATTACHMENT_TIME, attached).await;
        self.end().await;
    }

    /// Lets requests in flight end.
    async fn end(self) {
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
