//! Work on what a caller sent, away from the threads that serve connections.
//!
//! Invariant: what a connection's thread does for one request is bounded by [`IN_PLACE`]; accounts take
//! turns for the rest. Whoever goes away leaves no work behind.

use std::sync::Arc;

use bytes::Bytes;

use super::turns::Turns;
use super::{CallError, Request};
use crate::account::AccountId;
use crate::runtime::parsers::{Client, MOST_WAITING, ParserError};

/// Bodies up to this size are decoded where they arrive, in bytes: the slowest JSON of this length takes
/// less than a millisecond.
const IN_PLACE: usize = 64 << 10;

/// Most bodies that wait to be decoded.
const QUEUE: usize = 256;

/// On whose behalf requests without an account run: no account has this number.
pub(super) const NOBODY: AccountId = AccountId(i64::MIN);

/// Whose request it is.
pub(super) fn caller(request: &Request) -> AccountId {
    let memory = request.memory.as_ref();
    memory.map_or(NOBODY, |holding| holding.account())
}

/// Whether a body is decoded where it arrives.
pub(super) fn is_small(body: &[u8]) -> bool {
    body.len() <= IN_PLACE
}

/// Decoding large bodies: accounts in turn, on half of the processors.
#[derive(Debug)]
pub(super) struct Decoding(Arc<Turns>);

impl Default for Decoding {
    fn default() -> Self {
        let processors = std::thread::available_parallelism();
        let processors = processors.map_or(1, std::num::NonZeroUsize::get);
        Self(Turns::new(processors / 2, QUEUE))
    }
}

impl Decoding {
    /// Does work on a request's body: here if it is small, else on a thread that may be busy.
    pub(super) async fn of<T: Send + 'static>(
        &self,
        request: &Request,
        work: impl FnOnce(&Bytes) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        if is_small(&request.body) {
            return Ok(work(&request.body));
        }
        let turn = self.0.take(caller(request)).await?;
        let body = request.body.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&body)
        });
        done.await
            .map_err(|error| CallError::Failed(error.to_string()))
    }
}

/// Cancels a client's jobs when it is dropped.
#[derive(Debug)]
pub(super) struct Leaving(pub(super) Client);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Has processes that read bytes of others work for a client. Dropping the future cancels the work.
pub(super) async fn parsed<T: Send + 'static>(
    client: Client,
    work: impl FnOnce(&Client) -> T + Send + 'static,
) -> Result<T, CallError> {
    let leaving = Leaving(client.clone());
    let done = tokio::task::spawn_blocking(move || work(&client)).await;
    drop(leaving);
    done.map_err(|error| CallError::Failed(error.to_string()))
}

/// An error of such processes, as a service's; `what` was to be done.
pub(super) fn call_error(what: &str, error: &ParserError) -> CallError {
    match error {
        ParserError::Busy { .. } => CallError::QueueFull {
            limit: MOST_WAITING,
        },
        ParserError::Cancelled => CallError::Stopped,
        other => CallError::Failed(format!("{what}: {other}")),
    }
}
