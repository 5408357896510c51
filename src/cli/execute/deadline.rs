//! The time limit on what a command does itself: making inputs, comparing outputs.
//!
//! Invariant: work that takes longer ends the command with the limit's name; nothing is half written
//! then, because nothing is written in it. What engines do is limited in their own processes, which
//! end with this one.

use std::process;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::cli::exit::Exit;
use crate::cli::output;
use crate::tensor::limit::Limit;

/// Does `work`, and ends the command if it takes longer than `limit`. `doing` is what the error calls it.
pub(super) fn within<T>(limit: Option<Duration>, doing: &str, work: impl FnOnce() -> T) -> T {
    let Some(limit) = limit else { return work() };
    let (done, watched) = channel::<()>();
    let doing = doing.to_owned();
    // Work that computes cannot be interrupted, and what it holds is of no use any more.
    let watch = thread::Builder::new()
        .name("time limit".to_owned())
        .spawn(move || {
            if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                let limit = Limit::Time(limit);
                output::error(&format!("{doing} reached {limit}; {}", limit.help()));
                process::exit(Exit::Failure.code().into());
            }
        });
    let result = work();
    drop(done);
    if let Ok(watch) = watch {
        // It ends by itself; a panic of it would be told when it happens.
        let _ = watch.join();
    }
    result
}
