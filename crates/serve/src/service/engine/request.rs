//! A request inside an endpoint, from submission to its single answer.
//!
//! Invariant: a request is answered at most once. Only a cancelled request stays unanswered.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::queue::QueueItem;
use crate::account::AccountId;
use crate::service::CallError;
use pkgtool_engine::RunStart;
use pkgtool_engine::tensor::Tensor;

/// Result of a request.
pub(super) type RequestResult = Result<Vec<Tensor>, CallError>;

/// A waiting or running request.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    /// Its number in the endpoint.
    pub(super) id: u64,
    /// The caller's account.
    pub(super) caller: AccountId,
    /// The inputs; `None` only asks for a loaded session.
    pub(super) inputs: Option<Vec<Tensor>>,
    /// Time of arrival, or of being put back.
    pub(super) since: Instant,
    /// True if it must run alone, because a batch with it has failed.
    pub(super) alone: bool,
    /// Start state of its run. Requests must not see the state of other callers.
    pub(super) begins: RunStart,
    /// Whether its device was lost during an earlier run.
    pub(super) was_lost: bool,
    /// Set for a step of a conversation, which keeps the session that answers it.
    pub(super) terms: Option<ReservationTerms>,
    /// Receiver of the answer.
    pub(super) answer: oneshot::Sender<RequestResult>,
}

/// The first step of a conversation.
#[derive(Debug)]
pub(super) struct FirstStep {
    pub(super) terms: ReservationTerms,
    /// Start state of its run, without anything from other conversations.
    pub(super) begins: RunStart,
}

/// Terms on which a conversation reserves a session.
#[derive(Debug, Clone)]
pub(super) struct ReservationTerms {
    /// Maximum time between two steps.
    pub(super) idle: Duration,
    /// Reason for releasing the session, if the conversation did not cause it.
    pub(super) ended: Arc<OnceLock<CallError>>,
}

impl QueuedRequest {
    /// Sends the answer, which a caller that left does not receive.
    pub(super) fn finish(self, outcome: RequestResult) {
        let _ = self.answer.send(outcome);
    }
}

impl QueueItem for QueuedRequest {
    fn id(&self) -> u64 {
        self.id
    }

    fn caller(&self) -> AccountId {
        self.caller
    }
}
