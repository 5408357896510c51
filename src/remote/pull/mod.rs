//! Fetching a package into a directory: what is wanted, what is there already, the rest in parallel.
//!
//! Invariant: a file stands under its name only when it is complete and verified; what differs from the
//! source is not overwritten unless that is asked for; what was fetched before an interruption is not
//! fetched again.

mod journal;
mod plan;
mod room;
mod sums;
mod transfer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Address, Mirror, RemoteError, Settings, Traffic};
use crate::package::Backend;
use journal::Journal;
use plan::{Plan, Wanted};
use sums::Sums;

/// Largest text that is read before anything is fetched, in bytes: a config, a list of checksums.
const TEXT: u64 = 4 << 20;

/// What is to be fetched, and how.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Only packages for these backends; all if there is none.
    pub backends: Vec<Backend>,
    /// Only variants of these precisions; all if there is none.
    pub precisions: Vec<String>,
    /// Files that differ from the source's are overwritten.
    pub force: bool,
    /// A file of SHA-256 sums to be held to, besides those of the source.
    pub checksums: Option<PathBuf>,
    /// Files fetched at once; at least one.
    pub jobs: usize,
}

impl Wish {
    /// The same wish, as it is told whatever the order in which it was said.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.backends.sort_by_key(|backend| backend.name());
        self.backends.dedup();
        self.precisions.sort();
        self.precisions.dedup();
        self
    }
}

/// How it goes on.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// So many bytes are to be fetched.
    Planned(u64),
    /// So many bytes came.
    Came(u64),
    /// So many bytes that had come do not count: the file changed.
    Lost(u64),
}

/// Told of every step, by several threads.
pub type Progress<'a> = &'a (dyn Fn(Step) + Sync);

/// What a pull did.
#[derive(Debug, Default)]
pub struct Pulled {
    /// Files fetched.
    pub fetched: usize,
    /// Files that were there already.
    pub kept: usize,
    /// Bytes of the files fetched, those of an earlier run included.
    pub bytes: u64,
    /// What went over the network.
    pub traffic: Traffic,
    /// Variants that were left out: the config's path in the directory, places in `variants`.
    pub left_out: Vec<(PathBuf, Vec<usize>)>,
}

/// A source as it is now on its server, and what of it is wanted.
pub struct Source {
    mirror: Mirror,
    plan: Plan,
    sums: Sums,
}

/// Fetches what `wish` names of the source into `directory`.
pub fn pull(
    address: &Address,
    directory: &Path,
    settings: &Settings,
    wish: &Wish,
    progress: Progress<'_>,
) -> Result<Pulled, RemoteError> {
    let mut source = Source::open(address, settings, wish)?;
    let journal = Journal::open(directory)?;
    let pulled = source.fetch(&journal, wish, progress)?;
    journal.close();
    Ok(pulled)
}

/// Whether every file that was fetched into a directory is there as it was.
pub fn is_whole(directory: &Path) -> Result<bool, RemoteError> {
    Ok(directory.is_dir() && Journal::open(directory)?.is_whole()?)
}

impl Source {
    /// Asks what the source has, and decides what of it is wanted.
    pub fn open(address: &Address, settings: &Settings, wish: &Wish) -> Result<Self, RemoteError> {
        let mut settings = settings.clone();
        // Not every server sends parts of files, so nothing of a model is read before it is here. Lists and
        // configs are read: one that is sent whole is read whole.
        settings.opens_models = false;
        settings.limits.whole_bytes = TEXT;
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
        let sums = Sums::read(&mirror, &plan.wanted, wish.checksums.as_deref())?;
        sums.apply(&mut plan.wanted)?;
        Ok(Self { mirror, plan, sums })
    }

    /// Whether a directory that was fetched into is what is wanted now, with nothing besides.
    pub fn is_in(&mut self, directory: &Path) -> Result<bool, RemoteError> {
        let journal = Journal::open(directory)?;
        // Only the models that are wanted now say what else is.
        let is_same = compare(&journal, &self.plan.wanted, true)?.is_empty()
            && compare(&journal, &self.complete(journal.directory())?, true)?.is_empty();
        Ok(is_same && journal.has_only(&self.targets()))
    }

    /// Makes a directory what is wanted now, with nothing besides. What an earlier one has of it is not
    /// fetched: those files have two names then, and the earlier directory stays as it is.
    pub fn renew(
        &mut self,
        earlier: Option<&Path>,
        directory: &Path,
        wish: &Wish,
        progress: Progress<'_>,
    ) -> Result<Pulled, RemoteError> {
        let journal = Journal::open(directory)?;
        if let Some(earlier) = earlier {
            let earlier = Journal::open(earlier)?;
            for wanted in &self.plan.wanted {
                journal.take_from(&earlier, wanted)?;
            }
            journal.write()?;
        }
        let pulled = self.fetch(&journal, wish, progress)?;
        journal.keep_only(&self.targets())?;
        journal.close();
        Ok(pulled)
    }

    /// Variants that are not wanted: the config's path in a directory, places in `variants`.
    pub fn left_out(&self) -> &[(String, Vec<usize>)] {
        &self.plan.left_out
    }

    fn targets(&self) -> BTreeSet<&str> {
        let wanted = self.plan.wanted.iter();
        wanted.map(|one| one.target.as_str()).collect()
    }

    /// What the models in a directory need besides what was known to be wanted.
    fn complete(&mut self, directory: &Path) -> Result<Vec<Wanted>, RemoteError> {
        let mut more = self.plan.complete(&mut self.mirror, directory)?;
        self.sums.apply(&mut more)?;
        Ok(more)
    }

    fn fetch(
        &mut self,
        journal: &Journal,
        wish: &Wish,
        progress: Progress<'_>,
    ) -> Result<Pulled, RemoteError> {
        let mut pulled = Pulled::default();
        self.fetch_part(&self.plan.wanted, journal, wish, progress, &mut pulled)?;
        let more = self.complete(journal.directory())?;
        self.fetch_part(&more, journal, wish, progress, &mut pulled)?;
        pulled.traffic = self.mirror.traffic();
        pulled.left_out = left_out(&self.plan, journal.directory());
        Ok(pulled)
    }

    fn fetch_part(
        &self,
        wanted: &[Wanted],
        journal: &Journal,
        wish: &Wish,
        progress: Progress<'_>,
        pulled: &mut Pulled,
    ) -> Result<(), RemoteError> {
        let todo = compare(journal, wanted, wish.force)?;
        let left: u64 = todo
            .iter()
            .map(|one| one.size.saturating_sub(journal.part_size(one)))
            .sum();
        room::check(journal.directory(), left)?;
        progress(Step::Planned(left));
        fetch_all(&self.mirror, journal, &todo, wish, progress)?;
        pulled.fetched += todo.len();
        pulled.kept += wanted.len() - todo.len();
        pulled.bytes += todo.iter().map(|one| one.size).sum::<u64>();
        Ok(())
    }
}

/// What is not there yet; an error if something else is.
fn compare<'p>(
    journal: &Journal,
    all: &'p [Wanted],
    force: bool,
) -> Result<Vec<&'p Wanted>, RemoteError> {
    let (mut todo, mut differing) = (Vec::new(), Vec::new());
    for wanted in all {
        match journal.look(wanted)? {
            journal::There::Same => {}
            journal::There::Nothing => todo.push(wanted),
            journal::There::Other => {
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
        "{}{more} in {} differ from the source, and stay as they are. To overwrite them, use --force",
        differing.join(", "),
        journal.directory().display()
    )))
}

fn fetch_all(
    mirror: &Mirror,
    journal: &Journal,
    todo: &[&Wanted],
    wish: &Wish,
    progress: Progress<'_>,
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

fn left_out(plan: &Plan, directory: &Path) -> Vec<(PathBuf, Vec<usize>)> {
    let out = plan.left_out.iter();
    out.map(|(config, places)| (directory.join(config), places.clone()))
        .collect()
}
