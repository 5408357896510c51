//! Offloads the decoding of large request bodies from the threads that serve connections.
//!
//! Invariant: a connection's thread decodes at most [`MAX_INLINE_BYTES`] bytes per request. Accounts take
//! turns for larger bodies. Work for clients that disconnect is cancelled.

use std::sync::Arc;

use bytes::Bytes;

use super::turns::ResourceTurns;
use super::{CallError, Request};
use crate::account::AccountId;
use pkgtool_engine::runtime::parsers::{MOST_WAITING, ParserClient, ParserError};

/// Maximum size of a body that is decoded on the connection's thread, in bytes. The slowest JSON of
/// this size takes less than a millisecond.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// Maximum number of bodies waiting to be decoded.
const MAX_WAITING_BODIES: usize = 256;

/// Pseudo account of requests without an account; real accounts never have this number.
pub(super) const NO_ACCOUNT: AccountId = AccountId(i64::MIN);

/// Returns the account that a request belongs to.
pub(super) fn caller(request: &Request) -> AccountId {
    let memory = request.memory.as_ref();
    memory.map_or(NO_ACCOUNT, |holding| holding.account())
}

/// Returns whether a body is small enough for the connection's thread.
pub(super) fn is_small(body: &[u8]) -> bool {
    body.len() <= MAX_INLINE_BYTES
}

/// Decodes large bodies on half of the processors, with accounts taking turns.
#[derive(Debug)]
pub(super) struct Decoding(Arc<ResourceTurns>);

impl Default for Decoding {
    fn default() -> Self {
        let processors = std::thread::available_parallelism();
        let processors = processors.map_or(1, std::num::NonZeroUsize::get);
        Self(ResourceTurns::new(processors / 2, MAX_WAITING_BODIES))
    }
}

impl Decoding {
    /// Runs work on a request's body: a small body on the current thread, a large one on a blocking
    /// thread.
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

/// Cancels a client's parser jobs when dropped.
#[derive(Debug)]
pub(super) struct CancelOnDrop(pub(super) ParserClient);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs work that uses parser processes on a blocking thread. Dropping the future cancels their
/// jobs.
pub(super) async fn with_parsers<T: Send + 'static>(
    client: ParserClient,
    work: impl FnOnce(&ParserClient) -> T + Send + 'static,
) -> Result<T, CallError> {
    let leaving = CancelOnDrop(client.clone());
    let done = tokio::task::spawn_blocking(move || work(&client)).await;
    drop(leaving);
    done.map_err(|error| CallError::Failed(error.to_string()))
}

/// Converts an error of a parser process to a call error; `what` describes the failed work.
pub(super) fn call_error(what: &str, error: &ParserError) -> CallError {
    match error {
        ParserError::Busy { .. } => CallError::QueueFull {
            limit: MOST_WAITING,
        },
        ParserError::Cancelled => CallError::Stopped,
        other => CallError::Failed(format!("{what}: {other}")),
    }
}
