//! Watches the package directories: waits until a changed package is quiet, builds its services in
//! the background and replaces the old ones.
//!
//! Invariant: services are replaced only if the package's files are the same before validation and
//! after the build.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;
use tokio::task::{self, JoinError, JoinSet};

use super::super::{Device, Service, ServiceKind};
use super::options::{CatalogOptions, PackageDirectory, Unserved};
use super::shared::{SharedCatalog, lock};
use super::stage::{self, BuiltService};
use super::survey::{Fingerprint, PackageKey, ServedPackage, Survey};
use super::table::ServiceTable;

/// Time without changes before a changed package is built.
const QUIET_PERIOD: Duration = Duration::from_millis(500);

/// Interval between checks of a package that is not quiet yet.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Time to gather change events before the first scan.
const GATHER_DELAY: Duration = Duration::from_millis(50);

/// Interval between scans when no change events arrive.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time that a replaced service waits for requests that already found it.
const REPLACEMENT_GRACE: Duration = Duration::from_secs(10);

/// The last known state of every package.
#[derive(Debug)]
pub(super) struct PackageStates {
    held: BTreeMap<PackageKey, PackageState>,
    unreadable: Vec<Unserved>,
    /// Links that were not followed and have been reported.
    links: Vec<Unserved>,
}

/// State of a package at its last build.
#[derive(Debug)]
struct PackageState {
    fingerprint: Fingerprint,
    outcome: Result<Vec<Arc<Service>>, String>,
    /// Time since when a valid package fails for another reason that may disappear.
    failed: Option<Instant>,
}

/// The watch loop.
pub(super) struct CatalogWatch {
    shared: Arc<SharedCatalog>,
    wake: Arc<Notify>,
    /// Number of directories that are registered with the watcher.
    watched: usize,
    /// The file system watcher; `None` if the system refuses it, so that only polling remains.
    watcher: Option<RecommendedWatcher>,
    /// Changed packages with their current state and the time of the last change. `None` means that
    /// the package was removed.
    changed: HashMap<PackageKey, (Option<Fingerprint>, Instant)>,
    /// Builds in progress.
    staging: JoinSet<StagedPackage>,
    staged: HashMap<task::Id, PackageKey>,
}

/// A package built in the background.
struct StagedPackage {
    package: ServedPackage,
    built: Result<Vec<BuiltService>, String>,
    /// True if its files stayed the same during the build.
    same: bool,
}

impl PackageStates {
    pub(super) fn new() -> Self {
        Self {
            held: BTreeMap::new(),
            unreadable: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Records the directories and links that a scan skipped. Returns whether the unreadable ones
    /// changed.
    pub(super) fn record_skipped(
        &mut self,
        unreadable: Vec<Unserved>,
        links: Vec<Unserved>,
    ) -> bool {
        for link in &links {
            if !self.links.contains(link) {
                let path = link.path.display();
                tracing::warn!(package = %path, reason = link.reason, "not followed");
            }
        }
        self.links = links;
        let is_other = self.unreadable != unreadable;
        self.unreadable = unreadable;
        is_other
    }

    /// Stores the result of a package's build, replacing the previous one.
    pub(super) fn set_package(
        &mut self,
        package: ServedPackage,
        built: Result<Vec<BuiltService>, String>,
        options: &CatalogOptions,
    ) {
        let is_valid = built.is_ok();
        let outcome = built.and_then(|built| stage::number(built, &package, options));
        let held = PackageState {
            fingerprint: package.fingerprint,
            failed: (is_valid && outcome.is_err()).then(Instant::now),
            outcome,
        };
        self.held.insert(package.key, held);
    }

    fn table(&self, before: &ServiceTable) -> ServiceTable {
        let mut services = Vec::new();
        let mut unserved = self.unreadable.clone();
        for (key, held) in &self.held {
            match &held.outcome {
                Ok(made) => {
                    let made = made.iter().map(|it| (key.clone(), Arc::clone(it)));
                    services.extend(made);
                }
                Err(reason) => unserved.push(Unserved {
                    path: key.path.clone(),
                    reason: reason.clone(),
                }),
            }
        }
        ServiceTable::new(services, unserved, before)
    }
}

impl PackageState {
    /// Returns whether the build is up to date.
    fn is_current(&self, now: &Fingerprint, options: &CatalogOptions) -> bool {
        let is_due = self
            .failed
            .is_some_and(|since| since.elapsed() >= POLL_INTERVAL);
        let mut services = self.outcome.iter().flatten();
        let is_set_so =
            services.all(|it| (options.settings)(&it.owner_name, &it.name) == it.settings);
        self.fingerprint == *now && !is_due && is_set_so
    }
}

impl SharedCatalog {
    /// Publishes the current state to readers and ends services that are gone.
    pub(super) fn publish(self: &Arc<Self>, book: &PackageStates) {
        let before = self.table.load_full();
        let after = Arc::new(book.table(&before));
        self.table.store(Arc::clone(&after));
        for unserved in after.unserved.iter() {
            if !before.unserved.contains(unserved) {
                let path = unserved.path.display();
                tracing::warn!(package = %path, reason = %unserved.reason, "not served");
            }
        }
        for service in after.services.iter() {
            let (service_name, id, owner) = (&service.name, service.id, &service.owner_name);
            match before.named(service.owner, &service.name) {
                None => tracing::info!(service = %service_name, id, %owner, "served"),
                Some(old) if Arc::ptr_eq(old, service) => {}
                Some(_) => tracing::info!(service = %service_name, id, %owner, "replaced"),
            }
        }
        for old in before.services.iter() {
            match after.named(old.owner, &old.name) {
                Some(new) if Arc::ptr_eq(old, new) => {}
                Some(_) => self.end(Arc::clone(old), false),
                None => {
                    tracing::info!(service = %old.name, id = old.id, owner = %old.owner_name, "removed");
                    self.end(Arc::clone(old), true);
                }
            }
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Drains a service in the background. Unless `at_once` is set, it first waits for requests
    /// that already found the service.
    pub(super) fn end(&self, service: Arc<Service>, at_once: bool) {
        let mut stopped = self.stop.subscribe();
        let mut endings = lock(&self.endings);
        while endings.try_join_next().is_some() {}
        endings.spawn(async move {
            if !at_once {
                tokio::select! {
                    () = until_unused(&service) => {}
                    () = tokio::time::sleep(REPLACEMENT_GRACE) => {}
                    () = until_stopped(&mut stopped) => {}
                }
            }
            if let Some(device) = service.device() {
                device.drain().await;
            }
        });
    }
}

impl Service {
    /// Returns the package's device, if the service is one of a package.
    pub fn device(&self) -> Option<&Arc<Device>> {
        match &self.kind {
            ServiceKind::Device(device) => Some(device),
            ServiceKind::Proxy(_) | ServiceKind::Attached(_) | ServiceKind::Untrained(_) => None,
        }
    }
}

/// Loads a device's default model. A failure is logged here and returned to later callers.
pub(super) async fn warm(name: &str, device: &Device) {
    if let Err(error) = device.warm().await {
        tracing::warn!(service = name, %error, "warm-up failed");
    }
}

impl CatalogWatch {
    /// Starts to watch; [`Self::run`] processes the changes.
    pub(super) fn new(shared: Arc<SharedCatalog>) -> Self {
        let wake = Arc::clone(&shared.wake);
        let watcher = watcher(&shared, &wake);
        let watcher = watcher.map_err(|error| {
            let seconds = POLL_INTERVAL.as_secs();
            tracing::warn!(%error, "file watching is unavailable; packages are checked every {seconds} s");
        });
        Self {
            watched: shared.directories.load().len(),
            shared,
            wake,
            watcher: watcher.ok(),
            changed: HashMap::new(),
            staging: JoinSet::new(),
            staged: HashMap::new(),
        }
    }

    /// Watches until the catalog is stopped.
    pub(super) async fn run(mut self, mut book: PackageStates) {
        let mut stopped = self.shared.stop.subscribe();
        loop {
            self.look(&mut book).await;
            let is_quiet = self.changed.is_empty();
            let pause = if is_quiet {
                POLL_INTERVAL
            } else {
                CHECK_INTERVAL
            };
            tokio::select! {
                () = until_stopped(&mut stopped) => break,
                Some(staged) = self.staging.join_next_with_id() => self.finish(&mut book, staged),
                () = self.wake.notified(), if is_quiet => tokio::time::sleep(GATHER_DELAY).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.staging.shutdown().await;
        drop(self.watcher);
    }

    /// Registers added directories with the watcher.
    fn watch_new(&mut self, directories: &[PackageDirectory]) {
        for directory in directories.iter().skip(self.watched) {
            let watcher = self.watcher.as_mut();
            let told = watcher.map(|it| it.watch(&directory.path, RecursiveMode::Recursive));
            if let Some(Err(error)) = told {
                let path = directory.path.display();
                let seconds = POLL_INTERVAL.as_secs();
                tracing::warn!(%path, %error, "file watching is unavailable; the directory is checked every {seconds} s");
            }
        }
        self.watched = directories.len();
    }

    /// Scans all directories and starts to build changed packages that are quiet.
    async fn look(&mut self, book: &mut PackageStates) {
        let directories = self.shared.directories.load_full();
        self.watch_new(&directories);
        let survey = task::spawn_blocking(move || Survey::of(&directories)).await;
        let survey = match survey {
            Ok(survey) => survey,
            Err(error) => {
                tracing::error!(%error, "scanning the packages failed");
                return;
            }
        };
        let mut publish = book.record_skipped(survey.unreadable, survey.links);
        let gone = book
            .held
            .keys()
            .filter(|key| !survey.packages.contains_key(*key));
        let gone: Vec<PackageKey> = gone.cloned().collect();
        self.changed
            .retain(|key, _| survey.packages.contains_key(key) || gone.contains(key));
        for key in gone {
            if self.is_quiet(&key, None) {
                book.held.remove(&key);
                publish = true;
            }
        }
        for (key, package) in survey.packages {
            if self.staged.values().any(|staged| *staged == key) {
                continue;
            }
            let known = book.held.get(&key);
            if known.is_some_and(|held| held.is_current(&package.fingerprint, &self.shared.options))
            {
                self.changed.remove(&key);
            } else if self.is_quiet(&key, Some(&package.fingerprint)) {
                self.stage(package);
            }
        }
        if publish {
            self.shared.publish(book);
        }
    }

    /// Returns whether a changed package has been unchanged for long enough, and stops tracking it
    /// if so.
    fn is_quiet(&mut self, key: &PackageKey, now: Option<&Fingerprint>) -> bool {
        match self.changed.get(key) {
            Some((seen, since)) if seen.as_ref() == now => {
                let is_quiet = since.elapsed() >= QUIET_PERIOD;
                if is_quiet {
                    self.changed.remove(key);
                }
                is_quiet
            }
            _ => {
                self.changed
                    .insert(key.clone(), (now.cloned(), Instant::now()));
                false
            }
        }
    }

    /// Starts to build a package's services in the background.
    fn stage(&mut self, package: ServedPackage) {
        let key = package.key.clone();
        let task = self.staging.spawn(make(Arc::clone(&self.shared), package));
        self.staged.insert(task.id(), key);
    }

    /// Publishes the built services. If the package changed meanwhile, they are discarded and built
    /// again.
    fn finish(
        &mut self,
        book: &mut PackageStates,
        staged: Result<(task::Id, StagedPackage), JoinError>,
    ) {
        let staged = match staged {
            Ok((id, staged)) => {
                self.staged.remove(&id);
                staged
            }
            Err(error) => {
                tracing::error!(%error, "building a service failed");
                self.staged.remove(&error.id());
                return;
            }
        };
        if staged.same {
            book.set_package(staged.package, staged.built, &self.shared.options);
            self.shared.publish(book);
            return;
        }
        for built in staged.built.into_iter().flatten() {
            tokio::spawn(async move { built.device.drain().await });
        }
    }
}

/// Waits until nobody else uses the service.
async fn until_unused(service: &Arc<Service>) {
    while Arc::strong_count(service) > 1 {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Waits until the catalog is stopped.
async fn until_stopped(stopped: &mut Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Builds a package's services and loads those with `warm_up`.
async fn make(shared: Arc<SharedCatalog>, package: ServedPackage) -> StagedPackage {
    let (aside, copy) = (Arc::clone(&shared), package.clone());
    let built = task::spawn_blocking(move || stage::build(&copy, &aside.options)).await;
    let built = built.unwrap_or_else(|error| Err(format!("validation failed: {error}")));
    for built in built.iter().flatten() {
        let owner = package.home.owner;
        let table = shared.table.load_full();
        let holder = table.holder(owner, &built.name);
        if built.settings.warm_up && holder.is_none_or(|holder| *holder == package.key) {
            warm(&built.name, &built.device).await;
        }
    }
    let key = package.key.clone();
    let home = package.home.clone();
    let again = task::spawn_blocking(move || Survey::rescan_package(&home, &key));
    let again = again.await.ok().flatten();
    let same = again.is_some_and(|again| again.fingerprint == package.fingerprint);
    StagedPackage {
        package,
        built,
        same,
    }
}

fn watcher(shared: &SharedCatalog, wake: &Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let wake = Arc::clone(wake);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Read access does not change files.
        if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
            wake.notify_one();
        }
    })?;
    for directory in shared.directories.load().iter() {
        watcher.watch(&directory.path, RecursiveMode::Recursive)?;
    }
    Ok(watcher)
}
