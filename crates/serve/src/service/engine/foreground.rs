//! Lets requests that give way to others wait while those are in progress.
//!
//! Invariant: a wait has a limit, so requests without end only delay those that give way.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time without other requests after which one that gives way begins. A client that sends one
/// request after another leaves shorter pauses.
const QUIET_TIME: Duration = Duration::from_millis(5);

/// Longest wait before one run of a model.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The requests in progress that do not give way.
#[derive(Debug, Default)]
pub(in crate::service) struct Foreground {
    state: Mutex<ForegroundState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ForegroundState {
    active: usize,
    /// The end of the last request.
    last: Option<Instant>,
}

/// A request in progress that does not give way.
#[derive(Debug)]
pub(in crate::service) struct ForegroundRequest(Arc<Foreground>);

impl Foreground {
    /// Adds a request.
    pub(in crate::service) fn begin(self: &Arc<Self>) -> ForegroundRequest {
        self.lock().active += 1;
        ForegroundRequest(Arc::clone(self))
    }

    /// Blocks until no other request is in progress.
    pub(super) fn wait(&self) {
        let latest = Instant::now() + LONGEST_WAIT;
        let mut state = self.lock();
        while let Some(pause) = state.pause(latest) {
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until no other request is in progress.
    pub(super) async fn quiet(&self) {
        let latest = Instant::now() + LONGEST_WAIT;
        loop {
            let pause = self.lock().pause(latest);
            let Some(pause) = pause else { return };
            tokio::time::sleep(pause.min(QUIET_TIME)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ForegroundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ForegroundState {
    /// Returns how long to wait before the next look; `None` to proceed.
    fn pause(&self, latest: Instant) -> Option<Duration> {
        let now = Instant::now();
        let quiet = if self.active > 0 {
            latest
        } else {
            self.last? + QUIET_TIME
        };
        let until = quiet.min(latest);
        (now < until).then(|| until - now)
    }
}

impl Drop for ForegroundRequest {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.active -= 1;
        state.last = Some(Instant::now());
        drop(state);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_way_waits_for_the_end_of_others_but_not_forever() {
        let foreground = Arc::new(Foreground::default());
        let start = Instant::now();
        foreground.wait();
        assert!(start.elapsed() < LONGEST_WAIT / 2, "there is no other");
        let (first, second) = (foreground.begin(), foreground.begin());
        drop(first);
        let waiting = std::thread::spawn({
            let foreground = Arc::clone(&foreground);
            move || {
                foreground.wait();
                Instant::now()
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        let end = Instant::now();
        drop(second);
        let went_on = waiting.join().expect("no panic");
        assert!(went_on >= end + QUIET_TIME);
        let _endless = foreground.begin();
        let start = Instant::now();
        foreground.wait();
        assert!(start.elapsed() >= LONGEST_WAIT);
    }
}
