//! The threads of a run.

use tract_linalg::multithread::{Executor, current_tract_executor};

use crate::kernels::Split;

/// Calls `work` on a thread of the run's pool, with what tells it how many there are.
pub(super) fn on_pool<R: Send>(work: impl FnOnce(Split) -> R + Send) -> R {
    match current_tract_executor() {
        Executor::MultiThread(pool) => pool.install(|| work(Split::current())),
        _ => work(Split::ONE),
    }
}
