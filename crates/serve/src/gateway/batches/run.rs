//! Runs the requests of a batch.
//!
//! Invariant: a request whose outcome is stored does not run again. Outcomes that wait to be stored
//! have a limited size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::super::Gateway;
use super::super::error::GatewayError;
use super::input::UnansweredRequest;
use super::place::LinePlace;
use super::{AdvanceResult, input, line, output, stopped};
use crate::batch::{BatchId, BatchState, LineOutcome, StoredBatch};
use crate::database::Timestamp;

/// Outcomes of this time are stored together, so that other writers seldom wait for a batch.
const STORE_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum number of outcomes that are stored together.
const MAX_STORED_TOGETHER: usize = 512;

/// Maximum size of outcomes that are not stored yet, in KiB.
const MAX_UNSTORED_KIB: u32 = 64 << 10;

/// Pause before outcomes are stored again after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Interval between looks for requests that wait for a device.
const AWAY_LOOK: Duration = Duration::from_secs(1);

/// Interval between checks of the account's storage limit.
const ROOM_INTERVAL: Duration = Duration::from_secs(10);

/// The means of running a batch.
pub(super) struct BatchJob {
    pub(super) gateway: Arc<Gateway>,
    /// Places for requests of all batches that run at the same time.
    pub(super) places: Arc<Semaphore>,
    pub(super) stop: watch::Receiver<bool>,
}

/// An outcome with its share of the memory for outcomes.
type HeldOutcome = (LineOutcome, OwnedSemaphorePermit);

/// How a run ended.
enum RunEnd {
    Answered,
    Expired,
    Canceled,
    /// The server stops.
    Stopped,
}

/// Runs the requests of a batch that have no outcome yet, and ends the batch.
pub(super) async fn run(job: &BatchJob, batch: &StoredBatch) -> AdvanceResult {
    let gateway = &job.gateway;
    let requests = input::unanswered(gateway, batch).await?;
    let (sender, outcomes) = mpsc::channel(MAX_STORED_TOGETHER);
    let storing = tokio::spawn(store(Arc::clone(gateway), batch.id, outcomes));
    let end = run_all(job, batch, requests, sender).await;
    storing
        .await
        .map_err(|error| GatewayError::unchecked(&error))?;
    let state = match end? {
        RunEnd::Stopped => return Ok(()),
        RunEnd::Canceled => BatchState::Canceled,
        RunEnd::Expired => BatchState::Expired,
        RunEnd::Answered => {
            let finalized = gateway.batches.finalize(batch.id, Timestamp::now());
            finalized.await?;
            BatchState::Completed
        }
    };
    output::end(gateway, batch, state).await
}

async fn run_all(
    job: &BatchJob,
    batch: &StoredBatch,
    mut requests: mpsc::Receiver<Result<UnansweredRequest, GatewayError>>,
    outcomes: mpsc::Sender<HeldOutcome>,
) -> Result<RunEnd, GatewayError> {
    let gateway = &job.gateway;
    let memory = Arc::new(Semaphore::new(MAX_UNSTORED_KIB as usize));
    let mut running = JoinSet::new();
    let mut stop = job.stop.clone();
    let mut changed = gateway.batches_changed.subscribe();
    // The batch may have been canceled before.
    changed.mark_changed();
    let mut look_at_room = tokio::time::interval(ROOM_INTERVAL);
    let mut has_room = true;
    let mut is_read = false;
    let away = Arc::new(AtomicUsize::new(0));
    let left = Timestamp::now().until(batch.is.expires_at);
    let mut expires = std::pin::pin!(tokio::time::sleep(left));
    while !(is_read && running.is_empty()) {
        tokio::select! {
            biased;
            () = stopped(&mut stop) => return Ok(RunEnd::Stopped),
            () = &mut expires => return Ok(RunEnd::Expired),
            _ = changed.changed() => {
                let now = gateway.batches.batch(batch.id).await?;
                if now.is_none_or(|now| now.state != BatchState::InProgress) {
                    return Ok(RunEnd::Canceled);
                }
            }
            Some(ended) = running.join_next() => {
                ended.map_err(|error| GatewayError::unchecked(&error))?;
            }
            _ = look_at_room.tick() => {
                let room = gateway.room(batch.is.account).await;
                has_room = room.is_ok();
                if let Err(error) = room {
                    tracing::warn!(batch = batch.id.0, error = error.message, "a batch waits for storage");
                }
            }
            // Further requests would wait for the same device.
            () = tokio::time::sleep(AWAY_LOOK), if away.load(Relaxed) > 0 => {}
            place = LinePlace::take(&job.places, &away), if !is_read && has_room && away.load(Relaxed) == 0 => {
                match requests.recv().await {
                    None => is_read = true,
                    Some(Err(error)) => return Err(error),
                    Some(Ok(request)) => {
                        let (gateway, memory) = (Arc::clone(gateway), Arc::clone(&memory));
                        let (batch, outcomes) = (batch.clone(), outcomes.clone());
                        running.spawn(async move {
                            let mut place = place;
                            let outcome = line::run(&gateway, &batch, request, &mut place).await;
                            let size = u32::try_from(outcome.answer.len() >> 10).unwrap_or(u32::MAX);
                            let size = size.clamp(1, MAX_UNSTORED_KIB);
                            // Neither the semaphore nor the channel closes before the requests end.
                            if let Ok(held) = memory.acquire_many_owned(size).await {
                                let _ = outcomes.send((outcome, held)).await;
                            }
                            // Until then the outcome needs memory.
                            drop(place);
                        });
                    }
                }
            }
        }
    }
    Ok(RunEnd::Answered)
}

/// Stores outcomes until their senders are gone.
async fn store(gateway: Arc<Gateway>, id: BatchId, mut outcomes: mpsc::Receiver<HeldOutcome>) {
    let mut together = Vec::new();
    while outcomes.recv_many(&mut together, MAX_STORED_TOGETHER).await > 0 {
        let more = async {
            while together.len() < MAX_STORED_TOGETHER
                && let Some(next) = outcomes.recv().await
            {
                together.push(next);
            }
        };
        // The rest is stored with the next ones.
        let _ = tokio::time::timeout(STORE_INTERVAL, more).await;
        let (lines, held): (Vec<_>, Vec<_>) = together.drain(..).unzip();
        while let Err(error) = gateway.batches.store_lines(id, &lines).await {
            tracing::error!(batch = id.0, %error, "cannot store answers of a batch; retrying");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        drop(held);
    }
}
