//! Storage quota of accounts: computes the used and the remaining bytes.
//!
//! Invariant: the directories of an account are counted at most once per interval, and never on a
//! runtime thread.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::StatusCode;

use super::Gateway;
use super::error::GatewayError;
use super::stored::AccountBytes;
use crate::account::AccountId;

/// How long a count of datasets and files is cached.
const CACHE_TIME: Duration = Duration::from_secs(10);

/// How long metrics cache a count of all kinds.
const METRICS_CACHE_TIME: Duration = Duration::from_mins(1);

/// Returns the size of all files in a directory, in bytes. Files deleted in the meantime are
/// skipped.
fn directory_bytes(directory: &Path) -> u64 {
    let entries = walkdir::WalkDir::new(directory).into_iter().flatten();
    let files = entries.filter(|entry| entry.file_type().is_file());
    files
        .filter_map(|entry| entry.metadata().ok())
        .map(|found| found.len())
        .sum()
}

async fn counted_in(directory: PathBuf) -> u64 {
    let counted = tokio::task::spawn_blocking(move || directory_bytes(&directory));
    // A panic counts as zero and is in the log.
    counted.await.unwrap_or(0)
}

impl Gateway {
    /// Returns the stored bytes of an account.
    pub(super) async fn stored(&self, account: AccountId) -> Result<AccountBytes, GatewayError> {
        let stored = AccountBytes {
            tasks: self.store.stored(account).await?,
            ..self.stored_beside_tasks(account).await?
        };
        self.on_disk.all.counted(account, stored);
        Ok(stored)
    }

    /// Returns a cached count of an account's stored bytes; `None` if counting fails.
    pub(super) async fn stored_lately(&self, account: AccountId) -> Option<AccountBytes> {
        match self.on_disk.all.recent(account, METRICS_CACHE_TIME) {
            Some(stored) => Some(stored),
            None => self.stored(account).await.ok(),
        }
    }

    /// Returns the stored bytes of an account without its tasks, which the task store counts.
    pub(super) async fn stored_beside_tasks(
        &self,
        account: AccountId,
    ) -> Result<AccountBytes, GatewayError> {
        if let Some(stored) = self.on_disk.beside_tasks.recent(account, CACHE_TIME) {
            return Ok(stored);
        }
        let datasets = self.jobs.store().datasets(Some(account)).await?;
        let files = self.batches.totals(account).await?;
        let (packages, caches) = self.jobs.directories_of(account);
        let stored = AccountBytes {
            tasks: 0,
            datasets: datasets.iter().map(|dataset| dataset.is.size).sum(),
            files: files.bytes,
            packages: counted_in(packages).await,
            caches: counted_in(caches).await,
        };
        self.on_disk.beside_tasks.counted(account, stored);
        Ok(stored)
    }

    /// Returns the bytes that an account may still store; `None` is unlimited. If the limit is
    /// reached, its caches are removed first. Fails if the account is still over the limit.
    pub(super) async fn room(&self, account: AccountId) -> Result<Option<u64>, GatewayError> {
        let limit = self.settings.limits.stored_bytes;
        if limit == 0 {
            return Ok(None);
        }
        let mut stored = self.stored(account).await?;
        if stored.total() >= limit && stored.caches > 0 {
            self.drop_caches(account).await;
            stored = self.stored(account).await?;
        }
        let held = stored.total();
        match limit.checked_sub(held) {
            Some(left) if left > 0 => Ok(Some(left)),
            _ => Err(GatewayError::too_much_stored(held, limit)),
        }
    }

    /// Checks that an account may store this many more bytes.
    pub(super) async fn check_room_for(
        &self,
        account: AccountId,
        size: u64,
    ) -> Result<(), GatewayError> {
        let Some(room) = self.room(account).await? else {
            return Ok(());
        };
        if size <= room {
            return Ok(());
        }
        let limit = self.settings.limits.stored_bytes;
        Err(GatewayError::too_much_stored(limit - room, limit))
    }

    /// Removes the cached vectors of an account's trainings. They are computed again when needed.
    pub(super) async fn drop_caches(&self, account: AccountId) {
        let (_, caches) = self.jobs.directories_of(account);
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(caches)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(account = account.0, %error, "cached vectors cannot be removed");
        }
        self.on_disk.forget(account);
    }
}

impl GatewayError {
    /// The account has reached its storage limit.
    pub(super) fn too_much_stored(held: u64, limit: u64) -> Self {
        let message = format!(
            "the account has stored {held} bytes (tasks, datasets, files, trained packages, caches), and its limit is \
             {limit}; delete tasks, datasets or files, or raise `limits.stored_bytes`"
        );
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self::new(status, "STORED_BYTES_LIMIT_EXCEEDED", message)
            .with("limit", limit)
            .with("held", held)
    }
}
