//! Reports reached limits of the server: each is counted in the metrics and logged at most every
//! ten seconds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::metrics::GatewayMetrics;

/// Minimum time between two log lines about one limit. A client can reach it thousands of times.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// When each limit was last logged, and how often it was reached since.
#[derive(Debug, Default)]
pub(super) struct LimitLog(Mutex<HashMap<&'static str, LimitCount>>);

#[derive(Debug)]
struct LimitCount {
    logged_at: Instant,
    since: u64,
}

impl LimitLog {
    /// Counts and logs that a limit was reached.
    pub(super) fn met(
        &self,
        metrics: &GatewayMetrics,
        limit: &'static str,
        who: &dyn std::fmt::Display,
    ) {
        metrics.limit_reached(limit);
        if let Some(times) = self.count(limit, Instant::now()) {
            tracing::warn!(limit, times, %who, "a limit was reached");
        }
    }

    /// Returns how often a limit was reached since it was last logged, if it is time to log it.
    fn count(&self, limit: &'static str, now: Instant) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(met) = all.get_mut(limit) else {
            let met = LimitCount {
                logged_at: now,
                since: 0,
            };
            all.insert(limit, met);
            return Some(1);
        };
        met.since += 1;
        if now.duration_since(met.logged_at) < LOG_INTERVAL {
            return None;
        }
        met.logged_at = now;
        Some(std::mem::take(&mut met.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_at_once_and_then_now_and_then() {
        let met = LimitLog::default();
        let start = Instant::now();
        assert_eq!(met.count("a", start), Some(1));
        for _ in 0..5 {
            assert_eq!(met.count("a", start + LOG_INTERVAL / 2), None);
        }
        assert_eq!(met.count("b", start + LOG_INTERVAL / 2), Some(1));
        assert_eq!(met.count("a", start + LOG_INTERVAL), Some(6));
        assert_eq!(met.count("a", start + LOG_INTERVAL), None);
    }
}
