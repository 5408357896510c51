//! Runs asynchronous commands on the calling thread.

use super::exit::{Exit, Failure};

/// Runs a command to its end.
pub(super) fn block_on(
    command: impl Future<Output = Result<Exit, Failure>>,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(format!("cannot start the async runtime: {error}")))?;
    runtime.block_on(command)
}
