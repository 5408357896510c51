//! Publishes packages: writes their files and manifest, then the row that says what is to be served.
//!
//! Invariant: a row points to a manifest that is there with all its files. Objects that no row needs are removed after
//! each change.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use walkdir::{DirEntry, WalkDir};

use super::error::PublishError;
use super::manifest::{FileHashes, LocalPackage};
use super::objects::PackageObjects;
use super::published::{PackageKind, PublishedPackage, PublishedPackages};
use crate::account::AccountId;
use crate::database::Timestamp;

/// How long to wait for the turn, and the pause between two looks.
const MAX_TURN_WAIT: Duration = Duration::from_mins(5);
const TURN_PAUSE: Duration = Duration::from_millis(500);
/// Interval at which the turn is renewed.
const TURN_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum length of a name.
const MAX_NAME_LENGTH: usize = 100;

/// A package to publish.
#[derive(Debug)]
pub struct NewPackage<'a> {
    /// The account that owns its services.
    pub owner: AccountId,
    /// The name of that account.
    pub owner_name: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its kind.
    pub kind: PackageKind,
    /// Its directory.
    pub directory: &'a Path,
}

/// The result of publishing.
#[derive(Debug)]
pub struct PublishOutcome {
    /// The package.
    pub package: PublishedPackage,
    /// Number of its files.
    pub files: usize,
    /// Number of files that had to be written.
    pub written: usize,
}

/// Publishes packages.
#[derive(Debug, Clone)]
pub struct PackagePublisher {
    packages: PublishedPackages,
    objects: PackageObjects,
}

impl PackagePublisher {
    /// Creates a publisher for the servers of a database and its objects.
    pub fn new(packages: PublishedPackages, objects: PackageObjects) -> Self {
        Self { packages, objects }
    }

    /// Publishes a directory, in place of the version before.
    pub async fn publish(&self, new: NewPackage<'_>) -> Result<PublishOutcome, PublishError> {
        if new.kind == PackageKind::Published {
            check_name(new.name)?;
        }
        let root = new.directory.to_owned();
        let read = tokio::task::spawn_blocking(move || read_directory(&root)).await;
        let local = read.map_err(|error| PublishError::Local {
            path: new.directory.to_owned(),
            reason: error.to_string(),
        })??;
        let turn = PublishTurn::take(&self.packages).await?;
        let published = self.write(&turn, &new, &local).await;
        turn.end().await;
        published
    }

    /// Writes what is missing, and removes what nobody needs any more.
    async fn write(
        &self,
        turn: &PublishTurn,
        new: &NewPackage<'_>,
        local: &LocalPackage,
    ) -> Result<PublishOutcome, PublishError> {
        let manifest = &local.manifest;
        let mut written = 0;
        for file in &manifest.files {
            let path = local.root.join(&file.path);
            written += usize::from(self.objects.put_file(&path, file).await?);
        }
        self.objects.put_manifest(manifest).await?;
        let package = PublishedPackage {
            owner: new.owner,
            owner_name: new.owner_name.to_owned(),
            name: new.name.to_owned(),
            kind: new.kind,
            version: manifest.version.clone(),
            bytes: manifest.bytes(),
            published_at: Timestamp::now(),
        };
        // After a long pause of this process another one may have removed the files.
        if !self.packages.take_turn(&turn.holder).await? {
            return Err(PublishError::Busy);
        }
        self.packages.put(package.clone()).await?;
        self.remove_unneeded().await;
        Ok(PublishOutcome {
            package,
            files: manifest.files.len(),
            written,
        })
    }

    /// Removes a package that an operator published. Returns `false` if there is none of this name.
    pub async fn remove(&self, owner: AccountId, name: &str) -> Result<bool, PublishError> {
        let turn = PublishTurn::take(&self.packages).await?;
        let removed = self.packages.remove(owner, name).await;
        if removed.as_ref().is_ok_and(|removed| *removed) {
            self.remove_unneeded().await;
        }
        turn.end().await;
        Ok(removed?)
    }

    /// Removes the objects that no package needs. The next change removes what cannot be removed now.
    async fn remove_unneeded(&self) {
        let removed = async {
            let packages = self.packages.list().await?.into_iter();
            let versions: BTreeSet<String> = packages.map(|package| package.version).collect();
            self.objects.keep(&versions).await
        };
        match removed.await {
            Ok(0) => {}
            Ok(objects) => tracing::info!(objects, "removed objects of earlier packages"),
            Err(error) => tracing::warn!(%error, "cannot remove the objects of earlier packages"),
        }
    }
}

/// The turn of a process, which is renewed as long as this lives.
struct PublishTurn {
    packages: PublishedPackages,
    holder: String,
    _renewal: JoinSet<()>,
}

impl PublishTurn {
    async fn take(packages: &PublishedPackages) -> Result<Self, PublishError> {
        let holder = uuid::Uuid::now_v7().to_string();
        let since = Instant::now();
        while !packages.take_turn(&holder).await? {
            if since.elapsed() >= MAX_TURN_WAIT {
                return Err(PublishError::Busy);
            }
            tokio::time::sleep(TURN_PAUSE).await;
        }
        let (own, name) = (packages.clone(), holder.clone());
        let renewal = async move {
            loop {
                tokio::time::sleep(TURN_INTERVAL).await;
                if let Err(error) = own.take_turn(&name).await {
                    tracing::warn!(%error, "cannot keep the turn to publish");
                }
            }
        };
        Ok(Self {
            packages: packages.clone(),
            holder,
            _renewal: JoinSet::from_iter([renewal]),
        })
    }

    async fn end(self) {
        let Self {
            packages, holder, ..
        } = self;
        // Without this it ends by itself.
        if let Err(error) = packages.end_turn(&holder).await {
            tracing::warn!(%error, "cannot end the turn to publish");
        }
    }
}

fn check_name(name: &str) -> Result<(), PublishError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_name = !name.is_empty()
        && name.len() <= MAX_NAME_LENGTH
        && !name.starts_with('.')
        && name.bytes().all(is_part);
    if is_name {
        Ok(())
    } else {
        Err(PublishError::Name(name.escape_debug().to_string()))
    }
}

/// Reads the files of a directory, except hidden ones.
fn read_directory(root: &Path) -> Result<Arc<LocalPackage>, PublishError> {
    let local = |path: &Path, reason: String| PublishError::Local {
        path: path.to_owned(),
        reason,
    };
    let is_shown = |entry: &DirEntry| {
        entry.depth() == 0 || !entry.file_name().to_string_lossy().starts_with('.')
    };
    let mut paths = Vec::new();
    let walk = WalkDir::new(root).sort_by_file_name().into_iter();
    for entry in walk.filter_entry(is_shown) {
        let entry = entry.map_err(|error| local(root, error.to_string()))?;
        let path = entry.path();
        // The file that a link leads to is published, as it is now, if it is inside of the package.
        let metadata = std::fs::metadata(path);
        let metadata = metadata.map_err(|error| local(path, error.to_string()))?;
        if metadata.is_file() {
            paths.push(path.to_owned());
        } else if entry.path_is_symlink() {
            let reason = "a link to a directory cannot be published; copy the directory here";
            return Err(local(path, reason.to_owned()));
        } else if !metadata.is_dir() {
            let reason = "neither a file nor a directory; remove it";
            return Err(local(path, reason.to_owned()));
        }
    }
    if paths.is_empty() {
        return Err(local(root, "it has no files".to_owned()));
    }
    let read = FileHashes::default().package_below(root.to_owned(), &paths);
    // The error names the file.
    read.map_err(|error| PublishError::Unreadable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_folders() {
        for name in ["a", "models", "v1.2-rc_3"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "a b",
            "ä",
            &"x".repeat(101),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_is_read_without_what_is_hidden() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("models");
        std::fs::create_dir_all(root.join("onnx")).expect("a folder");
        std::fs::create_dir(root.join(".git")).expect("a folder");
        std::fs::write(root.join(".git/config"), "x").expect("a file");
        std::fs::write(root.join("onnx/config.json"), "{}").expect("a file");
        std::fs::write(root.join("weights"), "w").expect("a file");
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, root.join(name)).expect("a link");
        };
        link("../weights", "onnx/model.onnx");
        let read = read_directory(&root).expect("it can be published");
        let paths: Vec<&str> = read.manifest.files.iter().map(|it| &*it.path).collect();
        assert_eq!(paths, ["onnx/config.json", "onnx/model.onnx", "weights"]);
        std::fs::write(folder.path().join("secret"), "s").expect("a file");
        link("../../secret", "onnx/secret");
        let error = read_directory(&root).expect_err("it leads out");
        assert!(error.to_string().contains("out of the package"), "{error}");
        std::fs::remove_file(root.join("onnx/secret")).expect("a link");
        link("onnx", "other");
        let error = read_directory(&root).expect_err("it links to a directory");
        assert!(error.to_string().contains("copy the directory"), "{error}");
        let empty = tempfile::tempdir().expect("a folder");
        assert!(read_directory(empty.path()).is_err());
    }
}
