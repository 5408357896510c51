//! How long to wait before a session is loaded again that died at once.
//!
//! Invariant: waits double from [`FIRST`] to [`LONGEST`] and begin anew after a success. Reads no
//! clock: time is an argument.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Failures in a row, and the time before which nothing is tried.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// It failed at `now`; the time of the next attempt.
    pub(super) fn fail(&mut self, now: Instant) -> Instant {
        let factor = 1_u32 << self.failures.min(16);
        let until = now + FIRST.saturating_mul(factor).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(until);
        until
    }

    /// It worked.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether it has failed more than once in a row.
    pub(super) fn is_repeated(&self) -> bool {
        self.failures > 1
    }

    /// What is left to wait, if anything.
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
        assert_eq!(backoff.left(now + LONGEST), None);
        backoff.reset();
        backoff.fail(now);
        assert_eq!(backoff.left(now), Some(FIRST));
        assert!(!backoff.is_repeated());
    }
}
