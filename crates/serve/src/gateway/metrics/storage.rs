//! Metrics of the data directory: its size, and the free space of its disk.
//!
//! Invariant: a page shows the last count instead of waiting for a new one. Counting runs in the
//! background for a small part of the time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use walkdir::WalkDir;

use crate::metric::Page;

/// Minimum time between two counts.
const MIN_COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// A count also stays valid for this many times as long as counting took.
const INTERVAL_PER_COUNT_TIME: u32 = 50;

/// The blobs' directory in the data directory. Everything else belongs to the database.
const BLOBS: &str = "blobs";

/// Counts the sizes of a data directory.
#[derive(Debug, Default)]
pub(super) struct StorageCount {
    counted: ArcSwapOption<CountedSizes>,
    is_counting: AtomicBool,
}

#[derive(Debug)]
struct CountedSizes {
    at: Instant,
    took: Duration,
    database: u64,
    blobs: u64,
}

/// The sizes that a page shows.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::gateway) struct StorageSizes {
    /// Size of the database's files and of the blobs, in bytes.
    store: Option<(u64, u64)>,
    /// Free space for this user and total size of the disk, in bytes.
    disk: Option<(u64, u64)>,
}

impl StorageCount {
    /// Returns the last count. The first call waits for a count; later ones start it in the
    /// background.
    pub(super) async fn sizes(self: &Arc<Self>, directory: &Path) -> StorageSizes {
        let counted = self.counted.load_full();
        let is_fresh = counted.as_ref().is_some_and(|it| {
            let shown_for = it
                .took
                .saturating_mul(INTERVAL_PER_COUNT_TIME)
                .max(MIN_COUNT_INTERVAL);
            it.at.elapsed() < shown_for
        });
        if !is_fresh && !self.is_counting.swap(true, Ordering::AcqRel) {
            let (storage, directory) = (Arc::clone(self), directory.to_owned());
            let counting = tokio::task::spawn_blocking(move || storage.count(&directory));
            if counted.is_none() {
                // A timeout leaves the size unknown.
                let _ = tokio::time::timeout(Duration::from_secs(1), counting).await;
            }
        }
        let counted = self.counted.load_full();
        StorageSizes {
            store: counted.map(|it| (it.database, it.blobs)),
            disk: disk(directory),
        }
    }

    fn count(&self, directory: &Path) {
        let start = Instant::now();
        let blobs_directory: PathBuf = directory.join(BLOBS);
        let (mut database, mut blobs) = (0_u64, 0_u64);
        // Files that were deleted in the meantime are skipped.
        for entry in WalkDir::new(directory).into_iter().flatten() {
            if !entry.file_type().is_file() {
                continue;
            }
            let size = fs::metadata(entry.path()).map_or(0, |metadata| metadata.len());
            let part = if entry.path().starts_with(&blobs_directory) {
                &mut blobs
            } else {
                &mut database
            };
            *part = part.saturating_add(size);
        }
        self.counted.store(Some(Arc::new(CountedSizes {
            at: Instant::now(),
            took: start.elapsed(),
            database,
            blobs,
        })));
        self.is_counting.store(false, Ordering::Release);
    }
}

impl StorageSizes {
    pub(super) fn write(&self, page: &mut Page) {
        if let Some((database, blobs)) = self.store {
            page.gauge(
                "pkgtool_store_bytes",
                "Size of the data directory in bytes.",
            )
            .add(&[("part", "database")], database)
            .add(&[("part", "blobs")], blobs);
        }
        if let Some((free, all)) = self.disk {
            let help = "Free bytes on the disk of the data directory.";
            page.gauge("pkgtool_disk_free_bytes", help).add(&[], free);
            let help = "Size of the disk of the data directory in bytes.";
            page.gauge("pkgtool_disk_size_bytes", help).add(&[], all);
        }
    }
}

#[cfg(unix)]
fn disk(directory: &Path) -> Option<(u64, u64)> {
    let told = nix::sys::statvfs::statvfs(directory).ok()?;
    let fragment = wide(told.fragment_size());
    let bytes = |blocks: u64| blocks.saturating_mul(fragment);
    let free = bytes(wide(told.blocks_available()));
    Some((free, bytes(wide(told.blocks()))))
}

/// The types of these numbers differ between systems.
#[cfg(unix)]
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

#[cfg(not(unix))]
fn disk(_directory: &Path) -> Option<(u64, u64)> {
    None
}
