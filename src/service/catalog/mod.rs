//! The services of a server, kept in step with the packages' directories.
//!
//! Invariant: readers see a whole service or none; a service is replaced only by one whose package
//! was validated and did not change meanwhile.

mod stage;
mod survey;
mod table;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rayon::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::watch::{self as channel, Receiver, Sender};
use tokio::task::{JoinHandle, JoinSet};

use super::engine::Engines;
use super::{Service, ServiceSettings};
use crate::account::AccountId;
use survey::Survey;
use table::Table;
use watch::{Book, Watch};

/// A directory of packages and whose services they become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageDirectory {
    /// The directory.
    pub path: PathBuf,
    /// The publisher's account.
    pub owner: AccountId,
    /// Its name.
    pub owner_name: String,
}

/// Gives the lasting number of an account's service of this name, or says why there is none now.
pub type Numbering = Box<dyn Fn(AccountId, &str) -> Result<i64, String> + Send + Sync>;

/// What a catalog is made of.
pub struct CatalogOptions {
    /// Where packages are.
    pub directories: Vec<PackageDirectory>,
    /// Settings of a service by its name.
    pub settings: Box<dyn Fn(&str) -> ServiceSettings + Send + Sync>,
    /// The lasting number of a service.
    pub number: Numbering,
    /// Where sessions come from.
    pub engines: Arc<Engines>,
}

/// A package that is not served, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// The package's directory or config.
    pub path: PathBuf,
    /// Why, in a line for each finding.
    pub reason: String,
}

/// The services of a server.
#[derive(Debug)]
pub struct Catalog {
    shared: Arc<Shared>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

/// What the catalog and its watch have in common.
struct Shared {
    options: CatalogOptions,
    table: ArcSwap<Table>,
    changes: Sender<u64>,
    /// Whether the catalog was stopped, or dropped.
    stop: Sender<bool>,
    /// Services that were taken away and let their last requests end.
    endings: Mutex<JoinSet<()>>,
}

impl Catalog {
    /// Reads the directories once and watches them from then on. Must be called on a tokio runtime.
    pub fn start(options: CatalogOptions) -> Result<Arc<Self>, String> {
        let runtime = Handle::try_current().map_err(|error| error.to_string())?;
        let options = checked(options)?;
        let shared = Arc::new(Shared {
            options,
            table: ArcSwap::default(),
            changes: channel::channel(0).0,
            stop: channel::channel(false).0,
            endings: Mutex::default(),
        });
        // Before the first look: what changes after it is not missed.
        let watch = Watch::new(Arc::clone(&shared));
        let book = first_look(&shared);
        shared.publish(&book);
        warm_all(&shared, &runtime);
        let watch = runtime.spawn(watch.run(book));
        Ok(Arc::new(Self {
            shared,
            watch: Mutex::new(Some(watch)),
        }))
    }

    /// The service of this name or number.
    pub fn find(&self, owner: AccountId, model: &str) -> Option<Arc<Service>> {
        self.shared.table.load().find(owner, model).cloned()
    }

    /// All services, in the order of owner and name.
    pub fn all(&self) -> Arc<Vec<Arc<Service>>> {
        Arc::clone(&self.shared.table.load().services)
    }

    /// Packages that are there but not served.
    pub fn unserved(&self) -> Arc<Vec<Unserved>> {
        Arc::clone(&self.shared.table.load().unserved)
    }

    /// Counts the changes of what [`Self::all`] and [`Self::unserved`] give.
    pub fn changes(&self) -> Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Ends all sessions; what runs is let end.
    pub async fn stop(&self) {
        self.shared.stop.send_replace(true);
        let watch = lock(&self.watch).take();
        if let Some(watch) = watch
            && let Err(error) = watch.await
        {
            tracing::error!(%error, "watching the packages failed");
        }
        for service in self.all().iter() {
            self.shared.end(Arc::clone(service), true);
        }
        let mut endings = std::mem::take(&mut *lock(&self.shared.endings));
        while let Some(ending) = endings.join_next().await {
            if let Err(error) = ending {
                tracing::error!(%error, "ending a service failed");
            }
        }
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}

/// Directories that are there, by paths that a change of the working directory does not change.
fn checked(mut options: CatalogOptions) -> Result<CatalogOptions, String> {
    for directory in &mut options.directories {
        let shown = directory.path.display().to_string();
        let is_there = std::fs::read_dir(&directory.path);
        is_there.map_err(|error| format!("{shown}: no directory of packages: {error}"))?;
        directory.path =
            std::path::absolute(&directory.path).map_err(|error| format!("{shown}: {error}"))?;
    }
    Ok(options)
}

/// Makes everything that is there. What changes meanwhile is left to the watch.
fn first_look(shared: &Shared) -> Book {
    let options = &shared.options;
    let survey = Survey::of(&options.directories);
    let mut book = Book::new(survey.unreadable);
    let packages: Vec<_> = survey.packages.into_values().collect();
    let built: Vec<_> = packages
        .into_par_iter()
        .map(|package| {
            let built = stage::build(&package, options);
            (package, built)
        })
        .collect();
    let again = Survey::of(&options.directories).packages;
    // One after the other, so that numbers do not depend on which thread was first.
    for (package, built) in built {
        let now = again.get(&package.key);
        if now.is_some_and(|now| now.fingerprint == package.fingerprint) {
            book.hold(package, built, options);
        }
    }
    book
}

fn warm_all(shared: &Arc<Shared>, runtime: &Handle) {
    for service in shared.table.load().services.iter() {
        if service.settings.warm_up {
            let service = Arc::clone(service);
            runtime.spawn(async move {
                if let Some(device) = service.device() {
                    watch::warm(&service.name, device).await;
                }
            });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directories = &self.options.directories;
        f.debug_struct("Shared")
            .field("directories", directories)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
