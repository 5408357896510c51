//! Downloads a package to a directory: selects the wanted files, skips existing ones, and downloads
//! the others in parallel.
//!
//! Invariant: a file appears under its name only when it is complete and verified. Local files that
//! differ from the source are overwritten only on request. An interrupted download is resumed, so
//! no byte is downloaded twice.

mod journal;
mod plan;
mod room;
mod sums;
mod transfer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Address, Mirror, RemoteError, RemoteSettings, Traffic};
use journal::Journal;
use pkgtool_base::package::Backend;
use plan::{DownloadPlan, WantedFile};
use sums::Checksums;

/// Maximum size of a file that is read before the download, in bytes: a config or a list of
/// checksums.
const MAX_TEXT_BYTES: u64 = 4 << 20;

/// Options of a download.
#[derive(Debug, Clone, Default)]
pub struct PullOptions {
    /// Download only packages for these backends; all if empty.
    pub backends: Vec<Backend>,
    /// Download only variants of these precisions; all if empty.
    pub precisions: Vec<String>,
    /// Overwrite local files that differ from the source.
    pub force: bool,
    /// A file of SHA-256 sums to verify files against, in addition to those of the source.
    pub checksums: Option<PathBuf>,
    /// Number of files that are downloaded in parallel, at least one.
    pub jobs: usize,
}

impl PullOptions {
    /// Sorts the filters, so that equal options compare equal.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.backends.sort_by_key(|backend| backend.name());
        self.backends.dedup();
        self.precisions.sort();
        self.precisions.dedup();
        self
    }
}

/// A step of the progress.
#[derive(Debug, Clone, Copy)]
pub enum ProgressStep {
    /// This number of bytes will be downloaded.
    Planned(u64),
    /// This number of bytes arrived.
    Came(u64),
    /// This number of received bytes was discarded, because the file changed.
    Lost(u64),
}

/// A callback for every step, called by several threads.
pub type PullProgress<'a> = &'a (dyn Fn(ProgressStep) + Sync);

/// The result of a download.
#[derive(Debug, Default)]
pub struct PullResult {
    /// Number of downloaded files.
    pub fetched: usize,
    /// Number of files that already existed.
    pub kept: usize,
    /// Size of the downloaded files in bytes, including parts from an earlier run.
    pub bytes: u64,
    /// Network traffic.
    pub traffic: Traffic,
    /// Variants that were filtered out: the config's path in the directory, and the indices in
    /// `variants`.
    pub left_out: Vec<(PathBuf, Vec<usize>)>,
}

/// The current state of a source on its server, and the selected files.
pub struct Source {
    mirror: Mirror,
    plan: DownloadPlan,
    sums: Checksums,
}

/// Downloads the files of a source that `wish` selects to `directory`.
pub fn pull(
    address: &Address,
    directory: &Path,
    settings: &RemoteSettings,
    wish: &PullOptions,
    progress: PullProgress<'_>,
) -> Result<PullResult, RemoteError> {
    let mut source = Source::open(address, settings, wish)?;
    let journal = Journal::open(directory)?;
    let pulled = source.fetch(&journal, wish, progress)?;
    journal.close();
    Ok(pulled)
}

/// Returns whether all files downloaded to a directory still exist unchanged.
pub fn is_whole(directory: &Path) -> Result<bool, RemoteError> {
    Ok(directory.is_dir() && Journal::open(directory)?.is_whole()?)
}

impl Source {
    /// Lists the source and selects the wanted files.
    pub fn open(
        address: &Address,
        settings: &RemoteSettings,
        wish: &PullOptions,
    ) -> Result<Self, RemoteError> {
        let mut settings = settings.clone();
        // Models are read only after the download, since some servers do not support range
        // requests. Lists and configs are read completely before.
        settings.opens_models = false;
        settings.limits.whole_bytes = MAX_TEXT_BYTES;
        (
            settings.limits.total,
            settings.limits.run_bytes,
            settings.limits.requests,
        ) = (None, None, None);
        let mut mirror = Mirror::open(address, &settings)?;
        let mut plan = plan::plan(&mut mirror, wish)?;
        if let Some(fault) = mirror.fault() {
            return Err(fault);
        }
        let sums = Checksums::read(&mirror, &plan.wanted, wish.checksums.as_deref())?;
        sums.apply(&mut plan.wanted)?;
        Ok(Self { mirror, plan, sums })
    }

    /// Returns whether a directory contains exactly the wanted files.
    pub fn is_in(&mut self, directory: &Path) -> Result<bool, RemoteError> {
        let journal = Journal::open(directory)?;
        // The wanted models determine which further files are needed.
        let is_same = compare(&journal, &self.plan.wanted, true)?.is_empty()
            && compare(&journal, &self.complete(journal.directory())?, true)?.is_empty();
        Ok(is_same && journal.has_only(&self.targets()))
    }

    /// Downloads exactly the wanted files to a directory. Unchanged files of an earlier directory
    /// are reused as hard links, and that directory is left unchanged.
    pub fn renew(
        &mut self,
        earlier: Option<&Path>,
        directory: &Path,
        wish: &PullOptions,
        progress: PullProgress<'_>,
    ) -> Result<PullResult, RemoteError> {
        let journal = Journal::open(directory)?;
        if let Some(earlier) = earlier {
            let earlier = Journal::open(earlier)?;
            for wanted in &self.plan.wanted {
                journal.reuse_from(&earlier, wanted)?;
            }
            journal.write()?;
        }
        let pulled = self.fetch(&journal, wish, progress)?;
        journal.keep_only(&self.targets())?;
        journal.close();
        Ok(pulled)
    }

    /// Returns the variants that were filtered out: the config's path in a directory, and the
    /// indices in `variants`.
    pub fn left_out(&self) -> &[(String, Vec<usize>)] {
        &self.plan.left_out
    }

    fn targets(&self) -> BTreeSet<&str> {
        let wanted = self.plan.wanted.iter();
        wanted.map(|one| one.target.as_str()).collect()
    }

    /// Returns the further files that the models in a directory need.
    fn complete(&mut self, directory: &Path) -> Result<Vec<WantedFile>, RemoteError> {
        let mut more = self.plan.complete(&mut self.mirror, directory)?;
        self.sums.apply(&mut more)?;
        Ok(more)
    }

    fn fetch(
        &mut self,
        journal: &Journal,
        wish: &PullOptions,
        progress: PullProgress<'_>,
    ) -> Result<PullResult, RemoteError> {
        let mut pulled = PullResult::default();
        self.fetch_part(&self.plan.wanted, journal, wish, progress, &mut pulled)?;
        let more = self.complete(journal.directory())?;
        self.fetch_part(&more, journal, wish, progress, &mut pulled)?;
        pulled.traffic = self.mirror.traffic();
        pulled.left_out = left_out(&self.plan, journal.directory());
        Ok(pulled)
    }

    fn fetch_part(
        &self,
        wanted: &[WantedFile],
        journal: &Journal,
        wish: &PullOptions,
        progress: PullProgress<'_>,
        pulled: &mut PullResult,
    ) -> Result<(), RemoteError> {
        let todo = compare(journal, wanted, wish.force)?;
        let left: u64 = todo
            .iter()
            .map(|one| one.size.saturating_sub(journal.part_size(one)))
            .sum();
        room::check(journal.directory(), left)?;
        progress(ProgressStep::Planned(left));
        fetch_all(&self.mirror, journal, &todo, wish, progress)?;
        pulled.fetched += todo.len();
        pulled.kept += wanted.len() - todo.len();
        pulled.bytes += todo.iter().map(|one| one.size).sum::<u64>();
        Ok(())
    }
}

/// Returns the missing files. Fails if other files have their names.
fn compare<'p>(
    journal: &Journal,
    all: &'p [WantedFile],
    force: bool,
) -> Result<Vec<&'p WantedFile>, RemoteError> {
    let (mut todo, mut differing) = (Vec::new(), Vec::new());
    for wanted in all {
        match journal.examine(wanted)? {
            journal::LocalFile::Same => {}
            journal::LocalFile::Nothing => todo.push(wanted),
            journal::LocalFile::Other => {
                differing.push(format!("`{}`", wanted.target));
                todo.push(wanted);
            }
        }
    }
    if differing.is_empty() || force {
        return Ok(todo);
    }
    let more = differing.len().saturating_sub(5);
    differing.truncate(5);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Err(RemoteError::Differs(format!(
        "{}{more} in {} differ from the source; overwrite them with --force",
        differing.join(", "),
        journal.directory().display()
    )))
}

fn fetch_all(
    mirror: &Mirror,
    journal: &Journal,
    todo: &[&WantedFile],
    wish: &PullOptions,
    progress: PullProgress<'_>,
) -> Result<(), RemoteError> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<RemoteError>> = Mutex::new(None);
    let work = || {
        while let Some(wanted) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some()
            {
                return;
            }
            if let Err(error) = transfer::fetch(mirror.web(), journal, wanted, wish.force, progress)
            {
                failed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..wish.jobs.clamp(1, 16) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}

fn left_out(plan: &DownloadPlan, directory: &Path) -> Vec<(PathBuf, Vec<usize>)> {
    let out = plan.left_out.iter();
    out.map(|(config, places)| (directory.join(config), places.clone()))
        .collect()
}
