//! Runs asynchronous commands.

use tokio::runtime::{Builder, Runtime};

use super::exit::{Exit, Failure};

/// Returns a runtime with as many threads as the machine has cores.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    built(&mut Builder::new_multi_thread())
}

/// Runs a command to its end, on the calling thread.
pub(super) fn block_on(
    command: impl Future<Output = Result<Exit, Failure>>,
) -> Result<Exit, Failure> {
    built(&mut Builder::new_current_thread())?.block_on(command)
}

fn built(builder: &mut Builder) -> Result<Runtime, Failure> {
    let runtime = builder.enable_all().build();
    runtime.map_err(|error| Failure::Other(format!("cannot start the async runtime: {error}")))
}
