//! Moments, as the API and the tables have them.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment: milliseconds since the Unix epoch. The system's clock may jump, so nothing relies on two
/// of them being in the order of what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The present, by the system's clock.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(since.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        }))
    }

    /// This moment and a while.
    #[must_use]
    pub fn after(self, while_: Duration) -> Self {
        let while_ = i64::try_from(while_.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(while_))
    }

    /// This moment less a while.
    #[must_use]
    pub fn before(self, while_: Duration) -> Self {
        let while_ = i64::try_from(while_.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(while_))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
