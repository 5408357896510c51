//! From settings to a running gateway: database, accounts, services, tasks; and back down again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::super::exit::Failure;
use super::places::Places;
use super::proxies::{owner, proxies};
use super::training::{jobs, opening, settings_of, trained_directory, untrained};
use crate::account::{
    Account, AccountStore, Accounts, Directory, Permissions, PredictConfigs, Secret, UNLIMITED,
    UsageCounts,
};
use crate::database::{DataLock, DatabaseUrl, RetentionClock, Timestamp};
use crate::gateway::settings::{LOCAL_ACCOUNT, Settings};
use crate::gateway::{Deadline, Parts, Services};
use crate::runtime::machine::Machine;
use crate::service::engine::Engines;
use crate::service::meter::Meters;
use crate::service::{
    BodyMemory, Catalog, CatalogOptions, Kind, PackageDirectory, Service, UpstreamOptions,
};
use crate::task::{Blobs, Queue, QueueOptions, Stores, TaskId, TaskIds, TaskStore};
use crate::train::{CacheDirectory, DerivedServices, Jobs, JobsOptions, package_directory};

/// What of a running server takes over other settings.
pub(super) struct Live {
    current: Arc<ArcSwap<Settings>>,
    services: Arc<Services>,
    jobs: Arc<Jobs>,
    directory: Arc<Directory>,
    store: Arc<dyn AccountStore>,
    engines: Arc<Engines>,
}

impl Live {
    /// The settings in force.
    pub(super) fn settings(&self) -> Arc<Settings> {
        self.current.load_full()
    }

    /// The proxies of settings that are not in force yet. Must not be called by what drives other tasks.
    pub(super) fn proxies(
        &self,
        settings: &Settings,
        upstreams: Vec<UpstreamOptions>,
    ) -> Result<Vec<Service>, Failure> {
        let (store, running) = (&self.store, Some(&*self.services));
        let proxies = async {
            let accounts = store.accounts().await;
            let accounts = accounts.map_err(|error| Failure::Other(error.to_string()))?;
            let (settings, store) = ((settings, upstreams), (&accounts[..], &**store));
            proxies(settings, store, &self.engines, running).await
        };
        Handle::current().block_on(proxies)
    }

    /// Whether the upstream of a proxy is another one than before, or is called in another way.
    pub(super) fn has_changed(&self, proxies: &[Service]) -> bool {
        proxies.iter().any(|new| {
            let before = self.services.proxy(new.owner, &new.name);
            let upstream = |service: &Service| match &service.kind {
                Kind::Proxy(upstream) => Some(Arc::as_ptr(upstream)),
                _ => None,
            };
            before.and_then(|before| upstream(&before)) != upstream(new)
        })
    }

    /// Everything goes by these settings and proxies, which were checked; accounts and keys are read again.
    pub(super) fn take_over(&self, settings: Settings, proxies: Vec<Service>) {
        let settings = Arc::new(settings);
        self.current.store(Arc::clone(&settings));
        self.services.replace_proxies(proxies);
        let derived = self.jobs.derived();
        self.services
            .look_again(|owner, name| settings_of(&settings, derived, owner, name));
        self.directory.look_again();
    }
}

/// Everything that runs behind the listener.
pub(super) struct Running {
    settings: Settings,
    current: Arc<ArcSwap<Settings>>,
    accounts: Arc<dyn AccountStore>,
    directory: Arc<Directory>,
    configs: Arc<PredictConfigs>,
    usage: Arc<UsageCounts>,
    services: Arc<Services>,
    engines: Arc<Engines>,
    tasks: Arc<dyn TaskStore>,
    ids: Arc<TaskIds>,
    blobs: Arc<Blobs>,
    memory: Arc<BodyMemory>,
    queue: Queue,
    jobs: Arc<Jobs>,
    first_key: Option<Secret>,
    _lock: DataLock,
}

impl Running {
    /// Starts everything, the queue last, on a data directory whose lock is held.
    pub(super) async fn start(
        settings: Settings,
        (lock, upstreams): (DataLock, Vec<UpstreamOptions>),
        places: &Places,
    ) -> Result<Self, Failure> {
        let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
        let directory = &settings.data_dir;
        let stores = Stores::open(&DatabaseUrl::in_directory(directory)).await;
        let stores = stores.map_err(|error| other(&error))?;
        let store = stores.accounts().await.map_err(|error| other(&error))?;
        let accounts = Accounts::new(Arc::clone(&store));
        let first_key = first_account(&accounts).await?;
        let caps = settings.caps();
        let tasks = stores.tasks().await.map_err(|error| other(&error))?;
        let last = tasks.last_id().await.map_err(|error| other(&error))?;
        let blobs = Blobs::open(&directory.join("blobs")).map_err(|error| other(&error))?;
        let blobs = Arc::new(blobs.with_records_of(settings.tasks.inline_bytes));
        // Nobody else runs this store's tasks: what it says is running died with a former process.
        let orphans = tasks.recover(caps.attempts, Timestamp::now()).await;
        let orphans = orphans.map_err(|error| other(&error))?;
        if orphans > 0 {
            tracing::warn!(tasks = orphans, "tasks were running when the server ended");
        }
        let checked = Arc::clone(&tasks);
        tokio::spawn(async move {
            if let Err(error) = checked.check().await {
                tracing::error!(%error, "the database was looked through");
            }
        });
        settings.sandbox.choose();
        let engines = engines(&settings)?;
        let all = accounts.list().await.map_err(|error| other(&error))?;
        let current = Arc::new(ArcSwap::from_pointee(settings.clone()));
        let training = stores.training().await.map_err(|error| other(&error))?;
        let derived = DerivedServices::read(&*training).await;
        let derived = Arc::new(derived.map_err(|error| other(&error))?);
        let catalog = catalog(&current, places, &all, &store, (&engines, &derived))?;
        check_services(&settings, &catalog, &derived)?;
        let proxies = proxies((&settings, upstreams), (&all, &*store), &engines, None).await?;
        let untrained = untrained(&settings, &derived, &engines)?;
        let services = Services::new(Arc::clone(&catalog), proxies, untrained);
        let services = Arc::new(services);
        let jobs = jobs(
            JobsOptions {
                store: training,
                derived,
                find: {
                    let services = Arc::clone(&services);
                    Box::new(move |owner, name| services.find(owner, name))
                },
                open: opening(&blobs),
                catalog,
                directory: trained_directory(directory),
                cache: CacheDirectory {
                    path: directory.join("embeddings"),
                    bytes: settings.training.cache_bytes,
                },
                bounds: settings.training.bounds(),
                memory: settings.training.memory_bytes,
                running: settings.training.running,
                attempts: settings.limits.attempts,
            },
            &blobs,
        )
        .await?;
        let finding = Arc::clone(&services);
        let watched = Directory::watch(Arc::clone(&store)).await;
        let watched = watched.map_err(|error| other(&error))?;
        let memory = BodyMemory::new(settings.limits.body_memory());
        let clock = RetentionClock::open(directory, last.as_ref().map(TaskId::made_at));
        let clock = Arc::new(clock);
        let queue = Queue::start(QueueOptions {
            clock: Arc::clone(&clock),
            store: Arc::clone(&tasks),
            blobs: Arc::clone(&blobs),
            memory: Arc::clone(&memory),
            find: Box::new(move |owner, name| finding.find(owner, name)),
            directory: Arc::clone(&watched),
            caps,
            lease: Duration::from_secs_f64(settings.tasks.lease_s),
            answer_ttl: settings.tasks.answer_ttl(),
            record_ttl: settings.tasks.record_ttl(),
        });
        let keep_days = settings.usage.keep_days;
        let cpu = Arc::clone(engines.meters().cpu());
        let usage = UsageCounts::start(Arc::clone(&store), keep_days, clock, cpu);
        Ok(Self {
            accounts: Arc::clone(&store),
            directory: watched,
            configs: Arc::new(PredictConfigs::new(store)),
            usage: Arc::new(usage),
            settings,
            current,
            services,
            engines,
            tasks,
            ids: Arc::new(TaskIds::after(last)),
            blobs,
            memory,
            queue,
            jobs,
            first_key,
            _lock: lock,
        })
    }

    /// What the gateway answers from.
    pub(super) fn parts(&self) -> Parts {
        Parts {
            settings: self.settings.clone(),
            current: Arc::clone(&self.current),
            directory: Arc::clone(&self.directory),
            configs: Arc::clone(&self.configs),
            usage: Arc::clone(&self.usage),
            services: Arc::clone(&self.services),
            engines: Arc::clone(&self.engines),
            store: Arc::clone(&self.tasks),
            blobs: Arc::clone(&self.blobs),
            ids: Arc::clone(&self.ids),
            memory: Arc::clone(&self.memory),
            jobs: Arc::clone(&self.jobs),
        }
    }

    /// What takes over other settings.
    pub(super) fn live(&self) -> Live {
        Live {
            current: Arc::clone(&self.current),
            services: Arc::clone(&self.services),
            jobs: Arc::clone(&self.jobs),
            directory: Arc::clone(&self.directory),
            store: Arc::clone(&self.accounts),
            engines: Arc::clone(&self.engines),
        }
    }

    pub(super) fn services(&self) -> &Services {
        &self.services
    }

    /// The key that was made at the first start of an empty data directory.
    pub(super) fn first_key(&self) -> Option<&Secret> {
        self.first_key.as_ref()
    }

    /// Serves until it is told to stop. Then requests and running tasks have the same time to end, tasks
    /// that do not are put back, and sessions go in what is left of it.
    pub(super) async fn stop(
        self,
        serving: impl Future<Output = ()>,
        told: impl Future<Output = Deadline>,
    ) {
        let queue = self.queue;
        let tasks = async {
            let deadline = told.await;
            let left = deadline.cut.saturating_duration_since(Instant::now());
            let stopped = tokio::time::timeout_at(deadline.end, queue.stop(left));
            if stopped.await.is_err() {
                tracing::warn!("tasks could not be put back in time; the next start does it");
            }
            deadline
        };
        let ((), deadline) = tokio::join!(serving, tasks);
        if tokio::time::timeout_at(deadline.end, self.jobs.stop())
            .await
            .is_err()
        {
            tracing::warn!("training jobs could not be put back in time; the next start does it");
        }
        if tokio::time::timeout_at(deadline.end, self.services.stop())
            .await
            .is_err()
        {
            tracing::warn!("sessions were cut off at the end of the grace period");
        }
        // Whatever time is left: nothing is counted from here on, and it takes a moment.
        if let Err(error) = self.usage.store().await {
            tracing::error!(%error, "what was used last could not be stored");
        }
    }
}

/// Makes the account `local` if there is none, though there may be others, and its first key.
async fn first_account(accounts: &Accounts) -> Result<Option<Secret>, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let now = Timestamp::now();
    let all = accounts.list().await.map_err(|error| other(&error))?;
    if all.iter().all(|account| account.name != LOCAL_ACCOUNT) {
        // Who calls from the same machine is not held back, unless its owner wants it.
        let made = accounts.create(LOCAL_ACCOUNT, UNLIMITED, now).await;
        made.map_err(|error| other(&error))?;
    }
    let keys = accounts.keys(Some(LOCAL_ACCOUNT)).await;
    if !keys.map_err(|error| other(&error))?.is_empty() {
        return Ok(None);
    }
    let made = accounts.create_key(LOCAL_ACCOUNT, "first", Permissions::ALL, None, now);
    let (_, secret) = made.await.map_err(|error| other(&error))?;
    Ok(Some(secret))
}

fn engines(settings: &Settings) -> Result<Arc<Engines>, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Other(format!("the pkgtool binary cannot be found: {error}")))?;
    let budget = match settings.memory_budget {
        0 => Machine::this().memory_bytes / 2,
        bytes => bytes,
    };
    let library = &settings.ort_library;
    let library: Option<PathBuf> = (!library.as_os_str().is_empty()).then(|| library.clone());
    let bounds = &settings.metrics;
    let meters = Meters::new(bounds.services, bounds.accounts);
    Ok(Engines::metered(program, budget, library, meters))
}

fn catalog(
    current: &Arc<ArcSwap<Settings>>,
    places: &Places,
    accounts: &[Account],
    store: &Arc<dyn AccountStore>,
    (engines, derived): (&Arc<Engines>, &Arc<DerivedServices>),
) -> Result<Arc<Catalog>, Failure> {
    let settings = current.load();
    let mut directories = Vec::new();
    let mut add = |account: &str, paths: &[PathBuf]| -> Result<(), Failure> {
        let owner = owner(accounts, account)?;
        for path in paths {
            let place = places.of(path);
            require_directory(&place.directory)?;
            directories.push(PackageDirectory {
                path: place.directory,
                owner,
                owner_name: account.to_owned(),
                named_by_folders: false,
                left_out: place.left_out,
            });
        }
        Ok(())
    };
    add(LOCAL_ACCOUNT, &settings.packages)?;
    for publisher in &settings.publishers {
        add(&publisher.account, &publisher.packages)?;
    }
    for (owner, name) in derived.owners() {
        let all = trained_directory(&settings.data_dir);
        let directory = package_directory(&all, owner, &name);
        directories.push(directory.map_err(|error| Failure::Other(error.to_string()))?);
    }
    let (own, derived) = (Arc::clone(current), Arc::clone(derived));
    let store = Arc::clone(store);
    let runtime = Handle::current();
    let started = Catalog::start(CatalogOptions {
        directories,
        settings: Box::new(move |owner, name| settings_of(&own.load(), &derived, owner, name)),
        number: Box::new(move |owner, name| {
            // A catalog asks now and then, and has nothing else to do meanwhile.
            let number = || runtime.block_on(store.service_number(owner, name));
            tokio::task::block_in_place(number).map_err(|error| error.to_string())
        }),
        engines: Arc::clone(engines),
    });
    started.map_err(Failure::Other)
}

/// Settings of services that are not there are a mistake. Those of a package that is not served, since
/// something is wrong with it, are none; and where a package does not say what it is called, who can tell?
fn check_services(
    settings: &Settings,
    catalog: &Catalog,
    derived: &DerivedServices,
) -> Result<(), Failure> {
    let proxies = settings.proxies.iter();
    let mut known: Vec<(String, String)> = proxies
        .map(|proxy| (proxy.account.clone(), proxy.name.clone()))
        .collect();
    let derived = derived.all().into_iter();
    known.extend(derived.map(|it| (it.is.owner_name.clone(), it.is.name.clone())));
    let served = catalog.all();
    let served = served.iter();
    known.extend(served.map(|service| (service.owner_name.clone(), service.name.clone())));
    if settings.check_services(&known).is_ok() {
        return Ok(());
    }
    let wanted = catalog.wanted();
    let has_nameless = wanted.iter().any(|(_, name)| name.is_none());
    let wanted = wanted.into_iter();
    known.extend(wanted.filter_map(|(owner, name)| Some((owner, name?))));
    match settings.check_services(&known) {
        Err(error) if has_nameless => {
            tracing::warn!(%error, "settings of a service that is not there");
            Ok(())
        }
        checked => checked.map_err(|error| Failure::Other(error.to_string())),
    }
}

fn require_directory(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    Err(Failure::Nothing(format!(
        "{}: there is no such directory",
        path.display()
    )))
}
