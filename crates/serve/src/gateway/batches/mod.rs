//! Runs batches: checks their input, runs their requests while nothing else needs the models, and
//! writes the files with the answers.
//!
//! Invariant: of an account's batches, one runs at a time, the oldest first. A stop or a crash at
//! any time loses only answers that were not stored yet; their requests run again.

mod input;
mod line;
mod output;
mod place;
mod run;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::{Id, JoinHandle, JoinSet};

use super::Gateway;
use super::error::GatewayError;
use crate::account::AccountId;
use crate::batch::{BatchId, BatchState, StoredBatch};
use crate::database::Timestamp;
use run::BatchJob;

/// Interval between searches for batches to run, and between clean-ups.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Pause after a failure of the storage.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Maximum number of batches that are checked, run or ended at the same time.
const MAX_ACTIVE_BATCHES: usize = 16;

/// Maximum number of records that one step of a clean-up removes.
const CLEAN_UP_RECORDS: usize = 200;

/// The batches of a running gateway.
#[derive(Debug)]
pub struct BatchRunner {
    stop: watch::Sender<bool>,
    worker: JoinHandle<()>,
}

/// Decides which batches run.
struct BatchScheduler {
    gateway: Arc<Gateway>,
    /// Places for requests that run at the same time.
    places: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
    jobs: JoinSet<()>,
    active: HashMap<BatchId, ActiveBatch>,
}

/// A batch with a job.
struct ActiveBatch {
    account: AccountId,
    job: Id,
    /// Its requests run.
    runs: bool,
}

impl BatchRunner {
    /// Starts to run batches. Must be called on a tokio runtime.
    pub fn start(gateway: &Arc<Gateway>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let scheduler = BatchScheduler {
            gateway: Arc::clone(gateway),
            places: Arc::new(Semaphore::new(gateway.settings.batches.running.max(1))),
            stop: stopped,
            jobs: JoinSet::new(),
            active: HashMap::new(),
        };
        Self {
            stop,
            worker: tokio::spawn(scheduler.work()),
        }
    }

    /// Stops all batches. They continue at the next start.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.worker.await {
            tracing::error!(%error, "stopping the batches failed");
        }
    }
}

impl BatchScheduler {
    async fn work(mut self) {
        let mut changed = self.gateway.batches_changed.subscribe();
        let mut stop = self.stop.clone();
        let mut tick = tokio::time::interval(POLL_INTERVAL);
        loop {
            changed.borrow_and_update();
            self.start_jobs().await;
            tokio::select! {
                () = stopped(&mut stop) => break,
                Some(ended) = self.jobs.join_next_with_id() => {
                    let job = match &ended {
                        Ok((job, ())) => *job,
                        Err(error) => error.id(),
                    };
                    if let Err(error) = ended {
                        tracing::error!(%error, "the run of a batch panicked");
                    }
                    self.active.retain(|_, active| active.job != job);
                }
                _ = changed.changed() => {}
                _ = tick.tick() => self.clean_up().await,
            }
        }
        while self.jobs.join_next().await.is_some() {}
    }

    async fn start_jobs(&mut self) {
        let open = match self.gateway.batches.open_batches().await {
            Ok(open) => open,
            Err(error) => {
                tracing::error!(%error, "cannot list open batches");
                return;
            }
        };
        for batch in open {
            if self.active.len() >= MAX_ACTIVE_BATCHES {
                return;
            }
            let account = batch.is.account;
            let runs =
                batch.state == BatchState::InProgress && batch.is.expires_at > Timestamp::now();
            let mut active = self.active.values();
            let waits = runs && active.any(|other| other.runs && other.account == account);
            if waits || self.active.contains_key(&batch.id) {
                continue;
            }
            let id = batch.id;
            let job = BatchJob {
                gateway: Arc::clone(&self.gateway),
                places: Arc::clone(&self.places),
                stop: self.stop.clone(),
            };
            let job = self.jobs.spawn(advance(job, batch)).id();
            self.active.insert(id, ActiveBatch { account, job, runs });
        }
    }

    /// Removes expired files, old batches, and answers that are in a file.
    async fn clean_up(&self) {
        let keep = self.gateway.settings.batches.keep();
        let (batches, clock) = (&self.gateway.batches, &self.gateway.clock);
        loop {
            let (now, since) = (clock.present(keep), clock.kept_since(keep));
            let lines = batches.delete_lines(CLEAN_UP_RECORDS).await;
            let removed = async { batches.purge(now, since, CLEAN_UP_RECORDS).await };
            let (lines, files) = match (lines, removed.await) {
                (Ok(lines), Ok(files)) => (lines, files),
                (Err(error), _) | (_, Err(error)) => {
                    tracing::error!(%error, "cannot remove old batches");
                    return;
                }
            };
            for file in &files {
                self.gateway.blobs.delete_file(&file.is.blob).await;
                self.gateway.on_disk.forget(file.is.account);
            }
            if lines < CLEAN_UP_RECORDS && files.len() < CLEAN_UP_RECORDS {
                return;
            }
            // Other requests write in between.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Brings a batch into its next state.
async fn advance(job: BatchJob, batch: StoredBatch) {
    let id = batch.id.0;
    let advanced = match batch.state {
        BatchState::Validating => input::validate(&job.gateway, &batch).await,
        BatchState::InProgress => run::run(&job, &batch).await,
        BatchState::Finalizing => output::end(&job.gateway, &batch, BatchState::Completed).await,
        BatchState::Canceling => output::end(&job.gateway, &batch, BatchState::Canceled).await,
        BatchState::Failed | BatchState::Completed | BatchState::Expired | BatchState::Canceled => {
            Ok(())
        }
    };
    if let Err(error) = advanced {
        let detail = error.detail().unwrap_or(&error.message);
        tracing::error!(
            batch = id,
            error = detail,
            "a batch could not go on; retrying"
        );
        let mut stop = job.stop.clone();
        tokio::select! {
            () = stopped(&mut stop) => {}
            () = tokio::time::sleep(RETRY_PAUSE) => {}
        }
    }
}

/// Waits until the server stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender the server has stopped, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Result of a step of a batch. An error is one of the storage.
type AdvanceResult = Result<(), GatewayError>;
