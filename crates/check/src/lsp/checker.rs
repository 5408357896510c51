//! A thread that checks documents in the background.
//!
//! Invariant: only the newest text of a document waits in the queue, so outdated texts are not
//! checked. The most recently changed document is checked first. After a slow check, the thread
//! pauses to let further edits arrive.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::job::{CheckJob, CheckOutcome};
use super::mailbox::{Mailbox, ServerEvent};
use crate::policy::{self, Policy};
use crate::validate::ValidationSession;
use pkgtool_base::diagnostic::Diagnostic;
use pkgtool_base::package::load::MAX_SIZE;
use pkgtool_base::package::{FoundFile, LoadFault, LoadedFile};

/// Maximum duration of a check that is followed by the next one without a pause.
const MAX_QUICK_CHECK: Duration = Duration::from_millis(20);
/// Maximum pause after a check.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// The thread and its queue.
#[derive(Debug)]
pub(super) struct Checker {
    shared: Arc<SharedChecker>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct SharedChecker {
    waiting: Mutex<JobQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct JobQueue {
    jobs: HashMap<String, CheckJob>,
    ended: bool,
}

impl Checker {
    /// Starts the thread, which sends outcomes to `mailbox`.
    pub(super) fn start(session: Arc<ValidationSession>, mailbox: Mailbox) -> Self {
        let shared = Arc::new(SharedChecker::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while let Some(job) = theirs.next() {
                let started = Instant::now();
                mailbox.queue_event(ServerEvent::Checked(checked(&session, job)));
                theirs.pause(started.elapsed());
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Queues a document for a check. Replaces a queued job of the same document.
    pub(super) fn submit(&self, job: CheckJob) {
        self.shared.locked().jobs.insert(job.uri.clone(), job);
        self.shared.changed.notify_one();
    }

    /// Removes a document from the queue.
    pub(super) fn forget(&self, uri: &str) {
        self.shared.locked().jobs.remove(uri);
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.shared.locked().ended = true;
        self.shared.changed.notify_one();
        // A check may hang, for example on a dead network drive. It must not keep the process
        // alive, so the thread is not joined then.
        if let Some(thread) = self.thread.take()
            && thread.is_finished()
        {
            let _ = thread.join();
        }
    }
}

impl SharedChecker {
    fn next(&self) -> Option<CheckJob> {
        let mut waiting = self.locked();
        loop {
            if waiting.ended {
                return None;
            }
            let newest = waiting.jobs.values().max_by_key(|job| job.revision);
            if let Some(uri) = newest.map(|job| job.uri.clone()) {
                return waiting.jobs.remove(&uri);
            }
            let woken = self.changed.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Pauses after a check of this duration, to let edits arrive.
    fn pause(&self, took: Duration) {
        if took >= MAX_QUICK_CHECK && !self.locked().ended {
            thread::sleep(took.min(MAX_PAUSE));
        }
    }

    fn locked(&self) -> MutexGuard<'_, JobQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn checked(session: &ValidationSession, job: CheckJob) -> CheckOutcome {
    let CheckJob {
        uri,
        revision,
        found,
        text,
    } = job;
    let loaded = match text {
        Ok(bytes) if bytes.len() as u64 <= MAX_SIZE => LoadedFile::from_bytes(bytes),
        Ok(bytes) => too_large(bytes.len() as u64),
        Err(size) => too_large(size),
    };
    // A panicking rule is a bug. Catch the panic, so that the server keeps running and the user's
    // texts stay open.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        selected_findings(session, &found, &loaded)
    }));
    let path = found.path.display();
    let (findings, failure) = match outcome {
        Ok(Ok(findings)) => (findings, None),
        Ok(Err(error)) => (Vec::new(), Some(error.to_string())),
        Err(_) => {
            let failure = format!("{path}: a bug in pkgtool prevents checking this text");
            (Vec::new(), Some(failure))
        }
    };
    CheckOutcome {
        uri,
        revision,
        findings,
        failure,
    }
}

fn too_large(size: u64) -> LoadedFile {
    LoadedFile {
        text: String::new(),
        document: Err(LoadFault::TooLarge(size)),
    }
}

/// Returns the findings for the user: those about this file, as the project's settings select them.
fn selected_findings(
    session: &ValidationSession,
    found: &FoundFile,
    loaded: &LoadedFile,
) -> Result<Vec<Diagnostic>, policy::PolicyError> {
    let policy = Policy::nearest();
    let ruled = policy.check(session, found, loaded)?;
    let shown = policy.shown(&found.path);
    let mut findings = ruled.outcome.report.diagnostics;
    // Errors in settings are reported in the settings file.
    findings.retain(|one| one.source.path == shown);
    Ok(findings)
}
