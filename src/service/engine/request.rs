//! A request as the endpoint sees it, from the call to its one answer.
//!
//! Invariant: a request is answered at most once, and not at all only if nobody waits for it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::queue::Item;
use crate::account::AccountId;
use crate::engine::Begins;
use crate::service::CallError;
use crate::tensor::Tensor;

/// What a request is answered with.
pub(super) type Outcome = Result<Vec<Tensor>, CallError>;

/// A request that waits or runs.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Its number in the endpoint.
    pub(super) id: u64,
    /// On whose behalf.
    pub(super) caller: AccountId,
    /// The inputs; `None` asks for a session only.
    pub(super) inputs: Option<Vec<Tensor>>,
    /// When it came, or was put back.
    pub(super) since: Instant,
    /// Whether it must not share a run: one that it shared has failed.
    pub(super) alone: bool,
    /// What its run begins with: requests of different callers must not see each other.
    pub(super) begins: Begins,
    /// Whether it is a step of a conversation, which keeps the session that answers it.
    pub(super) terms: Option<Terms>,
    /// Where the answer goes.
    pub(super) answer: oneshot::Sender<Outcome>,
}

/// The first step of a conversation.
#[derive(Debug)]
pub(super) struct First {
    pub(super) terms: Terms,
    /// What its run begins with: nothing that another one has left.
    pub(super) begins: Begins,
}

/// On which terms a conversation keeps a session.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// Longest time between two steps.
    pub(super) idle: Duration,
    /// Why the session was given back, if the conversation had no part in it.
    pub(super) ended: Arc<OnceLock<CallError>>,
}

impl Waiting {
    /// Answers it. Somebody who went away needs no answer.
    pub(super) fn finish(self, outcome: Outcome) {
        let _ = self.answer.send(outcome);
    }
}

impl Item for Waiting {
    fn id(&self) -> u64 {
        self.id
    }

    fn caller(&self) -> AccountId {
        self.caller
    }
}
