//! Backup of a data directory while its server may be running: a snapshot of all records and the
//! blobs they refer to. Objects in a bucket are not copied.
//!
//! Invariant: the target directory appears only when it is complete and on disk. Requests never
//! wait for a backup; deletions of blobs are skipped while it copies.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::bucket_record::{BLOBS_DIRECTORY, BUCKET_RECORD, BucketRecord};
use super::hold::BlobLock;
use super::names::BlobNames;
use super::recorded::RecordedBlobs;
use super::{Statistics, Stores};
use crate::database::{
    DatabaseError, DatabaseUrl, Timestamp, make_directory, sync_path, sync_tree,
};
use crate::train::{IN_PROGRESS_DIRECTORY, results_directory};

/// Name of the file that describes a backup.
const MARKER_FILE: &str = "backup.json";

/// Name of the settings file, which is copied if it is in the data directory.
const SETTINGS: &str = "gateway.toml";

/// Maximum number of attempts to copy training results that change meanwhile.
const MAX_COPY_ATTEMPTS: u32 = 5;

/// Summary of a backup.
#[derive(Debug, Clone, Default)]
pub struct Backup {
    /// Task counts.
    pub tasks: Statistics,
    /// Number of copied blobs.
    pub blobs: u64,
    /// Total size of the copied blobs, in bytes.
    pub blob_bytes: u64,
    /// Size of the database, in bytes.
    pub database_bytes: u64,
    /// Address of the bucket whose objects the backup lacks.
    pub bucket: Option<String>,
    /// Paths of blobs that were already missing or corrupt, and that the backup therefore lacks.
    pub missing: Vec<String>,
}

/// Errors of a backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target directory exists and is not empty.
    #[error("{}: the directory is not empty; name a new directory", path.display())]
    Exists {
        /// The target directory.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The database cannot be copied.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Copies a data directory into a directory that is missing or empty.
pub async fn backup(data: &Path, into: &Path) -> Result<Backup, BackupError> {
    let fault = |error| BackupError::File {
        path: into.to_owned(),
        error,
    };
    if !is_missing_or_empty(into) {
        return Err(BackupError::Exists {
            path: into.to_owned(),
        });
    }
    let into = std::path::absolute(into).map_err(fault)?;
    let blobs = data.join(BLOBS_DIRECTORY);
    let held = BlobLock::of(&blobs).lock_for_backup()?;
    let staging = partial_path(&into);
    if staging.exists() {
        // Left by an interrupted backup: the lock proves that no other backup is running.
        fs::remove_dir_all(&staging).map_err(fault)?;
    }
    make_directory(&staging)?;
    let copied = copy(data, &staging).await;
    // The remaining steps read only the copies.
    drop(held);
    let finished = copied.and_then(|backup| {
        finish(&backup, &staging, &into)?;
        Ok(backup)
    });
    if finished.is_err() {
        // The original error is reported. The `.partial` name marks leftovers as incomplete.
        let _ = fs::remove_dir_all(&staging);
    }
    finished
}

/// Copies records, blobs, training results and settings.
async fn copy(data: &Path, staging: &Path) -> Result<Backup, BackupError> {
    let from = Stores::open(&DatabaseUrl::in_directory(data)).await?;
    let url = DatabaseUrl::in_directory(staging);
    from.copy(&url).await?;
    let copied = Stores::open(&url).await?;
    let tasks = copied.tasks().await?;
    let bucket = BucketRecord::of(data).read()?;
    let mut backup = Backup {
        tasks: tasks.statistics().await?,
        database_bytes: copied.space().await?.bytes,
        bucket: bucket.map(String::from),
        ..Backup::default()
    };
    if backup.bucket.is_none() {
        copy_blobs(&copied, (data, staging), &mut backup).await?;
    }
    copy_results(&results_directory(data), &results_directory(staging))?;
    for name in [SETTINGS, BUCKET_RECORD] {
        let source = data.join(name);
        if source.is_file() {
            let into = staging.join(name);
            fs::copy(&source, &into).map_err(|error| BackupError::File { path: into, error })?;
        }
    }
    Ok(backup)
}

/// Copies all blobs that records name.
async fn copy_blobs(
    copied: &Stores,
    (data, staging): (&Path, &Path),
    backup: &mut Backup,
) -> Result<(), BackupError> {
    make_directory(&staging.join(BLOBS_DIRECTORY))?;
    let mut blobs = RecordedBlobs::of(copied).await?;
    loop {
        let page = blobs.next_page().await?;
        if page.is_empty() {
            return Ok(());
        }
        for blob in &page {
            let path = blob.name(BlobNames::ByShard).to_string();
            let of = (blob.size, blob.sha256);
            copy_recorded_blob(&path, of, (data, staging), backup)?;
        }
    }
}

/// Copies one blob, given its path, size and checksum.
fn copy_recorded_blob(
    path: &str,
    (size, sha256): (u64, [u8; 32]),
    (data, staging): (&Path, &Path),
    backup: &mut Backup,
) -> Result<(), BackupError> {
    let target = staging.join(BLOBS_DIRECTORY).join(path);
    let fault = |error| BackupError::File {
        path: target.clone(),
        error,
    };
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(fault)?;
    }
    let source = data.join(BLOBS_DIRECTORY).join(path);
    if copy_blob((size, sha256), &source, &target).map_err(fault)? {
        backup.blobs += 1;
        backup.blob_bytes += size;
    } else {
        backup.missing.push(path.to_owned());
    }
    Ok(())
}

/// Copies the training results: one directory per account with one subdirectory per service.
fn copy_results(from: &Path, into: &Path) -> Result<(), BackupError> {
    let mut times = 0;
    loop {
        let fault = |error| BackupError::File {
            path: from.to_owned(),
            error,
        };
        let before = list_files(from);
        copy_tree(from, into).map_err(fault)?;
        times += 1;
        // A result that was replaced during the copy would be a mix of old and new files.
        if before == list_files(from) {
            return Ok(());
        }
        if times == MAX_COPY_ATTEMPTS {
            let error = io::Error::other("training results keep changing; try again");
            return Err(fault(error));
        }
        fs::remove_dir_all(into).map_err(fault)?;
    }
}

/// Lists the files of all results with their sizes and modification times.
fn list_files(directory: &Path) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let files = results(directory).filter_map(|entry| {
        let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((entry.into_path(), found.len(), found.modified().ok()))
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

/// Walks the directory of results, skipping results in progress.
fn results(directory: &Path) -> impl Iterator<Item = walkdir::DirEntry> {
    let walk = walkdir::WalkDir::new(directory).into_iter();
    let is_result = |entry: &walkdir::DirEntry| entry.file_name() != IN_PROGRESS_DIRECTORY;
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
            // The file was replaced: comparing the listings detects it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied?),
        }
    }
    Ok(())
}

/// Copies a blob. Returns `false` and leaves no copy if the source is missing or its checksum
/// differs.
fn copy_blob((size, sha256): (u64, [u8; 32]), from: &Path, into: &Path) -> io::Result<bool> {
    let source = match File::open(from) {
        Ok(source) => source,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // Reading is limited to one byte beyond the recorded size, so a longer file fails the checksum.
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

/// Writes the marker, flushes everything to disk and renames the directory to its target.
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
        "objects": backup.bucket,
        "missing": backup.missing,
    });
    let path = staging.join(MARKER_FILE);
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

/// Returns whether the path is missing or an empty directory.
fn is_missing_or_empty(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Returns the path of the incomplete backup, beside the target.
fn partial_path(into: &Path) -> PathBuf {
    let mut name = into.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    into.with_file_name(name)
}
