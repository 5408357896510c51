//! The queue of the server's main loop: messages from the client and outcomes of checks.
//!
//! Invariant: the queued messages have at most [`MAX_QUEUED_BYTES`] together, or there is only one. The
//! thread that reads messages blocks while the queue is full. If a queued request is cancelled, it
//! is marked.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::job::CheckOutcome;
use super::lost::UnknownTexts;
use super::message::Incoming;

/// Maximum total size of queued messages, in bytes.
const MAX_QUEUED_BYTES: usize = 32 * 1024 * 1024;
/// Maximum number of queued messages.
const MAX_QUEUED_MESSAGES: usize = 4096;

/// An event for the server's main loop.
#[derive(Debug)]
pub(super) enum ServerEvent {
    /// A message, and whether it has been cancelled.
    Message(Incoming, bool),
    /// A message of this size in bytes was too large, which affects these documents.
    TooLarge(u64, UnknownTexts),
    /// A document was checked.
    Checked(CheckOutcome),
    /// The input has ended, with an error if there was one.
    Ended(Option<String>),
}

/// A queue between threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Mailbox {
    shared: Arc<SharedMailbox>,
}

#[derive(Debug, Default)]
struct SharedMailbox {
    queue: Mutex<EventQueue>,
    filled: Condvar,
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct EventQueue {
    events: VecDeque<(ServerEvent, usize)>,
    bytes: usize,
    messages: usize,
}

impl Mailbox {
    /// Queues a message of this size in bytes. Blocks while the queue is full.
    pub(super) fn queue_message(&self, message: Incoming, bytes: usize) {
        let mut queue = self.locked();
        // A request that is not queued here may be pending in the server.
        if cancelled_request_id(&message).is_some_and(|id| queue.cancel(&id)) {
            return;
        }
        while queue.messages > 0
            && (queue.bytes + bytes > MAX_QUEUED_BYTES || queue.messages >= MAX_QUEUED_MESSAGES)
        {
            let emptied = &self.shared.emptied;
            queue = emptied.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.bytes += bytes;
        queue.messages += 1;
        queue
            .events
            .push_back((ServerEvent::Message(message, false), bytes));
        self.shared.filled.notify_one();
    }

    /// Queues any other event.
    pub(super) fn queue_event(&self, event: ServerEvent) {
        self.locked().events.push_back((event, 0));
        self.shared.filled.notify_one();
    }

    /// Returns the next event, or `None` if none arrives in time.
    pub(super) fn next(&self, patience: Duration) -> Option<ServerEvent> {
        let until = Instant::now() + patience;
        let mut queue = self.locked();
        loop {
            if let Some((event, bytes)) = queue.events.pop_front() {
                queue.bytes -= bytes;
                queue.messages -= usize::from(matches!(event, ServerEvent::Message(..)));
                self.shared.emptied.notify_one();
                return Some(event);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let filled = &self.shared.filled;
            let waited = filled.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn locked(&self) -> MutexGuard<'_, EventQueue> {
        let queue = self.shared.queue.lock();
        queue.unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventQueue {
    /// Marks a request as cancelled. Returns whether it was in the queue.
    fn cancel(&mut self, wanted: &Value) -> bool {
        let mut found = false;
        for (event, _) in &mut self.events {
            if let ServerEvent::Message(Incoming::Request { id, .. }, cancelled) = event
                && id == wanted
            {
                *cancelled = true;
                found = true;
            }
        }
        found
    }
}

/// Returns the id of the request that a message cancels.
fn cancelled_request_id(message: &Incoming) -> Option<Value> {
    match message {
        Incoming::Notification { method, params } if method == "$/cancelRequest" => {
            Some(params.get("id").cloned().unwrap_or_default())
        }
        _ => None,
    }
}
