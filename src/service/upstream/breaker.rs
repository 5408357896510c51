//! Whether an address that failed is asked again.
//!
//! Invariant: an open breaker lets one trial call through at a time, and none before its time. Pauses double
//! from [`FIRST`] to [`LONGEST`] and begin anew after a success. Reads no clock: time is an argument.

use std::time::{Duration, Instant};

/// Failures in a row after which an address is not asked.
const TO_OPEN: u32 = 3;

/// The first pause of an address that failed, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// The failures of an address.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Failures since the last success.
    failures: u32,
    /// How often it opened since the last success.
    openings: u32,
    /// When the next trial may begin, while it is open.
    until: Option<Instant>,
    /// A trial is under way.
    is_trying: bool,
}

/// Whether a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may.
    Call,
    /// It may, as the one trial.
    Trial,
    /// Not before this time has passed.
    Wait(Duration),
}

impl Breaker {
    /// Asks for a call. A trial is under way until it succeeds, fails or is given up.
    pub(super) fn admit(&mut self, now: Instant) -> Admission {
        let admission = self.admission(now);
        self.is_trying |= admission == Admission::Trial;
        admission
    }

    /// Whether a call would be admitted.
    pub(super) fn admission(&self, now: Instant) -> Admission {
        let Some(until) = self.until else {
            return Admission::Call;
        };
        if self.is_trying {
            return Admission::Wait(FIRST);
        }
        match until.saturating_duration_since(now) {
            Duration::ZERO => Admission::Trial,
            left => Admission::Wait(left),
        }
    }

    /// Whether calls are held back.
    pub(super) fn is_open(&self) -> bool {
        self.until.is_some()
    }

    /// Records a call that succeeded. Returns whether calls were held back.
    pub(super) fn succeed(&mut self) -> bool {
        std::mem::take(self).is_open()
    }

    /// Records a call that failed. Returns the pause that begins now, if one does.
    pub(super) fn fail(&mut self, now: Instant, was_trial: bool) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        // Calls that began before it opened say nothing new.
        let opens = was_trial || (self.until.is_none() && self.failures >= TO_OPEN);
        if !opens {
            return None;
        }
        let pause = FIRST
            .saturating_mul(1 << self.openings.min(16))
            .min(LONGEST);
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
        assert_eq!(breaker.fail(now, false), Some(FIRST));
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
            assert_eq!(breaker.admit(now), Admission::Call);
        }
        let breaker = opened(now);
        assert_eq!(breaker.admission(now), Admission::Wait(FIRST));
    }

    #[test]
    fn one_trial_passes_and_decides() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + SECOND;
        assert_eq!(breaker.admit(later), Admission::Trial);
        assert!(matches!(breaker.admit(later), Admission::Wait(_)));
        breaker.give_up();
        assert_eq!(breaker.admit(later), Admission::Trial);
        // An old call that fails only now changes nothing.
        assert_eq!(breaker.fail(later, false), None);
        assert_eq!(breaker.fail(later, true), Some(2 * SECOND));
        assert_eq!(breaker.admit(later), Admission::Wait(2 * SECOND));
        assert_eq!(breaker.admit(later + 2 * SECOND), Admission::Trial);
        assert!(breaker.succeed());
        assert_eq!(breaker.admit(later), Admission::Call);
        assert_eq!(breaker.admit(later), Admission::Call);
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        let mut pauses = Vec::new();
        for _ in 0..40 {
            now += LONGEST;
            assert_eq!(breaker.admit(now), Admission::Trial);
            pauses.extend(breaker.fail(now, true));
        }
        let seconds: Vec<u64> = pauses.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds[..6], [2, 4, 8, 16, 30, 30]);
        assert_eq!(seconds[39], 30);
    }
}
