//! A machine without packages of its own: it serves the packages that gates assign to it.
//!
//! Invariant: a new version of a package is fetched, loaded and attached before the old one leaves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::sync::watch;

use super::package::{AttachedPackage, InstancePlace, PackageOptions};
use super::unsupported;
use crate::package::{FileBytes, PackageCache, PackageFile, PackageManifest, PackageSource};
use crate::service::Catalog;
use pkgtool_gate::address::GateAddress;
use pkgtool_gate::instance::{
    self, AnswerParts, GateRequest, Handler, LastAnswer, Security, fetch,
};
use pkgtool_gate::protocol::{AssignedServiceProto, AssignmentProto, ContentRequestProto};

/// Pause before a package that could not be served is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Settings of a machine that serves assigned packages.
pub struct MachineOptions {
    /// How packages become instances.
    pub packages: PackageOptions,
    /// The fetched packages.
    pub cache: PackageCache,
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

/// An assigned package that is attached.
struct RunningPackage {
    version: String,
    token: String,
    attached: AttachedPackage,
}

/// Serves assigned packages until `stop` becomes true. Requests in flight then end.
pub async fn serve_assigned(options: MachineOptions, mut stop: watch::Receiver<bool>) {
    let (assignments, mut assigned) = watch::channel(Assignments::new());
    let taker = Arc::new(AssignmentTaker(assignments));
    let attached = instance::serve(options.packages.settings.clone(), taker, stop.clone());
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
        endings.spawn(package.attached.end());
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
            endings.spawn(package.attached.end());
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
        let catalog = same.map(|it| Arc::clone(&it.attached.catalog));
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
                let attachment = package.attached.attachment();
                if let Some(old) = served.insert(place, package) {
                    endings.spawn(old.attached.end_after(attachment));
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
    let source = AssignedFiles {
        security: &options.packages.settings.security,
        gate,
        token: &assigned.connection_token,
    };
    let manifest = PackageManifest {
        version: assigned.version.clone(),
        files: assigned.files.iter().map(Into::into).collect(),
    };
    let folder = options.cache.folder(&source, &manifest, in_use).await;
    let folder = folder.map_err(|error| error.to_string())?;
    options.packages.load(&folder, Some(&assigned.name)).await
}

/// The files of an assigned package, at its gate.
struct AssignedFiles<'a> {
    security: &'a Security,
    gate: &'a GateAddress,
    token: &'a str,
}

#[async_trait::async_trait]
impl PackageSource for AssignedFiles<'_> {
    async fn content(&self, file: &PackageFile, offset: u64) -> Result<FileBytes, String> {
        let request = ContentRequestProto {
            connection_token: self.token.to_owned(),
            sha256: file.sha256.clone(),
            offset,
        };
        let content = fetch(self.security, self.gate, request).await;
        let content = content.map_err(|error| error.to_string())?;
        let pieces = stream::try_unfold(content, |mut content| async {
            let piece = content.next().await.map_err(|error| error.to_string())?;
            Ok(piece.map(|piece| (Bytes::from(piece), content)))
        });
        Ok(pieces.boxed())
    }
}

fn start(
    options: &MachineOptions,
    (gate, name): &AssignedPlace,
    assigned: &AssignedServiceProto,
    catalog: Arc<Catalog>,
) -> Result<RunningPackage, String> {
    let service = options.packages.found(&catalog, Some(name))?;
    let token = assigned.connection_token.clone();
    let place = InstancePlace {
        gates: vec![gate.clone()],
        token: token.clone(),
    };
    Ok(RunningPackage {
        version: assigned.version.clone(),
        token,
        attached: options.packages.attach(catalog, &service, place),
    })
}
