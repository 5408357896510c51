//! Copies of the published packages on this server.
//!
//! Invariant: at every moment the directory of a package has the complete files of one version. A package that cannot be
//! fetched is served as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::cache::{PackageCache, link_or_copy};
use super::error::PublishError;
use super::manifest::PackageManifest;
use super::objects::PackageObjects;
use super::published::{PackageKind, PublishedPackage, PublishedPackages};
use super::publisher::{NewPackage, PackagePublisher};
use super::replace::replace_directory;
use crate::account::AccountId;
use crate::database::{free_bytes, make_directory, sync_tree};
use crate::service::{Catalog, PackageDirectory};

/// Interval between looks at what is published, and the longest pause before a package that failed is tried again.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
const MAX_RETRY_PAUSE: Duration = Duration::from_mins(1);
/// Folders and files below the directory of the mirror.
const FETCHED: &str = "fetched";
const MAKING: &str = "making";
const SERVED: &str = "served";
const RECORD: &str = "versions.json";

/// The places that a mirror copies from and to.
#[derive(Debug)]
pub struct MirrorOptions {
    /// The published packages.
    pub packages: PublishedPackages,
    /// Its objects.
    pub objects: PackageObjects,
    /// Directory of the copies.
    pub directory: PathBuf,
    /// Directory of the results of trainings, with a folder for each account.
    pub trained: PathBuf,
    /// Free disk space that copies must leave, in bytes.
    pub least_free_bytes: u64,
}

/// The copies of a server.
#[derive(Debug)]
pub struct PackageMirror {
    options: MirrorOptions,
    cache: PackageCache,
    /// The version in each directory.
    versions: Mutex<BTreeMap<String, String>>,
    /// The versions that the cache may hold.
    kept: Mutex<BTreeSet<String>>,
    /// The packages that could not be fetched.
    faults: Mutex<BTreeMap<String, FetchFault>>,
}

/// Why a package could not be fetched.
#[derive(Debug)]
struct FetchFault {
    version: String,
    /// It is logged once.
    reason: String,
    pause: Duration,
    next_try: Instant,
}

/// The result of a look at the published packages.
#[derive(Debug)]
pub struct MirrorLook {
    /// The directories to serve.
    pub directories: Vec<PackageDirectory>,
    is_changed: bool,
    /// The reason why something could not be removed.
    fault: Option<PublishError>,
}

impl PackageMirror {
    /// Opens the copies of an earlier start, if there are any.
    pub fn open(options: MirrorOptions) -> Result<Self, PublishError> {
        make_directory(&options.directory)?;
        let cache = PackageCache::open(options.directory.join(FETCHED), u64::MAX)?;
        // Without its record a package is fetched again.
        let record = fs::read(options.directory.join(RECORD)).unwrap_or_default();
        Ok(Self {
            cache,
            versions: Mutex::new(serde_json::from_slice(&record).unwrap_or_default()),
            kept: Mutex::default(),
            faults: Mutex::default(),
            options,
        })
    }

    /// Fetches new versions, and removes packages that are no longer published. Failures are logged.
    pub async fn look(&self) -> Result<MirrorLook, PublishError> {
        let published = self.options.packages.list().await?;
        let versions: BTreeSet<String> = published.iter().map(|it| it.version.clone()).collect();
        let mut look = MirrorLook {
            directories: Vec::new(),
            is_changed: false,
            fault: None,
        };
        let known: BTreeSet<String> = published.iter().map(key).collect();
        lock(&self.faults).retain(|key, _| known.contains(key));
        for package in &published {
            if self.waits(package) {
                continue;
            }
            match self.renew(package, &versions).await {
                Ok(is_changed) => {
                    look.is_changed |= is_changed;
                    lock(&self.faults).remove(&key(package));
                }
                Err(error) => self.failed(package, error.to_string()),
            }
        }
        let directories = published.iter();
        look.directories = directories
            .filter_map(|package| self.directory_to_serve(package))
            .collect();
        match self.remove_others(&known) {
            Ok(is_changed) => look.is_changed |= is_changed,
            Err(error) => look.fault = Some(error),
        }
        if lock(&self.faults).is_empty() && *lock(&self.kept) != versions {
            match self.cache.keep(&versions) {
                Ok(()) => *lock(&self.kept) = versions,
                Err(error) => look.fault = Some(error.into()),
            }
        }
        Ok(look)
    }

    /// Returns whether this version of a package could not be fetched, and it is too early to try again.
    fn waits(&self, package: &PublishedPackage) -> bool {
        let faults = lock(&self.faults);
        let fault = faults.get(&key(package));
        fault.is_some_and(|it| it.version == package.version && it.next_try > Instant::now())
    }

    /// A version of a package could not be fetched.
    fn failed(&self, package: &PublishedPackage, reason: String) {
        let mut faults = lock(&self.faults);
        let before = faults.remove(&key(package));
        let before = before.filter(|it| it.version == package.version);
        if before.as_ref().is_none_or(|it| it.reason != reason) {
            let (owner, name) = (&package.owner_name, &package.name);
            tracing::error!(owner, name, reason, "cannot fetch a published package");
        }
        let pause = before.map_or(LOOK_INTERVAL, |it| (it.pause * 2).min(MAX_RETRY_PAUSE));
        let fault = FetchFault {
            version: package.version.clone(),
            reason,
            pause,
            next_try: Instant::now() + pause,
        };
        faults.insert(key(package), fault);
    }

    /// Keeps the copies current, and the catalog that serves them, as long as the result lives.
    pub fn follow(self: Arc<Self>, catalog: Arc<Catalog>) -> JoinSet<()> {
        JoinSet::from_iter([async move {
            let mut last = None;
            loop {
                tokio::time::sleep(LOOK_INTERVAL).await;
                let error = match self.look().await {
                    Ok(look) => {
                        if look.is_changed {
                            serve(&catalog, look.directories);
                        }
                        look.fault
                    }
                    Err(error) => Some(error),
                };
                let error = error.map(|error| error.to_string());
                if let Some(error) = error.as_ref().filter(|it| last.as_ref() != Some(*it)) {
                    tracing::warn!(error, "cannot follow the published packages");
                }
                last = error;
            }
        }])
    }

    /// Publishes the result of a training for all servers. Returns its version.
    pub async fn share(
        &self,
        (owner, owner_name): (AccountId, &str),
        name: &str,
        directory: &Path,
    ) -> Result<String, PublishError> {
        let (packages, objects) = (&self.options.packages, &self.options.objects);
        let publisher = PackagePublisher::new(packages.clone(), objects.clone());
        let new = NewPackage {
            owner,
            owner_name,
            name,
            kind: PackageKind::Trained,
            directory,
        };
        Ok(publisher.publish(new).await?.package.version)
    }

    /// Records that the directory of a training's result has this version.
    pub fn adopt(&self, owner: AccountId, name: &str, version: &str) -> Result<(), PublishError> {
        self.record(&key_of(PackageKind::Trained, owner, name), Some(version))
    }

    /// Fetches a package, unless its directory has this version. Returns whether it was fetched.
    async fn renew(
        &self,
        package: &PublishedPackage,
        in_use: &BTreeSet<String>,
    ) -> Result<bool, PublishError> {
        let (key, place) = (key(package), self.place(package)?);
        if lock(&self.versions).get(&key) == Some(&package.version) && place.is_dir() {
            return Ok(false);
        }
        let objects = &self.options.objects;
        let manifest = objects.manifest(&package.version).await?;
        self.check_room(&manifest)?;
        let folder = self.cache.folder(objects, &manifest, in_use).await?;
        let making = self.options.directory.join(MAKING);
        let target = place.clone();
        let placed = tokio::task::spawn_blocking(move || {
            put_in_place(&folder, &manifest, (&making, &target))
        });
        let placed = placed.await.map_err(io::Error::other).and_then(|it| it);
        placed.map_err(|error| PublishError::Local {
            path: place,
            reason: error.to_string(),
        })?;
        self.record(&key, Some(&package.version))?;
        let version = package.version.get(..12).unwrap_or_default();
        let (owner, name) = (&package.owner_name, &package.name);
        tracing::info!(
            owner,
            name,
            version,
            bytes = package.bytes,
            "fetched a published package"
        );
        Ok(true)
    }

    fn check_room(&self, manifest: &PackageManifest) -> Result<(), PublishError> {
        let directory = &self.options.directory;
        let needed = manifest
            .bytes()
            .saturating_add(self.options.least_free_bytes);
        match free_bytes(directory) {
            Some(free) if free < needed => Err(PublishError::Local {
                path: directory.clone(),
                reason: format!(
                    "the package has {} bytes, and {free} are free, of which {} must stay free; make room",
                    manifest.bytes(),
                    self.options.least_free_bytes
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Removes the directories of packages that are no longer published. Results of trainings stay.
    fn remove_others(&self, known: &BTreeSet<String>) -> Result<bool, PublishError> {
        let all = lock(&self.versions).clone();
        let mut is_changed = false;
        for gone in all.keys().filter(|key| !known.contains(*key)) {
            if let Some(below) = gone.strip_prefix(PackageKind::Published.word()) {
                let served = self.options.directory.join(SERVED);
                let place = served.join(below.trim_start_matches('/'));
                let removed = fs::remove_dir_all(&place).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                });
                removed.map_err(|error| PublishError::Local {
                    path: place.clone(),
                    reason: error.to_string(),
                })?;
                tracing::info!(package = %place.display(), "removed a package that is no longer published");
                is_changed = true;
            }
            self.record(gone, None)?;
        }
        Ok(is_changed)
    }

    /// Returns the directory of a package.
    fn place(&self, package: &PublishedPackage) -> Result<PathBuf, PublishError> {
        let mut parts = Path::new(&package.name).components();
        let (first, second) = (parts.next(), parts.next());
        if !matches!((first, second), (Some(Component::Normal(_)), None)) {
            return Err(PublishError::Name(package.name.escape_debug().to_string()));
        }
        let all = match package.kind {
            PackageKind::Published => self.options.directory.join(SERVED),
            PackageKind::Trained => self.options.trained.clone(),
        };
        Ok(all.join(package.owner.0.to_string()).join(&package.name))
    }

    /// Returns the directory of the catalog in which a package is, if there is one.
    fn directory_to_serve(&self, package: &PublishedPackage) -> Option<PackageDirectory> {
        let place = self.place(package).ok()?;
        let is_trained = package.kind == PackageKind::Trained;
        // The folders of trained services are named after them.
        let path = if is_trained {
            place.parent()?.to_owned()
        } else {
            place
        };
        path.is_dir().then(|| PackageDirectory {
            path,
            owner: package.owner,
            owner_name: package.owner_name.clone(),
            named_by_folders: is_trained,
            left_out: Vec::new(),
        })
    }

    /// Records the version in a directory, or that there is none.
    fn record(&self, key: &str, version: Option<&str>) -> Result<(), PublishError> {
        let mut versions = lock(&self.versions);
        match version {
            Some(version) => versions.insert(key.to_owned(), version.to_owned()),
            None => versions.remove(key),
        };
        let path = self.options.directory.join(RECORD);
        let text = serde_json::to_vec_pretty(&*versions).unwrap_or_default();
        let unfinished = path.with_extension("part");
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &path));
        written.map_err(|error| PublishError::Local {
            path,
            reason: error.to_string(),
        })
    }
}

fn key(package: &PublishedPackage) -> String {
    key_of(package.kind, package.owner, &package.name)
}

fn key_of(kind: PackageKind, owner: AccountId, name: &str) -> String {
    format!("{}/{}/{name}", kind.word(), owner.0)
}

/// Adds directories to those that a catalog serves, and lets it look for what is new there.
fn serve(catalog: &Catalog, directories: Vec<PackageDirectory>) {
    for directory in directories {
        if let Err(error) = catalog.add_directory(directory) {
            tracing::error!(error, "cannot serve a published package");
        }
    }
    catalog.look_again();
}

/// Moves the files of a package to their place. They also stay where they are.
fn put_in_place(
    folder: &Path,
    manifest: &PackageManifest,
    (making, place): (&Path, &Path),
) -> io::Result<()> {
    if making.exists() {
        fs::remove_dir_all(making)?;
    }
    for file in &manifest.files {
        let (from, to) = (folder.join(&file.path), making.join(&file.path));
        fs::create_dir_all(to.parent().unwrap_or(making))?;
        link_or_copy(&from, &to)?;
    }
    fs::create_dir_all(making)?;
    sync_tree(making)?;
    fs::create_dir_all(place.parent().unwrap_or(place))?;
    replace_directory(making, place)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
