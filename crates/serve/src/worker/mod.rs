//! Workers: instances of services that attach to the gateway by the gate protocol.
//!
//! A token names the service that its instances answer for. [`Workers`] admits instances by their tokens and gives them
//! to their service ([`Attached`]). A machine with a token of any service gets packages of the gateway ([`placement`]).
//!
//! Invariant: an instance whose token is not valid any more gets no requests, and its answers are not accepted.

mod admission;
mod placement;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::account::{ANY_SERVICE, AccountId, AccountStore, Directory, Snapshot, WorkerToken};
use crate::database::{DatabaseResult, Timestamp};
use crate::package::FileHashes;
use crate::service::{Attached, AttachedServices, Service, ServiceKind};
use admission::token_revoked;
use pkgtool_gate::host::{InstanceActivity, RemoteInstance};
use placement::MachinePool;

/// Interval between checks for tokens that have expired.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of drained machines that are remembered.
const MAX_DRAINED: usize = 1024;

/// Dependencies and limits of [`Workers`].
pub struct WorkersOptions {
    /// Accounts and tokens.
    pub directory: Arc<Directory>,
    /// The store that numbers services.
    pub store: Arc<dyn AccountStore>,
    /// Creates a service: its number, owner, name and backend are given.
    pub make: MakeService,
    /// Replaces the services with attached instances.
    pub publish: Box<dyn Fn(Vec<Service>) + Send + Sync>,
    /// Returns whether the gateway itself answers the requests of a service: by a package or a proxy.
    pub provided: IsProvided,
    /// Returns the services of packages whose models run on workers.
    pub placed: Box<dyn Fn() -> Vec<Arc<Service>> + Send + Sync>,
    /// The services whose requests workers answer.
    pub attached: Arc<AttachedServices>,
    /// Maximum number of instances with the same token.
    pub instances_per_token: usize,
}

/// Returns whether the gateway itself answers the requests of a service, given by owner and name.
pub type IsProvided = Box<dyn Fn(AccountId, &str) -> bool + Send + Sync>;

/// The owner and the name of a service.
type ServiceKey = (AccountId, String);

/// Creates a service with its settings and its meter.
pub type MakeService = Box<dyn Fn(NamedService, ServiceKind) -> Service + Send + Sync>;

/// The name of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedService {
    /// Its permanent number.
    pub id: i64,
    /// The account that owns it.
    pub owner: AccountId,
    /// That account's name.
    pub owner_name: String,
    /// Its name.
    pub name: String,
}

/// The attached instances of all services.
pub struct Workers {
    options: WorkersOptions,
    services: Mutex<BTreeMap<ServiceKey, WorkerService>>,
    instances: Mutex<HashMap<u64, WorkerInstance>>,
    /// Machines that an operator drained: token and name.
    drained: Mutex<BTreeSet<(i64, String)>>,
    /// Machines that take packages.
    pool: Mutex<MachinePool>,
    hashes: Arc<FileHashes>,
    /// Wakes the loop that assigns packages.
    placing: Notify,
    /// Held while services are read from the directory.
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct WorkerService {
    named: NamedService,
    attached: Arc<Attached>,
}

#[derive(Debug, Clone)]
struct WorkerInstance {
    instance: Arc<RemoteInstance>,
    service: WorkerService,
    token: WorkerToken,
}

/// An attached instance or a machine that takes packages, for operators.
#[derive(Debug, Clone)]
pub struct WorkerInfo {
    /// Its number.
    pub number: u64,
    /// The account that owns its service.
    pub account: AccountId,
    /// That account's name.
    pub account_name: String,
    /// Its service; [`ANY_SERVICE`] for a machine, whose instances have lines of their own.
    pub service: String,
    /// Name of its token.
    pub token: String,
    /// Its machine and number, as answers name it.
    pub label: String,
    /// The program that it runs, if it says so.
    pub image: Option<String>,
    /// The address that it calls from.
    pub peer: Option<std::net::SocketAddr>,
    /// Time since it attached.
    pub attached: Duration,
    /// Its requests and its state.
    pub activity: InstanceActivity,
}

impl Workers {
    /// Reads the tokens and follows their changes. Must be called on a tokio runtime.
    pub async fn start(options: WorkersOptions) -> DatabaseResult<Arc<Self>> {
        let workers = Arc::new(Self {
            options,
            services: Mutex::default(),
            instances: Mutex::default(),
            drained: Mutex::default(),
            pool: Mutex::default(),
            hashes: Arc::default(),
            placing: Notify::new(),
            refreshing: tokio::sync::Mutex::default(),
        });
        workers.refresh().await?;
        let (weak, mut changes) = (
            Arc::downgrade(&workers),
            workers.options.directory.changes(),
        );
        tokio::spawn(async move {
            loop {
                let Some(workers) = weak.upgrade() else {
                    return;
                };
                let wait = async {
                    tokio::select! {
                        // The directory may be gone, as the gateway is.
                        _ = changes.changed() => {}
                        () = workers.placing.notified() => {}
                    }
                };
                let _ = tokio::time::timeout(EXPIRY_INTERVAL, wait).await;
                if let Err(error) = workers.refresh().await {
                    tracing::warn!(%error, "the tokens of workers could not be read");
                }
            }
        });
        Ok(workers)
    }

    /// Returns the services whose requests workers answer.
    pub fn attached(&self) -> &Arc<AttachedServices> {
        &self.options.attached
    }

    /// Returns all attached instances and machines, in the order in which they attached.
    pub fn list(&self) -> Vec<WorkerInfo> {
        let mut all: Vec<WorkerInfo> = self.machines();
        let instances = self.instances();
        all.extend(instances.values().cloned().map(WorkerInfo::from));
        all.sort_by_key(|it| it.number);
        all
    }

    /// Returns the machines that take packages.
    fn machines(&self) -> Vec<WorkerInfo> {
        let accounts = self.options.directory.snapshot();
        let pool = self.pool();
        let machines = pool.machines().map(|(instance, token)| {
            let account = accounts.by_id(token.account);
            let account = account.map(|account| account.name.clone());
            let service = (
                token.account,
                account.unwrap_or_default(),
                ANY_SERVICE.to_owned(),
            );
            WorkerInfo::of(instance, token.name.clone(), service)
        });
        machines.collect()
    }

    /// Sends an instance of an account, or all instances of a machine, no more requests, or sends them requests again.
    /// Returns `None` if it is not attached.
    pub fn drain(&self, account: AccountId, number: u64, drain: bool) -> Option<WorkerInfo> {
        let found = self.instances().get(&number).cloned();
        let (instance, token) = match &found {
            Some(found) => (Arc::clone(&found.instance), found.token.clone()),
            None => self.pool().machine(number)?,
        };
        if token.account != account {
            return None;
        }
        let machine = machine(token.id, &instance);
        let mut drained = self.drained();
        if !drain {
            drained.retain(|it| Some(it) != machine.as_ref());
        } else if drained.len() < MAX_DRAINED {
            drained.extend(machine.clone());
        }
        drop(drained);
        instance.drain(drain);
        let instances = found.map_or_else(|| self.instances_of(machine.as_ref()), |it| vec![it]);
        for it in instances {
            it.instance.drain(drain);
            if !drain {
                it.service.attached.resume();
            }
        }
        self.list().into_iter().find(|it| it.number == number)
    }

    /// Returns the instances on a machine.
    fn instances_of(&self, of: Option<&(i64, String)>) -> Vec<WorkerInstance> {
        let is_of_it = |it: &&WorkerInstance| {
            of.is_some() && machine(it.token.id, &it.instance).as_ref() == of
        };
        self.instances()
            .values()
            .filter(is_of_it)
            .cloned()
            .collect()
    }

    /// Adds services that have got a token, removes those that have none, and ends the connections of instances whose
    /// token is not valid any more.
    async fn refresh(&self) -> DatabaseResult<()> {
        let _refreshing = self.refreshing.lock().await;
        let now = Timestamp::now();
        let snapshot = self.options.directory.snapshot().clone();
        let mut wanted: BTreeMap<ServiceKey, String> = BTreeMap::new();
        let valid = snapshot.worker_tokens().filter(|token| token.is_valid(now));
        for token in valid.filter(|token| token.service != ANY_SERVICE) {
            if let Some(account) = snapshot.by_id(token.account) {
                let key = (token.account, token.service.clone());
                wanted.insert(key, account.name.clone());
            }
        }
        let known: BTreeSet<_> = self.services().keys().cloned().collect();
        let mut added = Vec::new();
        for (key, owner_name) in &wanted {
            if !known.contains(key) {
                let id = self.options.store.service_number(key.0, &key.1).await?;
                let named = NamedService {
                    id,
                    owner: key.0,
                    owner_name: owner_name.clone(),
                    name: key.1.clone(),
                };
                let attached = self.options.attached.of(key.0, &key.1);
                added.push((key.clone(), WorkerService { named, attached }));
            }
        }
        self.renew(&wanted, added);
        self.cut_invalid(&snapshot, now);
        self.place().await;
        Ok(())
    }

    /// Adds services, removes those that are not wanted, and publishes a change.
    fn renew(
        &self,
        wanted: &BTreeMap<ServiceKey, String>,
        added: Vec<(ServiceKey, WorkerService)>,
    ) {
        let mut gone: Vec<ServiceKey> = self.services().keys().cloned().collect();
        gone.retain(|key| !wanted.contains_key(key));
        if added.is_empty() && gone.is_empty() {
            return;
        }
        let placed = (self.options.placed)();
        let mut services = self.services();
        for key in gone {
            services.remove(&key);
            let is_key = |it: &Arc<Service>| (it.owner, &it.name) == (key.0, &key.1);
            if !placed.iter().any(is_key) {
                self.options.attached.remove(key.0, &key.1);
            }
        }
        services.extend(added);
        let all = services.values().cloned();
        (self.options.publish)(all.map(|it| it.service(&self.options.make)).collect());
    }

    /// Ends the connections of instances and machines whose token is not valid any more.
    fn cut_invalid(&self, snapshot: &Snapshot, now: Timestamp) {
        let instances = self.instances();
        let attached = instances.values().map(|it| (&it.instance, &it.token));
        let pool = self.pool();
        for (instance, token) in attached.chain(pool.machines()) {
            let current = snapshot.worker_tokens().find(|it| it.id == token.id);
            if current.is_none_or(|token| !token.is_valid(now)) {
                instance.cut(token_revoked());
            }
        }
    }

    fn services(&self) -> MutexGuard<'_, BTreeMap<ServiceKey, WorkerService>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instances(&self) -> MutexGuard<'_, HashMap<u64, WorkerInstance>> {
        self.instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, MachinePool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drained(&self) -> MutexGuard<'_, BTreeSet<(i64, String)>> {
        self.drained.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what stays the same when a machine attaches again: the token and its name.
fn machine(token: i64, instance: &RemoteInstance) -> Option<(i64, String)> {
    Some((token, instance.hostname()?.to_owned()))
}

impl WorkerService {
    fn service(self, make: &MakeService) -> Service {
        make(self.named, ServiceKind::Attached(self.attached))
    }
}

impl WorkerInfo {
    fn of(
        instance: &RemoteInstance,
        token: String,
        (account, account_name, service): (AccountId, String, String),
    ) -> Self {
        let activity = instance.activity();
        Self {
            number: instance.number,
            account,
            account_name,
            service,
            token,
            label: crate::service::attached::label(instance),
            image: instance
                .arrival
                .start
                .image
                .clone()
                .filter(|it| !it.is_empty()),
            peer: instance.arrival.peer,
            attached: instance.since.elapsed(),
            activity,
        }
    }

    /// Returns the name of its machine.
    pub fn machine(&self) -> &str {
        self.label
            .rsplit_once('/')
            .map_or(&self.label, |(machine, _)| machine)
    }
}

impl From<WorkerInstance> for WorkerInfo {
    fn from(it: WorkerInstance) -> Self {
        let named = it.service.named;
        let service = (named.owner, named.owner_name, named.name);
        Self::of(&it.instance, it.token.name, service)
    }
}
