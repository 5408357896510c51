//! Limits look-ups of unknown keys in the store, so that guessing keys cannot overload it.
//!
//! Invariant: the rate of look-ups is limited for all clients together, and each key is looked up
//! once per interval. Remembered keys expire, and the rate bounds their number.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Sustained look-ups per second, and the maximum burst after a pause.
const LOOKUPS_PER_SECOND: f64 = 50.0;
const MAX_LOOKUP_BURST: f64 = 100.0;

/// How long an unknown key is not looked up again. If it is created meanwhile, it becomes known
/// sooner: the snapshot of accounts follows the store.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);

/// Number of remembered keys from which expired ones are removed. The map hardly grows beyond it:
/// the rate admits fewer look-ups within the interval.
const CLEANUP_THRESHOLD: usize = 1024;

/// The rate limiter for unknown keys.
#[derive(Debug)]
pub(super) struct UnknownKeyLimiter {
    state: Mutex<StrangersState>,
}

#[derive(Debug)]
struct StrangersState {
    /// Time of the last look-up of each key, by its hash.
    asked: HashMap<[u8; 32], Instant>,
    /// Remaining look-ups (token bucket), and when they were computed.
    left: f64,
    counted: Instant,
}

impl UnknownKeyLimiter {
    /// Creates a limiter with a full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: Mutex::new(StrangersState {
                asked: HashMap::new(),
                left: MAX_LOOKUP_BURST,
                counted: now,
            }),
        }
    }

    /// Returns `true` and counts a look-up, if the store may be asked for this hash.
    pub(super) fn admit(&self, hash: [u8; 32], now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < LOOKUP_INTERVAL;
        if state.asked.get(&hash).is_some_and(is_recent) {
            return false;
        }
        let since = now.saturating_duration_since(state.counted).as_secs_f64();
        state.left = (state.left + since * LOOKUPS_PER_SECOND).min(MAX_LOOKUP_BURST);
        state.counted = state.counted.max(now);
        if state.left < 1.0 {
            return false;
        }
        state.left -= 1.0;
        if state.asked.len() >= CLEANUP_THRESHOLD {
            state.asked.retain(|_, at| is_recent(at));
        }
        state.asked.insert(hash, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> [u8; 32] {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        hash
    }

    #[test]
    fn a_key_is_asked_for_once_in_a_while() {
        let start = Instant::now();
        let strangers = UnknownKeyLimiter::new(start);
        let after = |millis| start + Duration::from_millis(millis);
        assert!(strangers.admit(hash(1), start));
        assert!(!strangers.admit(hash(1), after(9_999)));
        assert!(strangers.admit(hash(2), after(9_999)), "another key");
        assert!(strangers.admit(hash(1), after(10_000)));
        assert!(!strangers.admit(hash(1), after(10_001)));
    }

    #[test]
    fn guessing_is_bounded_in_sum_and_in_memory() {
        let start = Instant::now();
        let strangers = UnknownKeyLimiter::new(start);
        let mut admitted = 0;
        // Ten guesses per millisecond, for a minute.
        for guess in 0..600_000 {
            let now = start + Duration::from_micros(guess * 100);
            admitted += u64::from(strangers.admit(hash(guess), now));
        }
        assert!((3_000..=3_101).contains(&admitted), "{admitted}");
        let remembered = strangers
            .state
            .lock()
            .expect("no test panicked")
            .asked
            .len();
        assert!(remembered <= CLEANUP_THRESHOLD, "{remembered}");
        // A later look-up is admitted.
        assert!(strangers.admit(hash(u64::MAX), start + Duration::from_secs(61)));
    }
}
