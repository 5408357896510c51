//! Circuit breaker of an upstream address: decides whether a failing address gets requests.
//!
//! Invariant: an open breaker admits one trial call at a time, and none before its pause is over.
//! Pauses double from [`FIRST_PAUSE`] to [`MAX_PAUSE`] and reset after a success. Time is an argument; the
//! breaker reads no clock.

use std::time::{Duration, Instant};

/// Consecutive failures that open the breaker.
const FAILURES_TO_OPEN: u32 = 3;

/// First and longest pause of a failing address.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Failure state of an address.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Failures since the last success.
    failures: u32,
    /// Number of openings since the last success.
    openings: u32,
    /// Earliest time of the next trial, while it is open.
    until: Option<Instant>,
    /// True if a trial is in flight.
    is_trying: bool,
}

/// Decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallAdmission {
    /// Admitted.
    Call,
    /// Admitted as the single trial.
    Trial,
    /// Rejected until this time has passed.
    Wait(Duration),
}

impl Breaker {
    /// Requests a call. A trial stays in flight until it succeeds, fails or is abandoned.
    pub(super) fn admit(&mut self, now: Instant) -> CallAdmission {
        let admission = self.admission(now);
        self.is_trying |= admission == CallAdmission::Trial;
        admission
    }

    /// Returns the decision without starting a call.
    pub(super) fn admission(&self, now: Instant) -> CallAdmission {
        let Some(until) = self.until else {
            return CallAdmission::Call;
        };
        if self.is_trying {
            return CallAdmission::Wait(FIRST_PAUSE);
        }
        match until.saturating_duration_since(now) {
            Duration::ZERO => CallAdmission::Trial,
            left => CallAdmission::Wait(left),
        }
    }

    /// Returns whether calls are being rejected.
    pub(super) fn is_open(&self) -> bool {
        self.until.is_some()
    }

    /// Records a successful call. Returns whether calls were being rejected.
    pub(super) fn succeed(&mut self) -> bool {
        std::mem::take(self).is_open()
    }

    /// Records a failed call. Returns the pause that starts now, if any.
    pub(super) fn fail(&mut self, now: Instant, was_trial: bool) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        // Calls that started before the breaker opened do not count again.
        let opens = was_trial || (self.until.is_none() && self.failures >= FAILURES_TO_OPEN);
        if !opens {
            return None;
        }
        let pause = FIRST_PAUSE
            .saturating_mul(1 << self.openings.min(16))
            .min(MAX_PAUSE);
        self.openings = self.openings.saturating_add(1);
        self.until = Some(now + pause);
        self.is_trying = false;
        Some(pause)
    }

    /// Ends a trial without a result.
    pub(super) fn give_up(&mut self) {
        self.is_trying = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.fail(now, false), None);
        assert_eq!(breaker.fail(now, false), None);
        assert_eq!(breaker.fail(now, false), Some(FIRST_PAUSE));
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..10 {
            breaker.fail(now, false);
            breaker.fail(now, false);
            assert!(!breaker.succeed());
            assert_eq!(breaker.admit(now), CallAdmission::Call);
        }
        let breaker = opened(now);
        assert_eq!(breaker.admission(now), CallAdmission::Wait(FIRST_PAUSE));
    }

    #[test]
    fn one_trial_passes_and_decides() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + SECOND;
        assert_eq!(breaker.admit(later), CallAdmission::Trial);
        assert!(matches!(breaker.admit(later), CallAdmission::Wait(_)));
        breaker.give_up();
        assert_eq!(breaker.admit(later), CallAdmission::Trial);
        // An old call that fails only now changes nothing.
        assert_eq!(breaker.fail(later, false), None);
        assert_eq!(breaker.fail(later, true), Some(2 * SECOND));
        assert_eq!(breaker.admit(later), CallAdmission::Wait(2 * SECOND));
        assert_eq!(breaker.admit(later + 2 * SECOND), CallAdmission::Trial);
        assert!(breaker.succeed());
        assert_eq!(breaker.admit(later), CallAdmission::Call);
        assert_eq!(breaker.admit(later), CallAdmission::Call);
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        let mut pauses = Vec::new();
        for _ in 0..40 {
            now += MAX_PAUSE;
            assert_eq!(breaker.admit(now), CallAdmission::Trial);
            pauses.extend(breaker.fail(now, true));
        }
        let seconds: Vec<u64> = pauses.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds[..6], [2, 4, 8, 16, 30, 30]);
        assert_eq!(seconds[39], 30);
    }
}
