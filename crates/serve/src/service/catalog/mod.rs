//! The catalog of services, kept in sync with the package directories on disk.
//!
//! Invariant: readers see a complete service or none. A service is replaced only after its package
//! was validated and did not change meanwhile.

mod options;
mod shared;
mod stage;
mod survey;
mod table;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use rayon::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::watch::{self as channel, Receiver};
use tokio::task::JoinHandle;

use super::Service;
use crate::account::AccountId;
pub use options::{CatalogOptions, Numbering, PackageDirectory, SettingsOf, Unserved};
use pkgtool_base::source::bounds;

use shared::{SharedCatalog, lock};
use survey::Survey;
use watch::{CatalogWatch, PackageStates};

/// The services of a server.
#[derive(Debug)]
pub struct Catalog {
    shared: Arc<SharedCatalog>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

impl Catalog {
    /// Reads the directories and starts to watch them. Must be called on a tokio runtime.
    pub fn start(options: CatalogOptions) -> Result<Arc<Self>, String> {
        let runtime = Handle::try_current().map_err(|error| error.to_string())?;
        let mut options = checked(options)?;
        let directories = std::mem::take(&mut options.directories);
        let shared = Arc::new(SharedCatalog {
            directories: ArcSwap::from_pointee(directories),
            options,
            table: ArcSwap::default(),
            changes: channel::channel(0).0,
            stop: channel::channel(false).0,
            wake: Arc::default(),
            endings: Mutex::default(),
            warming: Mutex::default(),
        });
        // Start watching before the first scan, so that no later change is missed.
        let watch = CatalogWatch::new(Arc::clone(&shared));
        let book = initial_scan(&shared);
        shared.publish(&book);
        warm_all(&shared, &runtime);
        let watch = runtime.spawn(watch.run(book));
        Ok(Arc::new(Self {
            shared,
            watch: Mutex::new(Some(watch)),
        }))
    }

    /// Returns the service with this name or number.
    pub fn find(&self, owner: AccountId, model: &str) -> Option<Arc<Service>> {
        self.shared.table.load().find(owner, model).cloned()
    }

    /// Returns all services, ordered by owner and name.
    pub fn all(&self) -> Arc<Vec<Arc<Service>>> {
        Arc::clone(&self.shared.table.load().services)
    }

    /// Returns the packages that cannot be served.
    pub fn unserved(&self) -> Arc<Vec<Unserved>> {
        Arc::clone(&self.shared.table.load().unserved)
    }

    /// Returns the services that the packages on disk currently request, served or not: owner name
    /// and service name. The service name is `None` if the config does not determine it.
    pub fn wanted(&self) -> Vec<(String, Option<String>)> {
        let directories = self.shared.directories.load_full();
        let packages = Survey::of(&directories).packages.into_values();
        let of = |package: survey::ServedPackage| {
            let names: Vec<_> = stage::names(&package).collect();
            let owner = package.home.owner_name;
            names.into_iter().map(move |name| (owner.clone(), name))
        };
        packages.flat_map(of).collect()
    }

    /// Returns a counter of changes to [`Self::all`] and [`Self::unserved`].
    pub fn changes(&self) -> Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Returns the services whose models are loaded at the start, and are not loaded yet, by owner and name.
    pub fn warming(&self) -> Vec<(AccountId, String)> {
        lock(&self.shared.warming).iter().cloned().collect()
    }

    /// Serves the packages of another existing directory.
    pub fn add_directory(&self, directory: PackageDirectory) -> Result<(), String> {
        let directory = absolute(directory)?;
        if self.shared.directories.load().contains(&directory) {
            return Ok(());
        }
        self.shared.directories.rcu(|known| {
            let mut all = Vec::clone(known);
            if !all.contains(&directory) {
                all.push(directory.clone());
            }
            all
        });
        self.look_again();
        Ok(())
    }

    /// Rescans packages and settings immediately.
    pub fn look_again(&self) {
        self.shared.wake.notify_one();
    }

    /// Ends all sessions after their running requests.
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
                tracing::error!(%error, "draining a service failed");
            }
        }
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}

/// Checks that the directories exist, and makes their paths absolute.
fn checked(mut options: CatalogOptions) -> Result<CatalogOptions, String> {
    let directories = options.directories.into_iter().map(absolute);
    options.directories = directories.collect::<Result<_, _>>()?;
    Ok(options)
}

fn absolute(mut directory: PackageDirectory) -> Result<PackageDirectory, String> {
    let shown = directory.path.display().to_string();
    let is_there = std::fs::read_dir(&directory.path);
    is_there.map_err(|error| format!("{shown}: cannot read the package directory: {error}"))?;
    directory.path =
        std::path::absolute(&directory.path).map_err(|error| format!("{shown}: {error}"))?;
    bounds::choose(&directory.path);
    Ok(directory)
}

/// Builds all present packages. The watch handles packages that change meanwhile.
fn initial_scan(shared: &SharedCatalog) -> PackageStates {
    let options = &shared.options;
    let directories = shared.directories.load_full();
    let survey = Survey::of(&directories);
    let mut book = PackageStates::new();
    book.record_skipped(survey.unreadable, survey.links);
    let packages: Vec<_> = survey.packages.into_values().collect();
    let built: Vec<_> = packages
        .into_par_iter()
        .map(|package| {
            let built = stage::build(&package, options);
            (package, built)
        })
        .collect();
    let again = Survey::of(&directories).packages;
    // Numbers are assigned sequentially, so that they do not depend on thread timing.
    for (package, built) in built {
        let now = again.get(&package.key);
        if now.is_some_and(|now| now.fingerprint == package.fingerprint) {
            book.set_package(package, built, options);
        }
    }
    book
}

/// Loads the models of the services with `warm_up` in the background.
fn warm_all(shared: &Arc<SharedCatalog>, runtime: &Handle) {
    for service in shared.table.load().services.iter() {
        let Some(device) = service.device().filter(|_| service.settings.warm_up) else {
            continue;
        };
        let (name, device) = (service.name.clone(), Arc::clone(device));
        let (shared, key) = (Arc::clone(shared), (service.owner, name.clone()));
        lock(&shared.warming).insert(key.clone());
        runtime.spawn(async move {
            watch::warm(&name, &device).await;
            lock(&shared.warming).remove(&key);
            if let Some(attached) = &shared.options.attached {
                attached.resume();
            }
        });
    }
}

/// Checks the packages below a directory as a catalog would, and returns the names of their services. The error has one
/// line per finding.
pub fn check_packages(directory: &Path) -> Result<Vec<String>, String> {
    let shown = directory.display();
    let home = absolute(PackageDirectory {
        path: directory.to_owned(),
        owner: AccountId(0),
        owner_name: String::new(),
        named_by_folders: false,
        left_out: Vec::new(),
    })?;
    let survey = Survey::of(std::slice::from_ref(&home));
    if let Some(skipped) = survey.unreadable.iter().chain(&survey.links).next() {
        return Err(format!("{}: {}", skipped.path.display(), skipped.reason));
    }
    if survey.packages.is_empty() {
        return Err(format!(
            "{shown}: no packages found; expected a `config.json` there or below"
        ));
    }
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let real_home = real(&home.path);
    let mut names = BTreeSet::new();
    for package in survey.packages.into_values() {
        if !package.key.path.starts_with(&home.path) {
            return Err(format!(
                "{shown}: this is the directory of one backend; give the directory above it"
            ));
        }
        stage::validate(&package)?;
        let is_outside =
            |path: &&PathBuf| !path.starts_with(&home.path) && !real(path).starts_with(&real_home);
        if let Some(outside) = package.files().iter().find(is_outside) {
            return Err(format!(
                "{}: the file is outside of {shown}; give a directory that has all files",
                outside.display()
            ));
        }
        for name in stage::names(&package) {
            names.insert(name.ok_or_else(|| format!("{shown}: missing model token"))?);
        }
    }
    Ok(names.into_iter().collect())
}
