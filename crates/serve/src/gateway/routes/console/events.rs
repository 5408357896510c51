//! Route of the console for events: it names what changed, and the page reads that again.
//!
//! A page that was away reads everything again, so no event has to be kept.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream;
use tokio::sync::watch;

use super::super::super::Gateway;
use super::super::super::auth::Caller;
use super::super::super::error::GatewayError;
use super::super::super::recorder::Sample;
use super::super::super::stopping::ShutdownStage;
use super::services::{ServiceSummary, summaries};
use crate::account::AccountId;
use crate::batch::{ListPage, StoredBatch};
use crate::task::{Status, TaskId};
use crate::train::{JobId, JobState};

/// Time between two looks for changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time between two signs of life.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Delay after which a browser connects again.
const RETRY: Duration = Duration::from_secs(1);

/// Number of an account's newest tasks that are compared.
const SEEN_TASKS: usize = 100;

/// Number of an account's newest jobs that are compared.
const SEEN_JOBS: usize = 20;

/// The newest batches of an account that are compared.
const SEEN_BATCHES: ListPage = ListPage {
    after: None,
    most: 20,
    ascending: false,
};

/// The newest tasks, and the numbers of waiting and running tasks of all accounts.
type SeenTasks = (Vec<(TaskId, Status, u32)>, (u64, u64));

/// The state that a page has read, and its channels.
struct Follower {
    gateway: Arc<Gateway>,
    account: AccountId,
    is_operator: bool,
    samples: watch::Receiver<VecDeque<Sample>>,
    services: Vec<ServiceSummary>,
    tasks: SeenTasks,
    jobs: Vec<(JobId, JobState, u8)>,
    batches: Vec<StoredBatch>,
    /// The head of the request, for its session.
    parts: Parts,
    began: bool,
}

/// Streams the names of what changes, and to the operator the samples of the machine.
pub(super) async fn events(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    request: Request,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, GatewayError> {
    let follower = Follower {
        samples: gateway.recorder.follow(),
        services: summaries(&gateway, caller.account).await?,
        tasks: seen_tasks(&gateway, caller.account).await?,
        jobs: seen_jobs(&gateway, caller.account).await?,
        batches: gateway
            .batches
            .batches(caller.account, SEEN_BATCHES)
            .await?,
        account: caller.account,
        is_operator: caller.key.is_none(),
        gateway,
        parts: request.into_parts().0,
        began: false,
    };
    let events = stream::unfold(follower, |mut follower| async {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

async fn seen_tasks(gateway: &Gateway, account: AccountId) -> Result<SeenTasks, GatewayError> {
    let newest = gateway.store.list(account, None, None, SEEN_TASKS).await?;
    let newest = newest.into_iter();
    let newest = newest
        .map(|task| (task.id, task.status, task.attempt))
        .collect();
    Ok((newest, gateway.store.load().await?))
}

async fn seen_jobs(
    gateway: &Gateway,
    account: AccountId,
) -> Result<Vec<(JobId, JobState, u8)>, GatewayError> {
    let jobs = gateway.jobs.store().jobs(account, None, None, SEEN_JOBS);
    let jobs = jobs.await?.into_iter();
    Ok(jobs
        .map(|job| (job.id, job.state, job.percentage))
        .collect())
}

impl Follower {
    /// Waits for the next event; `None` once the server stops or the session ends.
    async fn next(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.began, true) {
            return Some(Event::default().event("hello").retry(RETRY).data("{}"));
        }
        let gateway = Arc::clone(&self.gateway);
        let stopping = gateway.stopping.reached(ShutdownStage::Draining);
        tokio::pin!(stopping);
        loop {
            tokio::select! {
                () = &mut stopping => return None,
                changed = self.samples.changed(), if self.is_operator => {
                    changed.ok()?;
                    let sample = self.samples.borrow_and_update().back().cloned();
                    if let Some(sample) = sample {
                        return Event::default().event("sample").json_data(sample).ok();
                    }
                }
                () = tokio::time::sleep(INTERVAL) => {
                    // The stream ends with its session.
                    Caller::from_request_parts(&mut self.parts, &gateway).await.ok()?;
                    if let Some(event) = self.changes().await {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// Returns the names of what changed since the last look.
    async fn changes(&mut self) -> Option<Event> {
        let mut changed = Vec::new();
        let (gateway, account) = (&self.gateway, self.account);
        let mut compare = |name: &'static str, is_new: bool| {
            if is_new {
                changed.push(name);
            }
        };
        // A store that fails for a moment has no news.
        if let Ok(tasks) = seen_tasks(gateway, account).await {
            compare("tasks", tasks != self.tasks);
            self.tasks = tasks;
        }
        if let Ok(services) = summaries(gateway, account).await {
            compare("services", services != self.services);
            self.services = services;
        }
        if let Ok(jobs) = seen_jobs(gateway, account).await {
            compare("jobs", jobs != self.jobs);
            self.jobs = jobs;
        }
        if let Ok(batches) = gateway.batches.batches(account, SEEN_BATCHES).await {
            compare("batches", batches != self.batches);
            self.batches = batches;
        }
        if changed.is_empty() {
            return None;
        }
        Event::default().event("changed").json_data(changed).ok()
    }
}
