//! What waits for the server: messages of the client, outcomes of checks.
//!
//! Invariant: messages that wait have at most [`MAX_BYTES`] together, or are one; who brings more waits. A
//! request that is cancelled while it waits is marked so.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::job::Checked;
use super::lost::Lost;
use super::message::Incoming;

/// Most bytes of messages that wait.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Most messages that wait.
const MAX_MESSAGES: usize = 4096;

/// Something for the server to do.
#[derive(Debug)]
pub(super) enum Event {
    /// A message; whether it was cancelled since.
    Message(Incoming, bool),
    /// A message of so many bytes was too large, and what is lost with it.
    TooLarge(u64, Lost),
    /// A document was checked.
    Checked(Checked),
    /// The input has ended, for this reason if it was not its end.
    Ended(Option<String>),
}

/// A queue between threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Mailbox {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<(Event, usize)>,
    bytes: usize,
    messages: usize,
}

impl Mailbox {
    /// Brings a message of so many bytes; waits while there is no room.
    pub(super) fn bring(&self, message: Incoming, bytes: usize) {
        let mut queue = self.locked();
        // What does not wait here may wait in the server.
        if cancelled(&message).is_some_and(|id| queue.cancel(&id)) {
            return;
        }
        while queue.messages > 0
            && (queue.bytes + bytes > MAX_BYTES || queue.messages >= MAX_MESSAGES)
        {
            let emptied = &self.shared.emptied;
            queue = emptied.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.bytes += bytes;
        queue.messages += 1;
        queue
            .events
            .push_back((Event::Message(message, false), bytes));
        self.shared.filled.notify_one();
    }

    /// Brings anything else.
    pub(super) fn post(&self, event: Event) {
        self.locked().events.push_back((event, 0));
        self.shared.filled.notify_one();
    }

    /// The next event; `None` if there is none for so long.
    pub(super) fn next(&self, patience: Duration) -> Option<Event> {
        let until = Instant::now() + patience;
        let mut queue = self.locked();
        loop {
            if let Some((event, bytes)) = queue.events.pop_front() {
                queue.bytes -= bytes;
                queue.messages -= usize::from(matches!(event, Event::Message(..)));
                self.shared.emptied.notify_one();
                return Some(event);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let filled = &self.shared.filled;
            let waited = filled.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn locked(&self) -> MutexGuard<'_, Queue> {
        let queue = self.shared.queue.lock();
        queue.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Marks a request; whether it was there.
    fn cancel(&mut self, wanted: &Value) -> bool {
        let mut found = false;
        for (event, _) in &mut self.events {
            if let Event::Message(Incoming::Request { id, .. }, cancelled) = event
                && id == wanted
            {
                *cancelled = true;
                found = true;
            }
        }
        found
    }
}

/// The id that a message cancels.
fn cancelled(message: &Incoming) -> Option<Value> {
    match message {
        Incoming::Notification { method, params } if method == "$/cancelRequest" => {
            Some(params.get("id").cloned().unwrap_or_default())
        }
        _ => None,
    }
}
