//! The time limit for work of the command itself: generating inputs, comparing outputs.
//!
//! Invariant: work that exceeds the limit ends the command with an error that names the limit. No
//! file is half written then, since such work writes no files. The work of engines is limited in
//! their worker processes, which end with this one.

use std::process;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::cli::exit::Exit;
use crate::cli::output;
use pkgtool_engine::tensor::limit::RunLimit;

/// Runs `work`, and ends the command if it takes longer than `limit`. `doing` describes the work in
/// the error.
pub(super) fn within<T>(limit: Option<Duration>, doing: &str, work: impl FnOnce() -> T) -> T {
    let Some(limit) = limit else { return work() };
    let (done, watched) = channel::<()>();
    let doing = doing.to_owned();
    // A computation cannot be interrupted, so the process ends. Its results are not needed any
    // more.
    let watch = thread::Builder::new()
        .name("time limit".to_owned())
        .spawn(move || {
            if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                let limit = RunLimit::Time(limit);
                output::error(&format!("{doing} reached {limit}; {}", limit.help()));
                process::exit(Exit::Failure.code().into());
            }
        });
    let result = work();
    drop(done);
    if let Ok(watch) = watch {
        // The thread ends by itself. If it panics, the panic is reported when it happens.
        let _ = watch.join();
    }
    result
}
