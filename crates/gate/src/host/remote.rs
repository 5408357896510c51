//! An attached instance as its gate sees it, and the calls that wait for its answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::Arrival;
use crate::instance::Asks;
use crate::protocol::{
    ApiErrorProto, AssignmentProto, CancelProto, GateToServiceProto, PartialPredictResponseProto,
    extension, gate_to_service_proto as to_service, service_to_gate_proto::Body,
};

/// Maximum number of bytes of the parts of one answer that wait to be read.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// Maximum number of further requests that an instance may accept at once.
const MAX_CREDITS: usize = 1 << 16;
/// Time after which an instance that cannot cancel counts as done with a request that nobody waits for.
const ABANDONED_TIME: Duration = Duration::from_mins(5);

/// Numbers requests. An answer of an earlier connection never has the number of a request of a later one.
static NEXT_REQUEST: AtomicI64 = AtomicI64::new(1);

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceState {
    /// It gets requests.
    Serving,
    /// It gets no more requests, and finishes those in flight.
    Draining,
    /// Its connection has ended.
    Gone,
}

/// The state and the counts of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceActivity {
    /// Its state.
    pub state: InstanceState,
    /// Requests in flight.
    pub in_flight: usize,
    /// Maximum number of requests in flight.
    pub capacity: usize,
    /// Requests that it answered.
    pub answered: u64,
    /// Answers to requests that it does not have.
    pub strays: u64,
    /// Time since its last message.
    pub silent: Duration,
}

/// An attached instance.
#[derive(Debug)]
pub struct RemoteInstance {
    /// Its number, unique in this process.
    pub number: u64,
    /// Its announcement, without the token.
    pub arrival: Arrival,
    /// When it attached.
    pub since: Instant,
    /// The reason why its connection ends at once, once there is one.
    cut: watch::Sender<Option<ApiErrorProto>>,
    knows_cancel: bool,
    knows_training: bool,
    /// Without credits, the number of requests that it gets at once.
    in_flight: Option<usize>,
    calls: Mutex<CallTable>,
    answered: AtomicU64,
    strays: AtomicU64,
    /// Milliseconds from `since` to its last message.
    heard: AtomicU64,
}

/// The messages to an instance. The places of the queue are small.
pub(super) type ToService = mpsc::Sender<Box<GateToServiceProto>>;

/// The calls of an instance.
#[derive(Debug)]
struct CallTable {
    state: InstanceState,
    /// The connection, until it ends.
    to_service: Option<ToService>,
    /// Requests that it accepts beside those in flight, if it counts them.
    credits: usize,
    calls: HashMap<i64, PendingCall>,
}

/// A request that was not answered yet.
#[derive(Debug)]
enum PendingCall {
    Awaited(PartSender),
    /// The caller left at this time, and the instance still works on the request.
    Abandoned(Instant),
}

/// Sends events to a caller.
#[derive(Debug, Clone)]
struct PartSender {
    events: mpsc::UnboundedSender<CallEvent>,
    /// Bytes of the parts that the caller has not read yet.
    waiting: Arc<AtomicUsize>,
}

/// News of a call.
#[derive(Debug)]
pub enum CallEvent {
    /// A part of the answer, but not the last.
    Part(PartialPredictResponseProto),
    /// The progress of training, in percent.
    Progress(i32),
    /// The last answer.
    Answer(Box<Body>),
    /// The caller read the parts too slowly.
    TooSlow,
}

/// The instance left before it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the instance left before it answered")]
pub struct CallLost;

/// The instance takes no more requests now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPlace;

/// A request in flight. Dropping it cancels the request.
#[derive(Debug)]
pub struct InstanceCall {
    instance: Arc<RemoteInstance>,
    id: i64,
    events: mpsc::UnboundedReceiver<CallEvent>,
    waiting: Arc<AtomicUsize>,
}

impl RemoteInstance {
    pub(super) fn new(arrival: Arrival, to_service: ToService, in_flight: usize) -> Self {
        static NEXT_INSTANCE: AtomicU64 = AtomicU64::new(1);
        let knows = |name: &str| arrival.start.extensions.iter().any(|known| known == name);
        Self {
            number: NEXT_INSTANCE.fetch_add(1, Relaxed),
            since: Instant::now(),
            cut: watch::Sender::new(None),
            knows_cancel: knows(extension::CANCEL),
            knows_training: knows(extension::TRAINING),
            in_flight: (!knows(extension::CREDITS)).then_some(in_flight),
            calls: Mutex::new(CallTable {
                state: InstanceState::Serving,
                to_service: Some(to_service),
                credits: 0,
                calls: HashMap::new(),
            }),
            answered: AtomicU64::new(0),
            strays: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            arrival,
        }
    }

    /// Returns the additions that both ends know.
    pub(super) fn extensions(&self) -> Vec<String> {
        let known = [
            (self.knows_cancel, extension::CANCEL),
            (self.in_flight.is_none(), extension::CREDITS),
            (self.arrival.start.worker.is_some(), extension::PACKAGES),
            (self.knows_training, extension::TRAINING),
        ];
        let both = known.into_iter().filter(|(knows, _)| *knows);
        both.map(|(_, name)| name.to_owned()).collect()
    }

    /// Returns the name of its machine, if it says so.
    pub fn hostname(&self) -> Option<&str> {
        let name = self.arrival.start.hostname.as_deref();
        name.filter(|name| !name.is_empty())
    }

    /// Returns whether the instance knows none of the additions, as the platform's SDKs.
    pub fn is_of_platform(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns whether the instance can be trained, or trains others.
    pub fn is_fittable(&self) -> bool {
        let descriptor = self.arrival.start.service_descriptor.as_ref();
        descriptor.is_some_and(|descriptor| descriptor.fittable)
    }

    /// Returns whether the instance attaches as the service that it trained.
    pub fn attaches_trained(&self) -> bool {
        self.knows_training
    }

    /// Sends a request.
    pub fn call(
        self: &Arc<Self>,
        asks: Asks,
        headers: HashMap<String, String>,
    ) -> Result<InstanceCall, NoPlace> {
        let (events, received) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let id = NEXT_REQUEST.fetch_add(1, Relaxed);
        let message = GateToServiceProto {
            request_id: id,
            body: Some(asks.into()),
            headers,
        };
        let mut table = self.table();
        if !table.has_place(self.in_flight) || !table.send(message) {
            return Err(NoPlace);
        }
        table.credits = table.credits.saturating_sub(1);
        let sender = PartSender {
            events,
            waiting: Arc::clone(&waiting),
        };
        table.calls.insert(id, PendingCall::Awaited(sender));
        drop(table);
        Ok(InstanceCall {
            instance: Arc::clone(self),
            id,
            events: received,
            waiting,
        })
    }

    /// Returns how full the instance is, from 0 to 1; `None` if it takes no more requests now.
    pub fn load(&self) -> Option<f64> {
        let table = self.table();
        let (busy, most) = (table.calls.len(), table.capacity(self.in_flight));
        let share = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        table
            .has_place(self.in_flight)
            .then(|| share(busy) / share(most.max(1)))
    }

    /// Returns whether it gets requests.
    pub fn state(&self) -> InstanceState {
        self.table().state
    }

    /// Returns its state and its counts.
    pub fn activity(&self) -> InstanceActivity {
        let table = self.table();
        let heard = Duration::from_millis(self.heard.load(Relaxed));
        InstanceActivity {
            state: table.state,
            in_flight: table.calls.len(),
            capacity: table.capacity(self.in_flight),
            answered: self.answered.load(Relaxed),
            strays: self.strays.load(Relaxed),
            silent: self.since.elapsed().saturating_sub(heard),
        }
    }

    /// Sends no more requests, or sends requests again.
    pub fn drain(&self, drain: bool) {
        let mut table = self.table();
        if table.state != InstanceState::Gone {
            table.state = if drain {
                InstanceState::Draining
            } else {
                InstanceState::Serving
            };
        }
    }

    /// Ends the connection at once. Calls in flight are lost.
    pub fn cut(&self, reason: ApiErrorProto) {
        self.cut.send_replace(Some(reason));
    }

    pub(super) fn cuts(&self) -> watch::Receiver<Option<ApiErrorProto>> {
        self.cut.subscribe()
    }

    /// Sends a message that is no request. Returns `false` if the instance does not read.
    pub(super) fn tell(&self, body: to_service::Body) -> bool {
        let message = GateToServiceProto {
            request_id: 0,
            body: Some(body),
            headers: HashMap::new(),
        };
        self.table().send(message)
    }

    /// Assigns packages to a machine without packages. Returns `false` if it does not read.
    pub fn assign(&self, assignment: AssignmentProto) -> bool {
        self.tell(to_service::Body::Assignment(assignment))
    }

    pub(super) fn heard(&self) {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(passed, Relaxed);
    }

    /// Accepts so many requests more.
    pub(super) fn credit(&self, requests: u32) {
        let mut table = self.table();
        let requests = usize::try_from(requests).unwrap_or(MAX_CREDITS);
        table.credits = table.credits.saturating_add(requests).min(MAX_CREDITS);
    }

    /// Passes the last answer to its caller.
    pub(super) fn answer(&self, id: i64, body: Body) {
        let call = self.table().calls.remove(&id);
        match call {
            Some(PendingCall::Awaited(sender)) => {
                self.answered.fetch_add(1, Relaxed);
                // The caller may be leaving.
                let _ = sender.events.send(CallEvent::Answer(Box::new(body)));
            }
            Some(PendingCall::Abandoned(_)) => {}
            None => self.stray(id),
        }
    }

    /// Passes a part of an answer to its caller.
    pub(super) fn part(&self, id: i64, event: CallEvent) {
        let sender = match self.table().calls.get(&id) {
            Some(PendingCall::Awaited(sender)) => sender.clone(),
            Some(PendingCall::Abandoned(_)) => return,
            None => return self.stray(id),
        };
        let size = event.size();
        let before = sender.waiting.fetch_add(size, Relaxed);
        if before > 0 && before + size > MAX_WAITING_BYTES {
            self.leave(id);
            let _ = sender.events.send(CallEvent::TooSlow);
            return;
        }
        let _ = sender.events.send(event);
    }

    fn stray(&self, id: i64) {
        self.strays.fetch_add(1, Relaxed);
        tracing::debug!(
            instance = self.number,
            request = id,
            "an answer to no request"
        );
    }

    /// Gives a request up.
    fn leave(&self, id: i64) {
        let mut table = self.table();
        if let Some(call) = table.calls.get_mut(&id) {
            if self.knows_cancel {
                table.calls.remove(&id);
                let cancel = GateToServiceProto {
                    request_id: id,
                    body: Some(to_service::Body::Cancel(CancelProto {})),
                    headers: HashMap::new(),
                };
                // If the instance does not read, its connection ends soon.
                table.send(cancel);
            } else {
                *call = PendingCall::Abandoned(Instant::now());
            }
        }
    }

    /// Forgets requests that nobody waits for and that were never answered.
    pub(super) fn forget_abandoned(&self) {
        self.table().calls.retain(|_, call| match call {
            PendingCall::Awaited(_) => true,
            PendingCall::Abandoned(since) => since.elapsed() < ABANDONED_TIME,
        });
    }

    pub(super) fn is_idle(&self) -> bool {
        self.table().calls.is_empty()
    }

    /// Ends all calls: the instance is gone.
    pub(super) fn end(&self) {
        let mut table = self.table();
        table.state = InstanceState::Gone;
        table.to_service = None;
        table.calls.clear();
    }

    fn table(&self) -> MutexGuard<'_, CallTable> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallTable {
    /// Returns `false` if the queue is full, because the instance does not read, or the connection has ended.
    fn send(&self, message: GateToServiceProto) -> bool {
        let to_service = self.to_service.as_ref();
        to_service.is_some_and(|to_service| to_service.try_send(Box::new(message)).is_ok())
    }

    fn has_place(&self, in_flight: Option<usize>) -> bool {
        let is_free = match in_flight {
            Some(most) => self.calls.len() < most,
            None => self.credits > 0,
        };
        is_free && self.state == InstanceState::Serving
    }

    fn capacity(&self, in_flight: Option<usize>) -> usize {
        in_flight.unwrap_or(self.calls.len() + self.credits)
    }
}

impl CallEvent {
    /// Returns the size of a part, in bytes.
    fn size(&self) -> usize {
        match self {
            Self::Part(part) => prost::Message::encoded_len(part),
            Self::Progress(_) | Self::Answer(_) | Self::TooSlow => 0,
        }
    }
}

impl InstanceCall {
    /// Returns the next event. The last one is [`CallEvent::Answer`] or [`CallEvent::TooSlow`].
    pub async fn next(&mut self) -> Result<CallEvent, CallLost> {
        let event = self.events.recv().await.ok_or(CallLost)?;
        self.waiting.fetch_sub(event.size(), Relaxed);
        Ok(event)
    }

    /// Returns the instance that has the request.
    pub fn instance(&self) -> &Arc<RemoteInstance> {
        &self.instance
    }
}

impl Drop for InstanceCall {
    fn drop(&mut self) {
        self.instance.leave(self.id);
    }
}

impl From<Asks> for to_service::Body {
    fn from(asks: Asks) -> Self {
        match asks {
            Asks::Predict(asked) => Self::Predict(asked),
            Asks::PartialPredict(asked) => Self::PartialPredict(asked),
            Asks::Batch(asked) => Self::Batch(asked),
            Asks::Fit(asked) => Self::Fit(*asked),
            Asks::Ext(asked) => Self::Ext(asked),
        }
    }
}
