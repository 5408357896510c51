//! Timestamps, as the API and the database represent them.

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time of a database that several servers share, and when it was read; `None` with a database of one server.
static SHARED_TIME: RwLock<Option<(Timestamp, Instant)>> = RwLock::new(None);

/// A time: milliseconds since the Unix epoch. The system clock may jump, so timestamps do not prove
/// the order of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the current time: that of the database if several servers share it, else that of the system clock.
    pub fn now() -> Self {
        let shared = *SHARED_TIME.read().unwrap_or_else(PoisonError::into_inner);
        match shared {
            Some((time, read_at)) => time.after(read_at.elapsed()),
            None => Self::of_system(),
        }
    }

    /// Lets this process follow the clock of a database: it was `time` at `read_at`.
    pub(super) fn follow(time: Self, read_at: Instant) {
        let mut shared = SHARED_TIME.write().unwrap_or_else(PoisonError::into_inner);
        *shared = Some((time, read_at));
    }

    fn of_system() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(since.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        }))
    }

    /// Returns this time plus a duration.
    #[must_use]
    pub fn after(self, while_: Duration) -> Self {
        let while_ = i64::try_from(while_.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(while_))
    }

    /// Returns this time minus a duration.
    #[must_use]
    pub fn before(self, while_: Duration) -> Self {
        let while_ = i64::try_from(while_.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(while_))
    }

    /// Returns the duration from this time to a later one; zero if that is earlier.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        let milliseconds = later.0.saturating_sub(self.0);
        Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
