//! Services whose instances attached from other processes. A request goes to the instance with the most room.
//!
//! Accounts take turns while all instances are busy.
//!
//! Invariant: a request runs on one instance. If that instance leaves, the request fails and its caller decides whether
//! it runs again.

mod call;
mod fit;
mod message;
mod services;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::CallError;
use super::turns::ResourceTurns;
use crate::account::AccountId;
use crate::database::Timestamp;
pub(crate) use call::{AttachedCall, label};
pub use fit::FittedAway;
pub(crate) use message::{answer_payload, payload, request_of};
use pkgtool_gate::host::{InstanceCall, InstanceState, RemoteInstance};
use pkgtool_gate::instance::Asks;
pub use services::AttachedServices;

/// Time that requests wait for an instance after the last one left: a worker that restarts comes back by then.
const RETURN_TIME: Duration = Duration::from_secs(10);

/// A service with attached instances.
#[derive(Debug)]
pub struct Attached {
    since: Timestamp,
    /// Maximum size of an answer, in bytes.
    max_answer: usize,
    /// The caller that gets the next place.
    turns: Arc<ResourceTurns>,
    /// Wakes that caller when an instance takes more requests, attaches or leaves.
    freed: Arc<Notify>,
    instances: Mutex<AttachedInstances>,
    /// Number of requests that wait for a place.
    waiting: AtomicUsize,
    /// The search for the next instance begins here.
    next: AtomicUsize,
    /// Changes when the service becomes able to answer.
    resumed: watch::Sender<u64>,
}

#[derive(Debug)]
struct AttachedInstances {
    all: Vec<Arc<RemoteInstance>>,
    /// When the last instance left, or the service was created.
    alone_since: Instant,
}

impl Attached {
    /// Creates a service without instances.
    pub(super) fn new(max_answer: usize, resumed: watch::Sender<u64>) -> Self {
        Self {
            since: Timestamp::now(),
            max_answer,
            turns: ResourceTurns::new(1, usize::MAX),
            freed: Arc::default(),
            instances: Mutex::new(AttachedInstances {
                all: Vec::new(),
                alone_since: Instant::now(),
            }),
            waiting: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            resumed,
        }
    }

    /// Returns the time since when the service is known.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Adds an instance. Returns the notifier of the service.
    pub fn join(&self, instance: &Arc<RemoteInstance>) -> Arc<Notify> {
        self.instances().all.push(Arc::clone(instance));
        self.resume();
        Arc::clone(&self.freed)
    }

    /// Removes an instance.
    pub fn leave(&self, instance: &Arc<RemoteInstance>) {
        let mut instances = self.instances();
        instances.all.retain(|known| !Arc::ptr_eq(known, instance));
        if instances.all.is_empty() {
            instances.alone_since = Instant::now();
        }
    }

    /// Reports that an instance takes requests.
    pub fn resume(&self) {
        self.resumed.send_modify(|count| *count += 1);
        self.freed.notify_one();
    }

    /// Returns the instances.
    pub fn all(&self) -> Vec<Arc<RemoteInstance>> {
        self.instances().all.clone()
    }

    /// Returns the number of waiting and running requests.
    pub fn activity(&self) -> (usize, usize) {
        let instances = self.all();
        let running = instances.iter().map(|it| it.activity().in_flight).sum();
        (self.waiting.load(Relaxed), running)
    }

    /// Returns the reason why the service cannot answer, as far as known.
    pub(super) fn inactive_reason(&self) -> Option<String> {
        let instances = self.all();
        if instances.is_empty() {
            return Some(
                "no worker is attached; attach one with `pkgtool attach` or `pkgtool worker`"
                    .to_owned(),
            );
        }
        (!instances.iter().any(is_serving)).then(|| match instances.len() {
            1 => "its only worker takes no more requests".to_owned(),
            count => format!("its {count} workers take no more requests"),
        })
    }

    /// Returns whether an instance takes requests.
    pub fn can_answer(&self) -> bool {
        self.instances().all.iter().any(is_serving)
    }

    /// Returns whether the service can answer, or most likely can in a moment.
    pub(super) fn may_answer(&self) -> bool {
        let is_expected = self.instances().alone_since.elapsed() < RETURN_TIME;
        is_expected || self.can_answer()
    }

    /// Sends a request to the instance with the most room, once one has room. Instances in `tried` refused it.
    async fn place(
        &self,
        (caller, queue): (AccountId, usize),
        tried: &[u64],
        asks: impl Fn(&RemoteInstance) -> (Asks, HashMap<String, String>),
    ) -> Result<InstanceCall, CallError> {
        let waiting = WaitingRequest::count(&self.waiting);
        if waiting.others >= queue {
            return Err(CallError::QueueFull { limit: queue });
        }
        let _turn = self.turns.take(caller).await?;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(instance) = self.roomiest(tried) {
                let (asks, headers) = asks(&instance);
                if let Ok(call) = instance.call(asks, headers) {
                    return Ok(call);
                }
                // Another request was faster.
                continue;
            }
            let state = self.waits_for(tried);
            match state {
                Wait::Room => freed.await,
                Wait::Instance(until) => {
                    if tokio::time::timeout_at(until, freed).await.is_err() {
                        let reason = self.inactive_reason();
                        return Err(CallError::Away(reason.unwrap_or_default()));
                    }
                }
                Wait::Refused(limit) => return Err(CallError::QueueFull { limit }),
            }
        }
    }

    /// Returns the least busy instance that has room.
    fn roomiest(&self, tried: &[u64]) -> Option<Arc<RemoteInstance>> {
        let instances = self.instances();
        let all = &instances.all;
        // Equally busy instances take turns.
        let start = self.next.fetch_add(1, Relaxed) % all.len().max(1);
        let (before, after) = all.split_at(start);
        let mut best: Option<(f64, &Arc<RemoteInstance>)> = None;
        for instance in after.iter().chain(before) {
            if tried.contains(&instance.number) {
                continue;
            }
            if let Some(load) = instance.load()
                && best.is_none_or(|(least, _)| load < least)
            {
                best = Some((load, instance));
            }
        }
        best.map(|(_, instance)| Arc::clone(instance))
    }

    /// Returns what a request without a place waits for.
    fn waits_for(&self, tried: &[u64]) -> Wait {
        let instances = self.instances();
        let serving = instances.all.iter().filter_map(|instance| {
            let activity = instance.activity();
            (activity.state == InstanceState::Serving).then_some((instance.number, activity))
        });
        let serving: Vec<_> = serving.collect();
        if serving.is_empty() {
            return Wait::Instance(instances.alone_since + RETURN_TIME);
        }
        if serving.iter().all(|(number, _)| tried.contains(number)) {
            return Wait::Refused(serving.iter().map(|(_, it)| it.capacity).sum());
        }
        Wait::Room
    }

    fn instances(&self) -> MutexGuard<'_, AttachedInstances> {
        self.instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_serving(instance: &Arc<RemoteInstance>) -> bool {
    instance.state() == InstanceState::Serving
}

/// Counts a request as waiting until it is dropped.
struct WaitingRequest<'w> {
    all: &'w AtomicUsize,
    /// Number of requests that waited before.
    others: usize,
}

impl<'w> WaitingRequest<'w> {
    fn count(all: &'w AtomicUsize) -> Self {
        Self {
            others: all.fetch_add(1, Relaxed),
            all,
        }
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Relaxed);
    }
}

/// The event that a request without a place waits for.
enum Wait {
    /// Room at an instance.
    Room,
    /// An instance, until this time.
    Instance(Instant),
    /// Nothing: all instances refused it. They accept so many requests.
    Refused(usize),
}
