//! A copy of a data directory, made beside a running server: all records of one moment, and the blobs that
//! they name.
//!
//! Invariant: the directory that was asked for appears when everything is in it and on the disk, or not at
//! all. No request waits for a backup: removals of blobs do.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::hold::Hold;
use super::{Blobs, Statistics, Stores, TaskStore};
use crate::database::{
    DatabaseError, DatabaseUrl, Timestamp, make_directory, sync_path, sync_tree,
};

/// The file that tells what a backup holds.
const MARKER: &str = "backup.json";

/// The settings' file, which goes along if it is in the data directory.
const SETTINGS: &str = "gateway.toml";

/// Where blobs are.
const BLOBS: &str = "blobs";

/// Where the results of training are, and what of them is being made.
const RESULTS: &str = "trained";
const MAKING: &str = "making";

/// How often results are copied that change meanwhile.
const TIMES: u32 = 5;

/// Blobs that are asked for in one go.
const PAGE: usize = 1000;

/// What a backup holds.
#[derive(Debug, Clone, Default)]
pub struct Backup {
    /// Its tasks.
    pub tasks: Statistics,
    /// Blobs.
    pub blobs: u64,
    /// Their bytes.
    pub blob_bytes: u64,
    /// Bytes of the database.
    pub database_bytes: u64,
    /// Blobs that were gone or altered before, by their paths: the backup has them as little.
    pub missing: Vec<String>,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something is there.
    #[error("{}: it is there and not empty; name a directory that is not there", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// A file can't be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The database can't be copied.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Copies a data directory into a directory that is not there, or empty.
pub async fn backup(data: &Path, into: &Path) -> Result<Backup, BackupError> {
    let fault = |error| BackupError::File {
        path: into.to_owned(),
        error,
    };
    if !is_free(into) {
        return Err(BackupError::Exists {
            path: into.to_owned(),
        });
    }
    let into = std::path::absolute(into).map_err(fault)?;
    let blobs = data.join("blobs");
    let held = Hold::of(&blobs).to_copy()?;
    let staging = beside(&into);
    if staging.exists() {
        // Of a backup that was cut off: the hold says that none goes on.
        fs::remove_dir_all(&staging).map_err(fault)?;
    }
    make_directory(&staging)?;
    let copied = copy(data, &staging).await;
    // What follows needs only the copies.
    drop(held);
    let finished = copied.and_then(|backup| {
        finish(&backup, &staging, &into)?;
        Ok(backup)
    });
    if finished.is_err() {
        // The cause is told; what is left is named so that nobody takes it for a backup.
        let _ = fs::remove_dir_all(&staging);
    }
    finished
}

/// Records and blobs.
async fn copy(data: &Path, staging: &Path) -> Result<Backup, BackupError> {
    let from = Stores::open(&DatabaseUrl::in_directory(data)).await?;
    let url = DatabaseUrl::in_directory(staging);
    from.copy(&url).await?;
    let copied = Stores::open(&url).await?;
    let tasks = copied.tasks().await?;
    let mut backup = Backup {
        tasks: tasks.statistics().await?,
        database_bytes: copied.space().await?.bytes,
        ..Backup::default()
    };
    copy_blobs(&*tasks, (data, staging), &mut backup).await?;
    let training = copied.training().await?;
    for dataset in training.datasets(None).await? {
        let of = (dataset.is.size, dataset.is.sha256);
        copy_named(&dataset.is.blob, of, (data, staging), &mut backup)?;
    }
    copy_results(&data.join(RESULTS), &staging.join(RESULTS))?;
    let settings = data.join(SETTINGS);
    if settings.is_file() {
        let into = staging.join(SETTINGS);
        fs::copy(&settings, &into).map_err(|error| BackupError::File { path: into, error })?;
    }
    Ok(backup)
}

async fn copy_blobs(
    tasks: &dyn TaskStore,
    (data, staging): (&Path, &Path),
    backup: &mut Backup,
) -> Result<(), BackupError> {
    make_directory(&staging.join(BLOBS))?;
    let mut after = None;
    loop {
        let page = tasks.blobs(after, PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.task);
        for blob in &page {
            let of = (blob.size, blob.sha256);
            copy_named(&Blobs::path(blob), of, (data, staging), backup)?;
        }
    }
}

/// Copies the blob of this path, size and checksum.
fn copy_named(
    path: &str,
    (size, sha256): (u64, [u8; 32]),
    (data, staging): (&Path, &Path),
    backup: &mut Backup,
) -> Result<(), BackupError> {
    let target = staging.join(BLOBS).join(path);
    let fault = |error| BackupError::File {
        path: target.clone(),
        error,
    };
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(fault)?;
    }
    let source = data.join(BLOBS).join(path);
    if copy_blob((size, sha256), &source, &target).map_err(fault)? {
        backup.blobs += 1;
        backup.blob_bytes += size;
    } else {
        backup.missing.push(path.to_owned());
    }
    Ok(())
}

/// Copies what training made: a directory for each account, in it one for each service.
fn copy_results(from: &Path, into: &Path) -> Result<(), BackupError> {
    let mut times = 0;
    loop {
        let fault = |error| BackupError::File {
            path: from.to_owned(),
            error,
        };
        let before = listed(from);
        copy_tree(from, into).map_err(fault)?;
        times += 1;
        // One that was replaced meanwhile is not half the old and half the new.
        if before == listed(from) {
            return Ok(());
        }
        if times == TIMES {
            let error = io::Error::other("what training made changes all the time; try again");
            return Err(fault(error));
        }
        fs::remove_dir_all(into).map_err(fault)?;
    }
}

/// The files of all results, each with its size and when it changed.
fn listed(directory: &Path) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let files = results(directory).filter_map(|entry| {
        let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((entry.into_path(), found.len(), found.modified().ok()))
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

/// What is in the directory of results, but what is being made.
fn results(directory: &Path) -> impl Iterator<Item = walkdir::DirEntry> {
    let walk = walkdir::WalkDir::new(directory).into_iter();
    let is_result = |entry: &walkdir::DirEntry| entry.file_name() != MAKING;
    walk.filter_entry(is_result).flatten()
}

fn copy_tree(from: &Path, into: &Path) -> io::Result<()> {
    for entry in results(from) {
        let Ok(below) = entry.path().strip_prefix(from) else {
            continue;
        };
        let target = into.join(below);
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target)?;
            continue;
        }
        match fs::copy(entry.path(), &target) {
            // It was replaced: the list tells.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied?),
        }
    }
    Ok(())
}

/// Copies a blob; `false` if it is not there or not what was stored, and then nothing is there.
fn copy_blob((size, sha256): (u64, [u8; 32]), from: &Path, into: &Path) -> io::Result<bool> {
    let source = match File::open(from) {
        Ok(source) => source,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // A file that grew is cut off behind what it should have: its checksum differs.
    let mut source = source.take(size.saturating_add(1));
    let mut target = File::create(into)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        target.write_all(&buffer[..read])?;
    }
    let sum: [u8; 32] = hash.finalize().into();
    let same = sum == sha256;
    if !same {
        fs::remove_file(into)?;
    }
    Ok(same)
}

/// Puts everything on the disk, and then the directory where it was asked for.
fn finish(backup: &Backup, staging: &Path, into: &Path) -> Result<(), BackupError> {
    let marker = json!({
        "madeAt": Timestamp::now().to_iso(),
        "version": env!("CARGO_PKG_VERSION"),
        "tasks": {
            "waiting": backup.tasks.waiting,
            "running": backup.tasks.running,
            "completed": backup.tasks.completed,
            "canceled": backup.tasks.canceled,
        },
        "databaseBytes": backup.database_bytes,
        "blobs": backup.blobs,
        "blobBytes": backup.blob_bytes,
        "missing": backup.missing,
    });
    let path = staging.join(MARKER);
    let written = fs::write(&path, format!("{marker:#}\n"));
    written.map_err(|error| BackupError::File { path, error })?;
    sync_tree(staging).map_err(|error| BackupError::File {
        path: staging.to_owned(),
        error,
    })?;
    let fault = |error| BackupError::File {
        path: into.to_owned(),
        error,
    };
    if into.exists() {
        fs::remove_dir(into).map_err(fault)?;
    }
    fs::rename(staging, into).map_err(fault)?;
    match into.parent() {
        Some(parent) => sync_path(parent).map_err(fault),
        None => Ok(()),
    }
}

/// Whether nothing is there but an empty directory.
fn is_free(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Where a backup is made before it is complete.
fn beside(into: &Path) -> PathBuf {
    let mut name = into.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    into.with_file_name(name)
}
