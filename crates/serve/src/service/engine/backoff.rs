//! Exponential backoff before a session that crashed at once is loaded again.
//!
//! Invariant: pauses double from [`FIRST_PAUSE`] to [`MAX_PAUSE`] and reset after a success. Time is an
//! argument; this type reads no clock.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Number of consecutive failures and the earliest time of the next attempt.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// Records a failure at `now` and returns the time of the next attempt.
    pub(super) fn fail(&mut self, now: Instant) -> Instant {
        let factor = 1_u32 << self.failures.min(16);
        let until = now + FIRST_PAUSE.saturating_mul(factor).min(MAX_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(until);
        until
    }

    /// Records a success.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns whether there was more than one failure in a row.
    pub(super) fn is_repeated(&self) -> bool {
        self.failures > 1
    }

    /// Returns the remaining pause, if any.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.left(now), None);
        let mut waits = Vec::new();
        for _ in 0..40 {
            backoff.fail(now);
            waits.push(backoff.left(now).expect("it just failed").as_millis());
        }
        assert_eq!(waits[..8], [100, 200, 400, 800, 1600, 3200, 6400, 10_000]);
        assert_eq!(waits[39], 10_000);
        assert_eq!(backoff.left(now + MAX_PAUSE), None);
        backoff.reset();
        backoff.fail(now);
        assert_eq!(backoff.left(now), Some(FIRST_PAUSE));
        assert!(!backoff.is_repeated());
    }
}
