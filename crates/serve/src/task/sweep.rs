//! Removes blobs that no task needs, and partial files of crashed processes.
//!
//! Invariant: only old blobs are removed, because the task of a young one may be about to be
//! stored. A sweep of a bucket lists the days of young tasks and one older day, not everything.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use object_store::path::Path as Name;
use object_store::{ObjectMeta, ObjectStore as _};

use super::blobs::BlobPlace;
use super::names::{ANSWERS, BODIES, task_of};
use super::{Blobs, TaskOutcome, TaskStore};
use crate::database::Timestamp;
use crate::objects::storage_reason;

/// Minimum age of an orphaned blob before it is removed. The task of a younger one may be about to
/// be stored.
const MIN_ORPHAN_AGE: Duration = Duration::from_hours(1);

/// Age up to which a task counts as young.
const YOUNG_AGE: Duration = Duration::from_hours(24);

/// Number of blobs that are looked up at the same time.
const CONCURRENT_LOOKUPS: usize = 4;

/// Remembers where the sweeps of a bucket are.
#[derive(Debug, Default)]
pub struct SweepCursor {
    /// The older day that was swept last.
    last: Option<String>,
}

impl Blobs {
    /// Deletes blobs that no task needs, once they are old enough, and returns their number. These
    /// are bodies of finished or unknown tasks, and answers of attempts other than the one that
    /// ended the task. A sweep of a bucket continues at the cursor.
    pub async fn sweep_orphans(&self, tasks: &dyn TaskStore, cursor: &mut SweepCursor) -> u64 {
        match &self.place {
            BlobPlace::Directory { path, .. } => {
                let removed = self.sweep_listed(None, tasks).await;
                let directory = path.clone();
                let swept = tokio::task::spawn_blocking(move || {
                    sweep_unfinished(&directory, MIN_ORPHAN_AGE);
                });
                if let Err(error) = swept.await {
                    tracing::error!(%error, "the sweep of partial uploads failed");
                }
                removed
            }
            BlobPlace::Bucket(_) => {
                let days = self.days().await;
                let young = Timestamp::now().before(YOUNG_AGE).day().to_iso();
                let mut removed = 0;
                for day in cursor.choose(&days, &young) {
                    removed += self.sweep_day(&day, tasks).await;
                }
                removed
            }
        }
    }

    /// Deletes all blobs that no task needs, once they are old enough, and returns their number.
    pub async fn sweep_all_orphans(&self, tasks: &dyn TaskStore) -> u64 {
        if self.bucket().is_none() {
            return self.sweep_orphans(tasks, &mut SweepCursor::default()).await;
        }
        let mut removed = 0;
        for day in self.days().await {
            removed += self.sweep_day(&day, tasks).await;
        }
        removed
    }

    /// Returns the days of the tasks that have objects.
    async fn days(&self) -> BTreeSet<String> {
        let mut days = BTreeSet::new();
        for kind in [BODIES, ANSWERS] {
            match self
                .store
                .list_with_delimiter(Some(&Name::from(kind)))
                .await
            {
                Ok(listed) => {
                    let folders = listed.common_prefixes.into_iter();
                    days.extend(folders.filter_map(|it| Some(it.filename()?.to_owned())));
                }
                Err(error) => cannot_list(&error),
            }
        }
        days
    }

    async fn sweep_day(&self, day: &str, tasks: &dyn TaskStore) -> u64 {
        let mut removed = 0;
        for kind in [BODIES, ANSWERS] {
            let folder = Name::from(format!("{kind}/{day}"));
            removed += self.sweep_listed(Some(&folder), tasks).await;
        }
        removed
    }

    async fn sweep_listed(&self, folder: Option<&Name>, tasks: &dyn TaskStore) -> u64 {
        let removed = AtomicU64::new(0);
        let visit = |found: object_store::Result<ObjectMeta>| {
            let removed = &removed;
            async move {
                let found = match found {
                    Ok(found) => found,
                    Err(error) => return cannot_list(&error),
                };
                if is_older(&found, MIN_ORPHAN_AGE) && !is_needed(tasks, &found.location).await {
                    self.delete(&found.location).await;
                    removed.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let listed = self.store.list(folder);
        listed.for_each_concurrent(CONCURRENT_LOOKUPS, visit).await;
        removed.into_inner()
    }
}

impl SweepCursor {
    /// Returns the days from `young` on and the next older one. In this way, sweeps visit all days.
    fn choose(&mut self, days: &BTreeSet<String>, young: &str) -> Vec<String> {
        let mut chosen: Vec<String> = days.range(young.to_owned()..).cloned().collect();
        let mut older = days.range(..young.to_owned());
        let is_next = |day: &&String| self.last.as_ref().is_none_or(|last| *day > last);
        let next = older.clone().find(is_next).or_else(|| older.next());
        self.last = next.cloned();
        chosen.extend(self.last.clone());
        chosen
    }
}

pub(super) fn cannot_list(error: &object_store::Error) {
    let error = storage_reason(error);
    tracing::error!(%error, "cannot list blobs");
}

/// Returns whether a blob has at least this age.
pub(super) fn is_older(found: &ObjectMeta, age: Duration) -> bool {
    let modified: SystemTime = found.last_modified.into();
    modified.elapsed().is_ok_and(|since| since >= age)
}

/// Removes partial files of crashed processes that are older than any upload in progress. The
/// object store hides such files from its listings.
fn sweep_unfinished(directory: &Path, age: Duration) {
    let folders = |path: &Path| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let kinds = folders(directory).into_iter();
    let files = kinds
        .flat_map(|kind| folders(&kind))
        .flat_map(|shard| folders(&shard));
    for file in files.filter(|file| is_unfinished(file)) {
        let modified = file.metadata().and_then(|found| found.modified());
        if modified.is_ok_and(|at| at.elapsed().is_ok_and(|old| old >= age))
            && let Err(error) = std::fs::remove_file(&file)
        {
            tracing::warn!(%error, path = %file.display(), "a partial upload cannot be removed");
        }
    }
}

/// Returns whether the object store created this file for an upload: its name ends with `#` and a
/// number.
fn is_unfinished(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.rsplit_once('#'));
    number.is_some_and(|(_, number)| {
        !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit())
    })
}

/// Returns whether a task still needs a blob; `true` in doubt.
async fn is_needed(tasks: &dyn TaskStore, name: &Name) -> bool {
    let Some((id, attempt)) = task_of(name) else {
        return true;
    };
    match tasks.get(id).await {
        Ok(None) => false,
        Ok(Some(task)) => match attempt {
            None => !task.status.is_final(),
            Some(attempt) => {
                let is_answered = matches!(task.outcome, Some(TaskOutcome::Answer { .. }));
                !task.status.is_final() || is_answered && attempt == task.attempt
            }
        },
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_visit_young_days_always_and_older_days_in_turn() {
        let days = ["2026-11-01", "2026-11-02", "2026-11-29", "2026-11-30"];
        let days: BTreeSet<String> = days.map(str::to_owned).into();
        let mut cursor = SweepCursor::default();
        for older in ["2026-11-01", "2026-11-02", "2026-11-01"] {
            let chosen = cursor.choose(&days, "2026-11-29");
            assert_eq!(chosen, ["2026-11-29", "2026-11-30", older]);
        }
        let young = days.range("2026-11-29".to_owned()..).cloned().collect();
        let chosen = cursor.choose(&young, "2026-11-29");
        assert_eq!(chosen, ["2026-11-29", "2026-11-30"]);
    }
}
