//! Work that may wait, on a thread of the async runtime.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs work that may wait for another process. Other requests are not delayed.
pub(super) fn may_block<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
