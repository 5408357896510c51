//! Packages for machines that have none: which machine gets which, and the tokens of their instances.
//!
//! Invariant: a machine fetches only files of packages that were assigned to it.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::{NamedService, WorkerService, Workers};
use crate::account::WorkerToken;
use crate::package::{FileHashes, LocalPackage};
use crate::service::Service;
use pkgtool_gate::host::RemoteInstance;
use pkgtool_gate::protocol::{AssignedServiceProto, AssignmentProto, WorkerProto};

/// The machines without packages of their own.
#[derive(Debug, Default)]
pub(super) struct MachinePool {
    machines: BTreeMap<u64, PoolMachine>,
    /// The services of the instances on these machines, by the tokens that they got.
    tokens: HashMap<String, PlacedService>,
}

/// A machine that takes packages.
#[derive(Debug)]
struct PoolMachine {
    instance: Arc<RemoteInstance>,
    token: WorkerToken,
    /// The token of each service's instance.
    tokens: BTreeMap<String, String>,
    /// The last assignment: services and the versions of their packages.
    assigned: Vec<(String, String)>,
}

/// A service on a machine.
#[derive(Debug, Clone)]
pub(super) struct PlacedService {
    pub(super) service: WorkerService,
    /// The token of the machine.
    pub(super) token: WorkerToken,
    package: Arc<LocalPackage>,
}

/// A service whose package is sent to machines.
struct SentService {
    service: WorkerService,
    backends: Vec<String>,
    package: Arc<LocalPackage>,
}

impl MachinePool {
    pub(super) fn join(&mut self, instance: &Arc<RemoteInstance>, token: WorkerToken) {
        let machine = PoolMachine {
            instance: Arc::clone(instance),
            token,
            tokens: BTreeMap::new(),
            assigned: Vec::new(),
        };
        self.machines.insert(instance.number, machine);
    }

    /// Forgets a machine, and the tokens of its instances. Returns `false` if it is not known.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let Some(machine) = self.machines.remove(&number) else {
            return false;
        };
        for token in machine.tokens.values() {
            self.tokens.remove(token);
        }
        true
    }

    /// Returns the machines with their tokens.
    pub(super) fn machines(&self) -> impl Iterator<Item = (&Arc<RemoteInstance>, &WorkerToken)> {
        self.machines.values().map(|it| (&it.instance, &it.token))
    }

    /// Returns a machine by its number.
    pub(super) fn machine(&self, number: u64) -> Option<(Arc<RemoteInstance>, WorkerToken)> {
        let machine = self.machines.get(&number)?;
        Some((Arc::clone(&machine.instance), machine.token.clone()))
    }

    /// Returns what an instance with this token answers for.
    pub(super) fn placed(&self, token: &str) -> Option<&PlacedService> {
        self.tokens.get(token)
    }

    /// Assigns services to the machines that can run them.
    fn assign(&mut self, services: &[SentService]) {
        let Self { machines, tokens } = self;
        tokens.clear();
        for machine in machines.values_mut() {
            let worker = machine.instance.arrival.start.worker.as_ref();
            let Some(worker) = worker else { continue };
            let own = services.iter().filter(|sent| {
                sent.service.named.owner == machine.token.account && can_run(worker, sent)
            });
            let own: Vec<&SentService> = own.collect();
            let mut kept = std::mem::take(&mut machine.tokens);
            let mut assignment = AssignmentProto::default();
            for sent in own {
                let named = &sent.service.named;
                let token = kept.remove(&named.name);
                let Some(token) = token.or_else(|| instance_token(named)) else {
                    continue;
                };
                machine.tokens.insert(named.name.clone(), token.clone());
                let placed = PlacedService {
                    service: sent.service.clone(),
                    token: machine.token.clone(),
                    package: Arc::clone(&sent.package),
                };
                tokens.insert(token.clone(), placed);
                let manifest = &sent.package.manifest;
                assignment.services.push(AssignedServiceProto {
                    name: named.name.clone(),
                    connection_token: token,
                    version: manifest.version.clone(),
                    files: manifest.files.iter().map(Into::into).collect(),
                });
            }
            let versions = assignment.services.iter();
            let versions = versions.map(|it| (it.name.clone(), it.version.clone()));
            let versions: Vec<_> = versions.collect();
            if versions != machine.assigned && machine.instance.assign(assignment) {
                machine.assigned = versions;
            }
        }
    }
}

impl PlacedService {
    /// Returns the path of a file of the package.
    pub(super) fn file(&self, sha256: &str) -> Option<PathBuf> {
        self.package.file(sha256)
    }
}

/// Returns whether a machine has a backend and the memory for a package.
fn can_run(worker: &WorkerProto, sent: &SentService) -> bool {
    let has = |backend: &String| worker.backends.contains(backend);
    sent.backends.iter().any(has) && sent.package.manifest.bytes() <= worker.memory_bytes
}

fn instance_token(named: &NamedService) -> Option<String> {
    let token = WorkerToken::text("wi", &named.owner_name, &named.name);
    let token = token.map_err(|error| tracing::error!(error, "no token"));
    Some(token.ok()?.reveal().to_owned())
}

impl Workers {
    /// Assigns the packages of all services that run on workers.
    pub(super) async fn place(&self) {
        if self.pool().machines.is_empty() {
            return;
        }
        let services = (self.options.placed)();
        let hashes = Arc::clone(&self.hashes);
        let read = tokio::task::spawn_blocking(move || sent_services(&services, &hashes));
        match read.await {
            Ok(sent) => self.pool().assign(&sent),
            Err(error) => tracing::error!(%error, "the files of packages could not be read"),
        }
    }
}

/// Reads the files of packages.
fn sent_services(services: &[Arc<Service>], hashes: &FileHashes) -> Vec<SentService> {
    let sent = services.iter().filter_map(|service| {
        let device = service.device()?;
        let package = hashes.package(device.files());
        let package = package.map_err(|error| {
            let service = service.label();
            tracing::warn!(%service, %error, "the package cannot be sent to workers");
        });
        Some(SentService {
            service: WorkerService {
                named: NamedService {
                    id: service.id,
                    owner: service.owner,
                    owner_name: service.owner_name.clone(),
                    name: service.name.clone(),
                },
                attached: Arc::clone(device.workers()?),
            },
            backends: device.description().backends.clone(),
            package: package.ok()?,
        })
    });
    let sent: Vec<SentService> = sent.collect();
    hashes.keep(
        services
            .iter()
            .filter_map(|service| service.device())
            .flat_map(|it| it.files()),
    );
    sent
}
