//! Starts and stops the gateway's components: database, accounts, services, tasks and training
//! jobs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::exit::Failure;
use super::super::objects::open_for_server;
use super::engines::engines;
use super::places::MirrorPlaces;
use super::proxies::{account_named, build_proxies};
use super::training::{dataset_opener, jobs, service_settings, untrained_services};
use super::workers::GateListener;
use super::{published, webhooks, workers};
use pkgtool_serve::account::{
    Account, AccountError, AccountId, AccountStore, Accounts, Directory, Logins, Permissions,
    PredictConfigs, Secret, UNLIMITED, UsageCounts, WorkerToken,
};
use pkgtool_serve::batch::BatchStore;
use pkgtool_serve::database::{
    DataLock, DatabaseError, DatabaseResult, NodeOptions, RetentionClock, Timestamp, server_name,
};
use pkgtool_serve::gateway::settings::{GatewaySettings, LOCAL_ACCOUNT};
use pkgtool_serve::gateway::{BatchRunner, Deadline, GatewayParts, Services};
use pkgtool_serve::service::engine::{DeviceStatus, Engines};
use pkgtool_serve::service::{
    AttachedServices, BodyMemory, Catalog, CatalogOptions, PackageDirectory, Service, ServiceKind,
    UpstreamOptions,
};
use pkgtool_serve::task::{
    Blobs, Caps, FileKind, QueueOptions, Stores, TaskId, TaskIds, TaskQueue, TaskStore,
};
use pkgtool_serve::train::{
    CacheDirectory, DerivedServices, FindService, Jobs, JobsOptions, package_directory,
    results_directory,
};
use pkgtool_serve::webhook::Webhooks;

/// Maximum time that numbers of services wait for a database that is away, and the pause between two attempts.
const NUMBER_PATIENCE: Duration = Duration::from_secs(10);
const NUMBER_PAUSE: Duration = Duration::from_millis(100);

/// The components of a running server that accept new settings.
pub(super) struct ReloadTargets {
    current: Arc<ArcSwap<GatewaySettings>>,
    services: Arc<Services>,
    jobs: Arc<Jobs>,
    directory: Arc<Directory>,
    store: Arc<dyn AccountStore>,
    engines: Arc<Engines>,
}

impl ReloadTargets {
    /// Returns the settings in force.
    pub(super) fn settings(&self) -> Arc<GatewaySettings> {
        self.current.load_full()
    }

    /// Returns the proxies of settings that are not in force yet. This blocks, so it must not be
    /// called on a thread that drives other tasks.
    pub(super) fn proxies(
        &self,
        settings: &GatewaySettings,
        upstreams: Vec<UpstreamOptions>,
    ) -> Result<Vec<Service>, Failure> {
        let (store, running) = (&self.store, Some(&*self.services));
        let proxies = async {
            let accounts = store.accounts().await;
            let accounts = accounts.map_err(|error| Failure::Other(error.to_string()))?;
            let (settings, store) = ((settings, upstreams), (&accounts[..], &**store));
            build_proxies(settings, store, &self.engines, running).await
        };
        Handle::current().block_on(proxies)
    }

    /// Returns whether a proxy has a different upstream or different upstream options than before.
    pub(super) fn have_upstreams_changed(&self, proxies: &[Service]) -> bool {
        proxies.iter().any(|new| {
            let before = self.services.proxy(new.owner, &new.name);
            let upstream = |service: &Service| match &service.kind {
                ServiceKind::Proxy(upstream) => Some(Arc::as_ptr(upstream)),
                _ => None,
            };
            before.and_then(|before| upstream(&before)) != upstream(new)
        })
    }

    /// Puts checked settings and proxies in force, and reloads accounts and keys.
    pub(super) fn apply(&self, settings: GatewaySettings, proxies: Vec<Service>) {
        let settings = Arc::new(settings);
        self.current.store(Arc::clone(&settings));
        self.services.replace_proxies(proxies);
        let derived = self.jobs.derived();
        self.services
            .apply_settings(|owner, name| service_settings(&settings, derived, owner, name));
        self.directory.refresh_soon();
    }
}

/// Returns tasks to the queue that the end of an earlier process interrupted. No other process runs
/// the tasks of this store.
async fn recover_tasks(tasks: &dyn TaskStore, attempts: u32) -> Result<(), Failure> {
    let orphans = tasks.recover(attempts, Timestamp::now()).await;
    let orphans = orphans.map_err(|error| Failure::Other(error.to_string()))?;
    if orphans > 0 {
        tracing::warn!(
            tasks = orphans,
            "tasks were interrupted by the end of the previous server process"
        );
    }
    Ok(())
}

/// All components behind the listener.
pub(super) struct RunningGateway {
    parts: GatewayParts,
    accounts: Arc<dyn AccountStore>,
    /// What runs stored work, unless other servers do.
    queue: Option<TaskQueue>,
    webhooks: Option<Webhooks>,
    first_key: Option<Secret>,
    _mirror: Option<JoinSet<()>>,
    _lock: DataLock,
}

impl RunningGateway {
    /// Starts all components, the queue last. The caller holds the lock of the data directory.
    pub(super) async fn start(
        settings: GatewaySettings,
        (lock, upstreams): (DataLock, Vec<UpstreamOptions>),
        places: &MirrorPlaces,
    ) -> Result<Self, Failure> {
        let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
        let directory = &settings.data_dir;
        let stores = open_stores(&settings).await?;
        agree_on_objects(&stores, &settings).await?;
        let store = stores.accounts().await.map_err(|error| other(&error))?;
        let accounts = Accounts::new(Arc::clone(&store));
        let first_key = ensure_local_account(&accounts).await?;
        let caps = settings.caps();
        let (tasks, blobs) = tasks(&stores, &*store, &settings).await?;
        let last = tasks.last_id().await.map_err(|error| other(&error))?;
        settings.sandbox.choose();
        let engines = engines(&settings)?;
        let all = accounts.list().await.map_err(|error| other(&error))?;
        let current = Arc::new(ArcSwap::from_pointee(settings.clone()));
        let training = stores.training().await.map_err(|error| other(&error))?;
        let derived = DerivedServices::read(&*training).await;
        let derived = Arc::new(derived.map_err(|error| other(&error))?);
        let attached = Arc::new(AttachedServices::new(settings.limits.answer_bytes));
        let (mirror, published) = published::open(&stores, &blobs, &settings).await?;
        let parts = (&engines, &derived, &attached);
        let catalog = catalog(&current, (places, published), &all, &store, parts)?;
        let following = mirror.clone().map(|it| it.follow(Arc::clone(&catalog)));
        let tokens = accounts.worker_tokens(None).await?;
        check_services(&settings, &catalog, (&derived, &tokens))?;
        let proxies =
            build_proxies((&settings, upstreams), (&all, &*store), &engines, None).await?;
        let untrained = untrained_services(&settings, &derived, &engines)?;
        let services = Arc::new(Services::new(Arc::clone(&catalog), proxies, untrained));
        let watched = Directory::watch(Arc::clone(&store)).await;
        let watched = watched.map_err(|error| other(&error))?;
        let workers = workers::start(
            &current,
            (&watched, &store, attached),
            (&services, &engines, &derived),
        );
        let workers = workers.await?;
        let jobs = jobs(
            JobsOptions {
                store: training,
                derived,
                accounts: Arc::new(Accounts::new(Arc::clone(&store))),
                find: finder(&services),
                open: dataset_opener(&blobs),
                catalog,
                directory: results_directory(directory),
                mirror,
                cache: CacheDirectory {
                    path: directory.join("embeddings"),
                    bytes: settings.training.cache_bytes,
                },
                bounds: settings.training.bounds(),
                memory: settings.training.memory_bytes,
                running: settings.training.running,
                attempts: settings.limits.attempts,
                dispatches: settings.role.dispatches(),
            },
            &blobs,
        )
        .await?;
        let batches = batches(&stores, &blobs).await?;
        let dispatches = settings.role.dispatches();
        let webhooks = webhooks::start(&settings, &all, &stores).await?;
        let memory = BodyMemory::new(settings.limits.body_memory());
        let clock = Arc::new(RetentionClock::open(
            directory,
            last.as_ref().map(TaskId::made_at),
        ));
        let keep_days = settings.usage.keep_days;
        let cpu = Arc::clone(engines.meters().cpu());
        let usage = UsageCounts::start(Arc::clone(&store), keep_days, Arc::clone(&clock), cpu);
        let parts = GatewayParts {
            directory: watched,
            accounts: Arc::new(Accounts::new(Arc::clone(&store))),
            logins: Arc::new(Logins::new(Arc::clone(&store))),
            configs: Arc::new(PredictConfigs::new(Arc::clone(&store))),
            usage: Arc::new(usage),
            settings,
            current,
            services,
            engines,
            store: tasks,
            batches,
            clock,
            ids: Arc::new(TaskIds::after(last)),
            blobs,
            memory,
            jobs,
            workers,
        };
        Ok(Self {
            queue: dispatches.then(|| start_queue(&parts, caps)),
            parts,
            accounts: store,
            webhooks,
            first_key,
            _mirror: following,
            _lock: lock,
        })
    }

    /// Returns the components that the gateway's handlers use.
    pub(super) fn parts(&self) -> GatewayParts {
        self.parts.clone()
    }

    /// Returns the components that accept new settings.
    pub(super) fn reload_targets(&self) -> ReloadTargets {
        let parts = &self.parts;
        ReloadTargets {
            current: Arc::clone(&parts.current),
            services: Arc::clone(&parts.services),
            jobs: Arc::clone(&parts.jobs),
            directory: Arc::clone(&parts.directory),
            store: Arc::clone(&self.accounts),
            engines: Arc::clone(&parts.engines),
        }
    }

    /// Returns a link that logs a browser in to the console, unless the console is off.
    pub(super) async fn console_link(
        &self,
        scheme: &str,
        address: SocketAddr,
    ) -> Result<Option<String>, Failure> {
        let console = &self.parts.settings.console;
        if !console.enabled {
            return Ok(None);
        }
        let code = self.parts.logins.create_code(Timestamp::now()).await;
        let code = code.map_err(|error| Failure::Other(error.to_string()))?;
        Ok(Some(console.link((scheme, address), code.reveal())))
    }

    pub(super) fn devices(&self) -> Vec<DeviceStatus> {
        self.parts.engines.devices()
    }

    pub(super) fn services(&self) -> &Services {
        &self.parts.services
    }

    /// Returns the API key that was created at the first start with an empty data directory.
    pub(super) fn first_key(&self) -> Option<&Secret> {
        self.first_key.as_ref()
    }

    /// Serves until `told` resolves, then stops. Requests and running tasks share the same grace
    /// period. Unfinished tasks return to the queue, and sessions end in the remaining time.
    pub(super) async fn stop(
        self,
        serving: impl Future<Output = ()>,
        told: impl Future<Output = Deadline>,
        batches: Option<BatchRunner>,
        gate: Option<GateListener>,
    ) {
        let queue = self.queue;
        let tasks = async {
            let deadline = told.await;
            let left = deadline.cut.saturating_duration_since(Instant::now());
            let queue = stop_by(
                deadline,
                queue.map(|queue| queue.stop(left)),
                "tasks could not be returned to the queue in time; the next start does it",
            );
            let batches = stop_by(
                deadline,
                batches.map(BatchRunner::stop),
                "batches could not be stopped in time; the next start continues them",
            );
            tokio::join!(queue, batches);
            deadline
        };
        let ((), deadline) = tokio::join!(serving, tasks);
        if let Some(gate) = gate {
            gate.stop(deadline).await;
        }
        stop_by(
            deadline,
            Some(self.parts.jobs.stop()),
            "training jobs could not be returned to the queue in time; the next start does it",
        )
        .await;
        stop_by(
            deadline,
            Some(self.parts.services.stop()),
            "sessions were terminated at the end of the grace period",
        )
        .await;
        self.parts.engines.leave_devices();
        stop_by(
            deadline,
            self.webhooks.map(Webhooks::stop),
            "webhooks could not be stopped in time; the next start sends the rest",
        )
        .await;
        // This runs even after the deadline: usage is not counted any more, and storing it takes
        // only a moment.
        if let Err(error) = self.parts.usage.store().await {
            tracing::error!(%error, "cannot store the last usage counts");
        }
    }
}

/// Waits for a part to stop, if this server has it, until the end of the grace period; then logs the consequence.
async fn stop_by(deadline: Deadline, stop: Option<impl Future<Output = ()>>, consequence: &str) {
    if let Some(stop) = stop
        && tokio::time::timeout_at(deadline.end, stop).await.is_err()
    {
        tracing::warn!("{consequence}");
    }
}

/// Returns a function that finds a service by its owner and its name or number.
fn finder(services: &Arc<Services>) -> FindService {
    let services = Arc::clone(services);
    Box::new(move |owner, name| services.find(owner, name))
}

/// Starts to run tasks.
fn start_queue(parts: &GatewayParts, caps: Caps) -> TaskQueue {
    let settings = &parts.settings;
    let attached = Arc::clone(parts.workers.attached());
    let services = Arc::clone(&parts.services);
    let follower = Arc::downgrade(&attached);
    parts.engines.follow_devices(follower);
    let has_devices = !settings.devices.is_empty();
    TaskQueue::start(QueueOptions {
        clock: Arc::clone(&parts.clock),
        store: Arc::clone(&parts.store),
        blobs: Arc::clone(&parts.blobs),
        memory: Arc::clone(&parts.memory),
        find: finder(&parts.services),
        resumed: attached.resumed(),
        paused: Box::new(move || {
            let mut paused = attached.paused();
            paused.extend(services.warming());
            if has_devices {
                paused.extend(services.waiting_for_devices());
            }
            paused
        }),
        absent: published::absent_services(&*parts.store),
        worker_attempts: settings.workers.attempts,
        directory: Arc::clone(&parts.directory),
        caps,
        lease: Duration::from_secs_f64(settings.tasks.lease_s),
        answer_ttl: settings.tasks.answer_ttl(),
        record_ttl: settings.tasks.record_ttl(),
    })
}

/// Checks that the servers that share the database share their objects, too.
async fn agree_on_objects(stores: &Stores, settings: &GatewaySettings) -> Result<(), Failure> {
    let Some(servers) = stores.servers() else {
        return Ok(());
    };
    let url = settings.objects.url.0.as_ref();
    let Some(other) = servers.agree_on_objects(url).await? else {
        return Ok(());
    };
    let own = url.map_or_else(|| "its own files".to_owned(), ToString::to_string);
    Err(Failure::Other(format!(
        "the servers that share this database keep bodies and results in {other}, and this one would keep them in \
         {own}; start all of them with the same --objects, such as --objects s3://BUCKET/PREFIX"
    )))
}

/// Opens the database as the server of this data directory.
async fn open_stores(settings: &GatewaySettings) -> Result<Stores, Failure> {
    let directory = &settings.data_dir;
    let node = NodeOptions {
        name: server_name(directory)?,
        lease: Duration::from_secs_f64(settings.tasks.lease_s),
    };
    Ok(Stores::open_as(&settings.database.url(directory), node).await?)
}

/// Opens the stores of tasks and blobs, and returns interrupted tasks to the queue.
async fn tasks(
    stores: &Stores,
    accounts: &dyn AccountStore,
    settings: &GatewaySettings,
) -> Result<(Arc<dyn TaskStore>, Arc<Blobs>), Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let tasks = stores.tasks().await.map_err(|error| other(&error))?;
    let blobs = open_for_server(&settings.data_dir, &settings.objects, accounts).await?;
    let blobs = blobs.with_records_of(settings.tasks.inline_bytes);
    if settings.role.dispatches() {
        recover_tasks(&*tasks, settings.caps().attempts).await?;
    }
    check_integrity(Arc::clone(&tasks));
    Ok((tasks, Arc::new(blobs)))
}

/// Opens the store of batches, and removes the files of incomplete uploads.
async fn batches(stores: &Stores, blobs: &Blobs) -> Result<Arc<dyn BatchStore>, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let batches = stores.batches().await.map_err(|error| other(&error))?;
    let files = batches.all_files().await.map_err(|error| other(&error))?;
    let files = files.into_iter().map(|file| file.is.blob).collect();
    blobs.sweep_files(FileKind::Batch, &files).await;
    Ok(batches)
}

/// Checks the database in the background and logs what is wrong.
fn check_integrity(tasks: Arc<dyn TaskStore>) {
    tokio::spawn(async move {
        if let Err(error) = tasks.check().await {
            tracing::error!(%error, "database integrity check failed");
        }
    });
}

/// Creates the account `local` and its first key if they are missing, even if other accounts exist.
async fn ensure_local_account(accounts: &Accounts) -> Result<Option<Secret>, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let now = Timestamp::now();
    let all = accounts.list().await.map_err(|error| other(&error))?;
    if all.iter().all(|account| account.name != LOCAL_ACCOUNT) {
        // Local callers have no rate limit unless the owner sets one.
        match accounts.create(LOCAL_ACCOUNT, UNLIMITED, now).await {
            // Another server that starts now was first.
            Ok(_) | Err(AccountError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let keys = accounts.keys(Some(LOCAL_ACCOUNT)).await;
    if !keys.map_err(|error| other(&error))?.is_empty() {
        return Ok(None);
    }
    let made = accounts.create_key(LOCAL_ACCOUNT, "first", Permissions::ALL, None, now);
    match made.await {
        Ok((_, secret)) => Ok(Some(secret)),
        Err(AccountError::Exists { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn catalog(
    current: &Arc<ArcSwap<GatewaySettings>>,
    (places, published): (&MirrorPlaces, Vec<PackageDirectory>),
    accounts: &[Account],
    store: &Arc<dyn AccountStore>,
    (engines, derived, attached): (&Arc<Engines>, &Arc<DerivedServices>, &Arc<AttachedServices>),
) -> Result<Arc<Catalog>, Failure> {
    let settings = current.load();
    let mut directories = published;
    let mut add = |account: &str, paths: &[PathBuf]| -> Result<(), Failure> {
        let owner = account_named(accounts, account)?;
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
        let all = results_directory(&settings.data_dir);
        let directory = package_directory(&all, owner, &name);
        directories.push(directory.map_err(|error| Failure::Other(error.to_string()))?);
    }
    let (own, derived) = (Arc::clone(current), Arc::clone(derived));
    let store = Arc::clone(store);
    let runtime = Handle::current();
    let started = Catalog::start(CatalogOptions {
        directories,
        settings: Box::new(move |owner, name| service_settings(&own.load(), &derived, owner, name)),
        number: Box::new(move |owner, name| {
            // The catalog asks rarely, and its thread has nothing else to do meanwhile.
            let number = || runtime.block_on(service_number(&*store, owner, name));
            tokio::task::block_in_place(number).map_err(|error| error.to_string())
        }),
        engines: Arc::clone(engines),
        attached: Some(Arc::clone(attached)),
    });
    started.map_err(Failure::Other)
}

/// Returns the number of a service, and waits a while for a database that is away: a server without a service that others
/// have would fail its tasks.
async fn service_number(
    store: &dyn AccountStore,
    owner: AccountId,
    name: &str,
) -> DatabaseResult<i64> {
    let since = Instant::now();
    loop {
        match store.service_number(owner, name).await {
            Err(DatabaseError::Away { .. }) if since.elapsed() < NUMBER_PATIENCE => {
                tokio::time::sleep(NUMBER_PAUSE).await;
            }
            done => return done,
        }
    }
}

/// Rejects settings of missing services.
///
/// Settings of a package that is not served because it is faulty are accepted. If the name of a
/// faulty package is unknown, missing services are only logged.
fn check_services(
    settings: &GatewaySettings,
    catalog: &Catalog,
    (derived, tokens): (&DerivedServices, &[(WorkerToken, String)]),
) -> Result<(), Failure> {
    let proxies = settings.proxies.iter();
    let mut known: Vec<(String, String)> = proxies
        .map(|proxy| (proxy.account.clone(), proxy.name.clone()))
        .collect();
    let derived = derived.all().into_iter();
    known.extend(derived.map(|it| (it.is.owner_name.clone(), it.is.name.clone())));
    let attached = tokens.iter();
    known.extend(attached.map(|(token, owner)| (owner.clone(), token.service.clone())));
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
            tracing::warn!(%error, "settings for a missing service");
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
        "{}: no such directory",
        path.display()
    )))
}
