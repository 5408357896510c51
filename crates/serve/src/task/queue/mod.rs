//! The task queue: claims waiting tasks, calls their services and stores the outcomes.
//!
//! Invariant: a claimed task either ends or returns to the queue. An answer that cannot be stored
//! is kept, and storing is retried as long as the lease is held. The queue knows stores and
//! services only through their interfaces.

mod absent;
mod housekeeping;
mod run;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::task::{AbortHandle, Id, JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Instrument as _;

use super::{
    AccountTurns, Blobs, Caps, ClaimedTask, Lease, Status, TaskEvent, TaskId, TaskLimits, TaskStore,
};
use crate::account::{AccountId, Directory};
use crate::database::{DatabaseResult, RetentionClock, Timestamp};
use crate::service::{BodyMemory, Service};
pub use absent::AbsentServices;

/// Finds a service by its owner and name.
pub type FindNamedService = Box<dyn Fn(AccountId, &str) -> Option<Arc<Service>> + Send + Sync>;

/// Returns the services that cannot answer now, by owner and name.
pub type PausedServices = Box<dyn Fn() -> Vec<(AccountId, String)> + Send + Sync>;

/// Delay before the queue retries after an error of the store.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Dependencies and settings of a queue.
pub struct QueueOptions {
    /// The store of tasks.
    pub store: Arc<dyn TaskStore>,
    /// The clock that determines when tasks and answers are deleted.
    pub clock: Arc<RetentionClock>,
    /// The store of bodies and answers.
    pub blobs: Arc<Blobs>,
    /// Memory for bodies.
    pub memory: Arc<BodyMemory>,
    /// Finds a service by name.
    pub find: FindNamedService,
    /// The services that cannot answer now and whose tasks wait, by owner and name.
    pub paused: PausedServices,
    /// Services that this server does not have.
    pub absent: AbsentServices,
    /// Changes when a paused service can answer again.
    pub resumed: watch::Receiver<u64>,
    /// Maximum number of attempts of a task whose worker leaves.
    pub worker_attempts: u32,
    /// The accounts and their limits.
    pub directory: Arc<Directory>,
    /// System-wide caps on tasks.
    pub caps: Caps,
    /// Duration of a lease without a heartbeat.
    pub lease: Duration,
    /// Retention of answers; short answers stay as long as their record.
    pub answer_ttl: Duration,
    /// Retention of finished tasks; `None` keeps them until they are deleted.
    pub record_ttl: Option<Duration>,
}

/// A running queue.
#[derive(Debug)]
pub struct TaskQueue {
    stop: watch::Sender<Option<Duration>>,
    dispatcher: JoinHandle<()>,
    housekeeping: JoinHandle<()>,
}

struct Dispatcher {
    options: Arc<QueueOptions>,
    running: JoinSet<()>,
    /// The running tasks.
    held: HashMap<TaskId, (Lease, AbortHandle)>,
    by_id: HashMap<Id, TaskId>,
    turns: Arc<AccountTurns>,
}

impl TaskQueue {
    /// Starts to claim tasks.
    pub fn start(options: QueueOptions) -> Self {
        let (stop, stopped) = watch::channel(None);
        let options = Arc::new(options);
        let housekeeping = tokio::spawn(housekeeping::run(Arc::clone(&options)));
        let dispatcher = Dispatcher {
            options,
            running: JoinSet::new(),
            held: HashMap::new(),
            by_id: HashMap::new(),
            turns: Arc::default(),
        };
        Self {
            stop,
            dispatcher: tokio::spawn(dispatcher.run(stopped)),
            housekeeping,
        }
    }

    /// Stops claiming, lets running tasks end within `grace`, and returns the rest to the queue.
    pub async fn stop(self, grace: Duration) {
        self.stop.send_replace(Some(grace));
        self.housekeeping.abort();
        if let Err(error) = self.dispatcher.await {
            tracing::error!(%error, "the task queue crashed");
        }
    }
}

impl QueueOptions {
    /// Returns a running task to the queue. After so many crashes it is canceled.
    async fn release(&self, lease: Lease, crash: Option<u32>) -> DatabaseResult<bool> {
        let (crashed, attempts) = (crash.is_some(), crash.unwrap_or(self.caps.attempts));
        let now = Timestamp::now();
        self.store.release(lease, crashed, attempts, now).await
    }
}

impl Dispatcher {
    async fn run(mut self, mut stopped: watch::Receiver<Option<Duration>>) {
        let store = Arc::clone(&self.options.store);
        // Subscribe before the first query, so that no change is missed in between.
        let mut wakeups = store.wakeups();
        let mut events = store.events();
        let mut news = store.news();
        let mut resumed = self.options.resumed.clone();
        let mut tick = tokio::time::interval(self.options.lease / 4);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut claims_at = Instant::now();
        loop {
            wakeups.borrow_and_update();
            if claims_at <= Instant::now() && !self.claim().await {
                claims_at = Instant::now() + STORE_RETRY_DELAY;
            }
            tokio::select! {
                _ = stopped.changed() => break,
                Some(done) = self.running.join_next_with_id() => self.on_run_ended(done),
                _ = wakeups.changed() => {}
                // The sender lives as long as the gateway's services.
                Ok(()) = resumed.changed() => {}
                event = events.recv() => self.on_event(&event),
                () = changed(&mut news) => self.follow_others().await,
                _ = tick.tick() => self.maintain().await,
                () = tokio::time::sleep_until(claims_at), if claims_at > Instant::now() => {}
            }
        }
        let grace = stopped.borrow().unwrap_or_default();
        self.shut_down(events, grace).await;
    }

    /// Claims a task for each free place, and the tasks that accounts may run beyond those. Returns
    /// `false` if the store failed.
    async fn claim(&mut self) -> bool {
        let places = self.options.caps.places as usize;
        let free = places.saturating_sub(self.running.len());
        let options = &self.options;
        let accounts = Arc::clone(&options.directory.snapshot());
        let mut held_back = (options.paused)();
        held_back.extend(options.absent.list());
        let limits = TaskLimits::new(accounts, options.caps).without(held_back);
        let claimed = options.store.claim(free, &self.turns, &limits).await;
        match claimed {
            Ok(claimed) => {
                for task in claimed {
                    Arc::make_mut(&mut self.turns).served(task.caller);
                    self.spawn(task);
                }
                true
            }
            Err(error) => {
                tracing::error!(%error, "cannot claim tasks");
                false
            }
        }
    }

    fn spawn(&mut self, claimed: ClaimedTask) {
        let lease = claimed.lease;
        let options = Arc::clone(&self.options);
        let span = tracing::trace_span!(
            target: "pkgtool::trace",
            "task",
            task = %lease.task,
            service = claimed.service,
            attempt = lease.attempt
        );
        let abort = self
            .running
            .spawn(run::run(options, claimed).instrument(span));
        self.by_id.insert(abort.id(), lease.task);
        self.held.insert(lease.task, (lease, abort));
    }

    fn on_run_ended(&mut self, done: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match &done {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let Some(task) = self.by_id.remove(&id) else {
            return;
        };
        let Some((lease, abort)) = self.held.remove(&task) else {
            return;
        };
        if abort.id() != id {
            // The task was claimed again meanwhile, and this is its previous run.
            self.held.insert(task, (lease, abort));
            return;
        }
        if let Err(error) = done
            && error.is_panic()
        {
            tracing::error!(task = %lease.task, %error, "the run of a task panicked");
            let options = Arc::clone(&self.options);
            tokio::spawn(async move {
                let released = options.release(lease, Some(options.caps.attempts)).await;
                if let Err(error) = released {
                    tracing::error!(task = %lease.task, %error, "cannot return the task to the queue");
                }
            });
        }
    }

    /// Stops the run of a task that was canceled.
    fn on_event(&mut self, event: &Result<TaskEvent, RecvError>) {
        match event {
            Ok(event) if event.status == Status::Canceled => {
                if let Some((_, abort)) = self.held.get(&event.task) {
                    abort.abort();
                }
            }
            // A missed event is detected at the next heartbeat, because the lease is lost.
            Ok(_) | Err(_) => {}
        }
    }

    /// Tells other servers that this one lives, and stops the runs of lost leases. Then returns the tasks of servers
    /// that no longer live to the queue.
    async fn maintain(&mut self) {
        let held: Vec<Lease> = self.held.values().map(|(lease, _)| *lease).collect();
        let store = &self.options.store;
        match store.heartbeat(&held).await {
            Ok(lost) => {
                for lease in lost {
                    if let Some((mine, abort)) = self.held.get(&lease.task)
                        && *mine == lease
                    {
                        abort.abort();
                    }
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot extend leases");
                return;
            }
        }
        let reaped = store.reap(self.options.caps.attempts, Timestamp::now());
        match reaped.await {
            Ok(0) => {}
            Ok(tasks) => {
                tracing::warn!(tasks, "tasks of a server that is gone return to the queue");
            }
            Err(error) => {
                tracing::error!(%error, "cannot return tasks of other servers to the queue");
            }
        }
    }

    /// Stops the runs of tasks that other servers ended.
    async fn follow_others(&mut self) {
        let held: Vec<TaskId> = self.held.keys().copied().collect();
        if held.is_empty() {
            return;
        }
        match self.options.store.ended(&held).await {
            Ok(ended) => ended.iter().for_each(|event| self.on_event(&Ok(*event))),
            // The next heartbeat finds that the lease is lost.
            Err(error) => tracing::debug!(%error, "cannot look for canceled tasks"),
        }
    }

    async fn shut_down(mut self, mut events: broadcast::Receiver<TaskEvent>, grace: Duration) {
        let deadline = Instant::now() + grace;
        while !self.running.is_empty() {
            tokio::select! {
                Some(done) = self.running.join_next_with_id() => self.on_run_ended(done),
                event = events.recv() => self.on_event(&event),
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
        let left: Vec<Lease> = self.held.values().map(|(lease, _)| *lease).collect();
        self.running.shutdown().await;
        for lease in left {
            if let Err(error) = self.options.release(lease, None).await {
                // The next start finds the task running and returns it to the queue.
                tracing::error!(task = %lease.task, %error, "cannot return the task to the queue");
            }
        }
    }
}

/// Waits until other servers may have ended tasks; forever if there are none.
async fn changed(news: &mut Option<watch::Receiver<u64>>) {
    let closed = match news {
        Some(news) => news.changed().await.is_err(),
        None => true,
    };
    if closed {
        std::future::pending::<()>().await;
    }
}
