//! Keeping the services in step: waits until a changed package is quiet, makes its services aside, and
//! swaps them in.
//!
//! Invariant: a package's services are swapped in only if its files are the same before it was
//! validated and after everything was made.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;
use tokio::task::{self, JoinError, JoinSet};

use super::super::{Device, Kind, Service};
use super::options::{CatalogOptions, PackageDirectory, Unserved};
use super::shared::{Shared, lock};
use super::stage::{self, Built};
use super::survey::{Fingerprint, Package, PackageKey, Survey};
use super::table::Table;

/// How long a package must not change before it is looked into.
const QUIET: Duration = Duration::from_millis(500);

/// How often a package that is not quiet is looked at.
const TICK: Duration = Duration::from_millis(100);

/// How long changes are gathered before the first look at them.
const GATHER: Duration = Duration::from_millis(50);

/// How often everything is looked at even if the system told of no change.
const POLL: Duration = Duration::from_secs(5);

/// How long a replaced service waits for requests that found it before it was replaced.
const GRACE: Duration = Duration::from_secs(10);

/// What is known of every package.
#[derive(Debug)]
pub(super) struct Book {
    held: BTreeMap<PackageKey, Held>,
    unreadable: Vec<Unserved>,
    /// Links that were not followed, as far as they were told.
    links: Vec<Unserved>,
}

/// A package as it was when it was looked into last.
#[derive(Debug)]
struct Held {
    fingerprint: Fingerprint,
    outcome: Result<Vec<Arc<Service>>, String>,
    /// Since when the package is fine and something else failed, which may work later.
    failed: Option<Instant>,
}

/// The loop that watches.
pub(super) struct Watch {
    shared: Arc<Shared>,
    wake: Arc<Notify>,
    /// How many directories were told to the watcher.
    watched: usize,
    /// Watches while it lives; `None` where the system refuses, then only the clock wakes.
    watcher: Option<RecommendedWatcher>,
    /// Packages that changed, and since when they are as they are. `None` is a package that is gone.
    changed: HashMap<PackageKey, (Option<Fingerprint>, Instant)>,
    /// Packages that are being made.
    staging: JoinSet<Staged>,
    staged: HashMap<task::Id, PackageKey>,
}

/// A package that was made aside.
struct Staged {
    package: Package,
    built: Result<Vec<Built>, String>,
    /// Whether its files are still the same.
    same: bool,
}

impl Book {
    pub(super) fn new() -> Self {
        Self {
            held: BTreeMap::new(),
            unreadable: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Notes what a survey passed over; whether what readers see is another thing now.
    pub(super) fn note(&mut self, unreadable: Vec<Unserved>, links: Vec<Unserved>) -> bool {
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

    /// Keeps what a package became, in place of what it was.
    pub(super) fn hold(
        &mut self,
        package: Package,
        built: Result<Vec<Built>, String>,
        options: &CatalogOptions,
    ) {
        let is_valid = built.is_ok();
        let outcome = built.and_then(|built| stage::number(built, &package, options));
        let held = Held {
            fingerprint: package.fingerprint,
            failed: (is_valid && outcome.is_err()).then(Instant::now),
            outcome,
        };
        self.held.insert(package.key, held);
    }

    fn table(&self, before: &Table) -> Table {
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
        Table::new(services, unserved, before)
    }
}

impl Held {
    /// Whether there is nothing new to find out.
    fn is_current(&self, now: &Fingerprint, options: &CatalogOptions) -> bool {
        let is_due = self.failed.is_some_and(|since| since.elapsed() >= POLL);
        let mut services = self.outcome.iter().flatten();
        let is_set_so =
            services.all(|it| (options.settings)(&it.owner_name, &it.name) == it.settings);
        self.fingerprint == *now && !is_due && is_set_so
    }
}

impl Shared {
    /// Shows readers what the book says; ends services that are not in it any more.
    pub(super) fn publish(self: &Arc<Self>, book: &Book) {
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

    /// Drains a service in the background; unless `at_once`, after those who found it let go of it.
    pub(super) fn end(&self, service: Arc<Service>, at_once: bool) {
        let mut stopped = self.stop.subscribe();
        let mut endings = lock(&self.endings);
        while endings.try_join_next().is_some() {}
        endings.spawn(async move {
            if !at_once {
                tokio::select! {
                    () = let_go(&service) => {}
                    () = tokio::time::sleep(GRACE) => {}
                    () = told(&mut stopped) => {}
                }
            }
            if let Some(device) = service.device() {
                device.drain().await;
            }
        });
    }
}

impl Service {
    /// The package's models behind it, if it is no proxy.
    pub fn device(&self) -> Option<&Arc<Device>> {
        match &self.kind {
            Kind::Device(device) => Some(device),
            Kind::Proxy(_) | Kind::Untrained(_) => None,
        }
    }
}

/// Loads a device's default model; that it cannot is told, and then told to whoever calls it.
pub(super) async fn warm(name: &str, device: &Device) {
    if let Err(error) = device.warm().await {
        tracing::warn!(service = name, %error, "warming up failed");
    }
}

impl Watch {
    /// Begins to watch; changes are looked at by [`Self::run`].
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let wake = Arc::clone(&shared.wake);
        let watcher = watcher(&shared, &wake);
        let watcher = watcher.map_err(|error| {
            let seconds = POLL.as_secs();
            tracing::warn!(%error, "changes of packages are seen every {seconds} s only");
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

    /// Watches until it is stopped.
    pub(super) async fn run(mut self, mut book: Book) {
        let mut stopped = self.shared.stop.subscribe();
        loop {
            self.look(&mut book).await;
            let is_quiet = self.changed.is_empty();
            let pause = if is_quiet { POLL } else { TICK };
            tokio::select! {
                () = told(&mut stopped) => break,
                Some(staged) = self.staging.join_next_with_id() => self.finish(&mut book, staged),
                () = self.wake.notified(), if is_quiet => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.staging.shutdown().await;
        drop(self.watcher);
    }

    /// Has the watcher watch directories that were added.
    fn watch_new(&mut self, directories: &[PackageDirectory]) {
        for directory in directories.iter().skip(self.watched) {
            let watcher = self.watcher.as_mut();
            let told = watcher.map(|it| it.watch(&directory.path, RecursiveMode::Recursive));
            if let Some(Err(error)) = told {
                let path = directory.path.display();
                let seconds = POLL.as_secs();
                tracing::warn!(%path, %error, "changes are seen every {seconds} s only");
            }
        }
        self.watched = directories.len();
    }

    /// Looks at all directories; what changed and is quiet begins to be made.
    async fn look(&mut self, book: &mut Book) {
        let directories = self.shared.directories.load_full();
        self.watch_new(&directories);
        let survey = task::spawn_blocking(move || Survey::of(&directories)).await;
        let survey = match survey {
            Ok(survey) => survey,
            Err(error) => {
                tracing::error!(%error, "looking at the packages failed");
                return;
            }
        };
        let mut publish = book.note(survey.unreadable, survey.links);
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

    /// Whether a changed package has been as it is for long enough; then it is no longer waited for.
    fn is_quiet(&mut self, key: &PackageKey, now: Option<&Fingerprint>) -> bool {
        match self.changed.get(key) {
            Some((seen, since)) if seen.as_ref() == now => {
                let is_quiet = since.elapsed() >= QUIET;
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

    /// Makes a package's services aside.
    fn stage(&mut self, package: Package) {
        let key = package.key.clone();
        let task = self.staging.spawn(make(Arc::clone(&self.shared), package));
        self.staged.insert(task.id(), key);
    }

    /// Swaps in what was made, unless the package changed meanwhile: then it is made again.
    fn finish(&mut self, book: &mut Book, staged: Result<(task::Id, Staged), JoinError>) {
        let staged = match staged {
            Ok((id, staged)) => {
                self.staged.remove(&id);
                staged
            }
            Err(error) => {
                tracing::error!(%error, "making a service failed");
                self.staged.remove(&error.id());
                return;
            }
        };
        if staged.same {
            book.hold(staged.package, staged.built, &self.shared.options);
            self.shared.publish(book);
            return;
        }
        for built in staged.built.into_iter().flatten() {
            tokio::spawn(async move { built.device.drain().await });
        }
    }
}

/// Ends when nobody else has the service.
async fn let_go(service: &Arc<Service>) {
    while Arc::strong_count(service) > 1 {
        tokio::time::sleep(TICK).await;
    }
}

/// Ends when the catalog does.
async fn told(stopped: &mut Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Makes a package's services and loads those that are to be warm.
async fn make(shared: Arc<Shared>, package: Package) -> Staged {
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
    let again = task::spawn_blocking(move || Survey::again(&home, &key));
    let again = again.await.ok().flatten();
    let same = again.is_some_and(|again| again.fingerprint == package.fingerprint);
    Staged {
        package,
        built,
        same,
    }
}

fn watcher(shared: &Shared, wake: &Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let wake = Arc::clone(wake);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Looking at files is no change of theirs.
        if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
            wake.notify_one();
        }
    })?;
    for directory in shared.directories.load().iter() {
        watcher.watch(&directory.path, RecursiveMode::Recursive)?;
    }
    Ok(watcher)
}
