//! From settings to a running gateway: database, accounts, services, tasks; and back down again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::super::exit::Failure;
use crate::account::{
    AccountId, Accounts, Directory, Permissions, PredictConfigs, Secret, ServiceNumbers,
};
use crate::database::{DataLock, Database, Timestamp};
use crate::gateway::settings::{LOCAL_ACCOUNT, Proxy, Settings};
use crate::gateway::{Parts, Services};
use crate::runtime::machine::Machine;
use crate::service::engine::Engines;
use crate::service::{Catalog, CatalogOptions, Kind, PackageDirectory, Service, Upstream};
use crate::task::{Blobs, Caps, Queue, QueueOptions, SqliteTasks, TaskStore};

/// Requests per second of the first account.
const FIRST_RPS: u32 = 50;

/// A day, in seconds.
const DAY: f64 = 86_400.0;

/// Everything that runs behind the listener.
pub(super) struct Running {
    settings: Settings,
    directory: Arc<Directory>,
    configs: Arc<PredictConfigs>,
    services: Arc<Services>,
    engines: Arc<Engines>,
    tasks: Arc<SqliteTasks>,
    blobs: Arc<Blobs>,
    queue: Queue,
    first_key: Option<Secret>,
    _lock: DataLock,
}

impl Running {
    /// Starts everything, the queue last.
    pub(super) async fn start(settings: Settings) -> Result<Self, Failure> {
        let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
        let directory = &settings.data_dir;
        let lock = DataLock::take(directory).map_err(|error| other(&error))?;
        let database = Database::open(directory).map_err(|error| other(&error))?;
        let accounts = Accounts::open(&database).map_err(|error| other(&error))?;
        let first_key = first_account(&accounts)?;
        let caps = Caps {
            waiting: settings.limits.waiting,
            running: settings.limits.running,
            attempts: settings.limits.attempts,
        };
        let tasks = SqliteTasks::open(&database, caps).map_err(|error| other(&error))?;
        let blobs = Blobs::open(&directory.join("blobs")).map_err(|error| other(&error))?;
        let blobs = Arc::new(blobs);
        // Nobody else runs this store's tasks: what it says is running died with a former process.
        let orphans = tasks.recover(Timestamp::now()).await;
        let orphans = orphans.map_err(|error| other(&error))?;
        if orphans > 0 {
            tracing::warn!(tasks = orphans, "tasks were running when the server ended");
        }
        let numbers = ServiceNumbers::open(&database).map_err(|error| other(&error))?;
        let engines = engines(&settings)?;
        let catalog = catalog(&settings, &accounts, &numbers, &engines)?;
        let proxies = proxies(&settings, &accounts, &numbers)?;
        let services = Arc::new(Services::new(catalog, proxies));
        let finding = Arc::clone(&services);
        let queue = Queue::start(QueueOptions {
            store: Arc::clone(&tasks) as Arc<dyn TaskStore>,
            blobs: Arc::clone(&blobs),
            find: Box::new(move |owner, name| finding.find(owner, name)),
            max_running: settings.tasks.running,
            lease: Duration::from_secs_f64(settings.tasks.lease_s),
            answer_ttl: Duration::from_secs_f64(settings.tasks.answer_ttl_days * DAY),
        });
        Ok(Self {
            directory: Directory::watch(&database).map_err(|error| other(&error))?,
            configs: Arc::new(PredictConfigs::open(&database).map_err(|error| other(&error))?),
            settings,
            services,
            engines,
            tasks,
            blobs,
            queue,
            first_key,
            _lock: lock,
        })
    }

    /// What the gateway answers from.
    pub(super) fn parts(&self) -> Parts {
        Parts {
            settings: self.settings.clone(),
            directory: Arc::clone(&self.directory),
            configs: Arc::clone(&self.configs),
            services: Arc::clone(&self.services),
            engines: Arc::clone(&self.engines),
            store: Arc::clone(&self.tasks) as Arc<dyn TaskStore>,
            blobs: Arc::clone(&self.blobs),
            ids: self.tasks.ids(),
        }
    }

    pub(super) fn services(&self) -> &Services {
        &self.services
    }

    /// The key that was made at the first start of an empty data directory.
    pub(super) fn first_key(&self) -> Option<&Secret> {
        self.first_key.as_ref()
    }

    /// Lets running tasks end, puts the rest back, ends all sessions.
    pub(super) async fn stop(self, grace: Duration) {
        self.queue.stop(grace).await;
        if tokio::time::timeout(grace, self.services.stop())
            .await
            .is_err()
        {
            tracing::warn!("sessions were cut off at the end of the grace period");
        }
    }
}

/// Makes the account `local` with a key, if there is no account yet.
fn first_account(accounts: &Accounts) -> Result<Option<Secret>, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let now = Timestamp::now();
    if !accounts.list().map_err(|error| other(&error))?.is_empty() {
        return Ok(None);
    }
    let made = accounts.create(LOCAL_ACCOUNT, FIRST_RPS, now);
    made.map_err(|error| other(&error))?;
    let made = accounts.create_key(LOCAL_ACCOUNT, "first", Permissions::ALL, None, now);
    let (_, secret) = made.map_err(|error| other(&error))?;
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
    Ok(Engines::new(program, budget, library))
}

fn catalog(
    settings: &Settings,
    accounts: &Accounts,
    numbers: &ServiceNumbers,
    engines: &Arc<Engines>,
) -> Result<Arc<Catalog>, Failure> {
    let mut directories = Vec::new();
    let mut add = |account: &str, paths: &[PathBuf]| -> Result<(), Failure> {
        let owner = owner(accounts, account)?;
        for path in paths {
            require_directory(path)?;
            directories.push(PackageDirectory {
                path: path.clone(),
                owner,
                owner_name: account.to_owned(),
            });
        }
        Ok(())
    };
    add(LOCAL_ACCOUNT, &settings.packages)?;
    for publisher in &settings.publishers {
        add(&publisher.account, &publisher.packages)?;
    }
    let own = settings.clone();
    let numbers = numbers.clone();
    let started = Catalog::start(CatalogOptions {
        directories,
        // The settings were checked, for every name that they have.
        settings: Box::new(move |name| own.service(name).unwrap_or_default()),
        number: Box::new(move |owner, name| {
            numbers
                .number(owner, name)
                .map_err(|error| error.to_string())
        }),
        engines: Arc::clone(engines),
    });
    started.map_err(Failure::Other)
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

fn owner(accounts: &Accounts, name: &str) -> Result<AccountId, Failure> {
    let all = accounts
        .list()
        .map_err(|error| Failure::Other(error.to_string()))?;
    let found = all.into_iter().find(|account| account.name == name);
    found.map(|account| account.id).ok_or_else(|| {
        Failure::Other(format!(
            "there is no account `{name}`; make it with `pkgtool accounts create --name {name} \
             --rps 50`"
        ))
    })
}

fn proxies(
    settings: &Settings,
    accounts: &Accounts,
    numbers: &ServiceNumbers,
) -> Result<Vec<Service>, Failure> {
    let proxy = |proxy: &Proxy| {
        let owner = owner(accounts, &proxy.account)?;
        let shown = proxy.display_name.as_deref().unwrap_or(&proxy.name);
        let limit = settings.limits.answer_bytes;
        let upstream = Upstream::new(shown, &proxy.upstream, limit)
            .map_err(|error| Failure::Other(format!("proxy `{}`: {error}", proxy.name)))?;
        let service = settings.service(&proxy.name);
        let number = numbers.number(owner, &proxy.name);
        Ok(Service {
            id: number.map_err(|error| Failure::Other(error.to_string()))?,
            owner,
            owner_name: proxy.account.clone(),
            name: proxy.name.clone(),
            settings: service.map_err(|error| Failure::Other(error.to_string()))?,
            kind: Kind::Proxy(upstream),
        })
    };
    settings.proxies.iter().map(proxy).collect()
}
