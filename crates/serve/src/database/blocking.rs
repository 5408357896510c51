//! Work that may wait, on a thread of the async runtime.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs work that may wait for another process. Other requests are not delayed.
pub(super) fn may_block<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Runs work that waits for another runtime.
pub(super) fn off_runtime<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        // A runtime of one thread must not block: another thread does the work.
        Ok(RuntimeFlavor::CurrentThread) => {
            std::thread::scope(|scope| match scope.spawn(work).join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        }
        _ => may_block(work),
    }
}
