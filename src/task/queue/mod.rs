//! The queue: claims waiting tasks, has their services answer, stores what came of it.
//!
//! Invariant: a claimed task ends, or is put back; an answer that could not be stored is kept and
//! tried again while the lease is held. Knows stores and services only by what they promise.

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

use super::{Blobs, Caps, Claimed, Event, Lease, Limits, Status, TaskId, TaskStore, Turns};
use crate::account::{AccountId, Directory};
use crate::database::{DatabaseError, RetentionClock, Timestamp};
use crate::service::{BodyMemory, Service};

/// Finds a service by its owner and name.
pub type Find = Box<dyn Fn(AccountId, &str) -> Option<Arc<Service>> + Send + Sync>;

/// How long the queue waits after the store failed.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// What a queue works with.
pub struct QueueOptions {
    /// Where tasks are.
    pub store: Arc<dyn TaskStore>,
    /// The clock by which tasks and answers are deleted.
    pub clock: Arc<RetentionClock>,
    /// Where bodies and answers are.
    pub blobs: Arc<Blobs>,
    /// Memory for bodies.
    pub memory: Arc<BodyMemory>,
    /// Where services are.
    pub find: Find,
    /// What accounts may do,
    pub directory: Arc<Directory>,
    /// within these caps.
    pub caps: Caps,
    /// How long a claim holds without a sign of life.
    pub lease: Duration,
    /// How long answers are kept, but for short ones.
    pub answer_ttl: Duration,
    /// How long tasks are kept that have ended; `None`: until they are deleted.
    pub record_ttl: Option<Duration>,
}

/// A running queue.
#[derive(Debug)]
pub struct Queue {
    stop: watch::Sender<Option<Duration>>,
    dispatcher: JoinHandle<()>,
    housekeeping: JoinHandle<()>,
}

struct Dispatcher {
    options: Arc<QueueOptions>,
    running: JoinSet<()>,
    /// What runs, by its task.
    held: HashMap<TaskId, (Lease, AbortHandle)>,
    by_id: HashMap<Id, TaskId>,
    turns: Arc<Turns>,
}

impl Queue {
    /// Starts claiming.
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

    /// Claims no more, lets what runs end within `grace`, puts the rest back.
    pub async fn stop(self, grace: Duration) {
        self.stop.send_replace(Some(grace));
        self.housekeeping.abort();
        if let Err(error) = self.dispatcher.await {
            tracing::error!(%error, "the queue ended badly");
        }
    }
}

impl QueueOptions {
    /// Puts a running task back.
    async fn release(&self, lease: Lease, crashed: bool) -> Result<bool, DatabaseError> {
        let attempts = self.caps.attempts;
        let now = Timestamp::now();
        self.store.release(lease, crashed, attempts, now).await
    }
}

impl Dispatcher {
    async fn run(mut self, mut stopped: watch::Receiver<Option<Duration>>) {
        let store = Arc::clone(&self.options.store);
        // Subscribed before the first query: nothing falls between the two.
        let mut wakeups = store.wakeups();
        let mut events = store.events();
        let mut tick = tokio::time::interval(self.options.lease / 4);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut claims_at = Instant::now();
        loop {
            wakeups.borrow_and_update();
            if claims_at <= Instant::now() && !self.claim().await {
                claims_at = Instant::now() + AFTER_A_FAILURE;
            }
            tokio::select! {
                _ = stopped.changed() => break,
                Some(done) = self.running.join_next_with_id() => self.ended(done),
                _ = wakeups.changed() => {}
                event = events.recv() => self.heard(&event),
                _ = tick.tick() => self.maintain().await,
                () = tokio::time::sleep_until(claims_at), if claims_at > Instant::now() => {}
            }
        }
        let grace = stopped.borrow().unwrap_or_default();
        self.wind_up(events, grace).await;
    }

    /// Claims as many tasks as there are free places, and those that accounts may run beyond them; `false` if the store failed.
    async fn claim(&mut self) -> bool {
        let places = self.options.caps.places as usize;
        let free = places.saturating_sub(self.running.len());
        let until = Timestamp::now().after(self.options.lease);
        let options = &self.options;
        let accounts = Arc::clone(&options.directory.snapshot());
        let limits = Limits::new(accounts, options.caps);
        let claimed = options.store.claim(free, &self.turns, &limits, until).await;
        match claimed {
            Ok(claimed) => {
                for task in claimed {
                    Arc::make_mut(&mut self.turns).served(task.caller);
                    self.spawn(task);
                }
                true
            }
            Err(error) => {
                tracing::error!(%error, "no task can be claimed");
                false
            }
        }
    }

    fn spawn(&mut self, claimed: Claimed) {
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

    fn ended(&mut self, done: Result<(Id, ()), tokio::task::JoinError>) {
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
            // The task was claimed again meanwhile: this was the run before.
            self.held.insert(task, (lease, abort));
            return;
        }
        if let Err(error) = done
            && error.is_panic()
        {
            tracing::error!(task = %lease.task, %error, "a run of a task ended badly");
            let options = Arc::clone(&self.options);
            tokio::spawn(async move {
                let released = options.release(lease, true).await;
                if let Err(error) = released {
                    tracing::error!(task = %lease.task, %error, "it cannot be put back");
                }
            });
        }
    }

    /// Stops the run of a task that was canceled.
    fn heard(&mut self, event: &Result<Event, RecvError>) {
        match event {
            Ok(event) if event.status == Status::Canceled => {
                if let Some((_, abort)) = self.held.get(&event.task) {
                    abort.abort();
                }
            }
            // What was missed is seen at the next sign of life: the lease is lost.
            Ok(_) | Err(_) => {}
        }
    }

    /// Signs of life first, so that a jump of the clock never ends a lease that is held; then what
    /// others left behind.
    async fn maintain(&mut self) {
        let now = Timestamp::now();
        let held: Vec<Lease> = self.held.values().map(|(lease, _)| *lease).collect();
        let store = &self.options.store;
        if !held.is_empty() {
            match store.heartbeat(&held, now.after(self.options.lease)).await {
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
                    tracing::error!(%error, "leases cannot be prolonged");
                    return;
                }
            }
        }
        if let Err(error) = store.reap(self.options.caps.attempts, now).await {
            tracing::error!(%error, "lost tasks cannot be put back");
        }
    }

    async fn wind_up(mut self, mut events: broadcast::Receiver<Event>, grace: Duration) {
        let deadline = Instant::now() + grace;
        while !self.running.is_empty() {
            tokio::select! {
                Some(done) = self.running.join_next_with_id() => self.ended(done),
                event = events.recv() => self.heard(&event),
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
        let left: Vec<Lease> = self.held.values().map(|(lease, _)| *lease).collect();
        self.running.shutdown().await;
        for lease in left {
            if let Err(error) = self.options.release(lease, false).await {
                // It is found running at the next start, and put back then.
                tracing::error!(task = %lease.task, %error, "it cannot be put back");
            }
        }
    }
}
