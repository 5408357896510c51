//! Task ids: UUIDs of version 7 (RFC 9562) that increase in the order in which this process creates
//! them.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use uuid::{Builder, Uuid};

use crate::database::Timestamp;

/// The id of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(Uuid);

/// Maximum lead of ids over the clock, in milliseconds. After a larger step back of the clock, ids
/// follow the clock again.
const MAX_CLOCK_LEAD_MS: i64 = 60_000;

/// Generates ids. Each id is greater than the one before, even if the clock is set back by up to
/// `MAX_CLOCK_LEAD_MS`. The store relies on this: it orders the queue by id.
#[derive(Debug, Default)]
pub struct TaskIds {
    last: Mutex<(i64, u16)>,
}

impl TaskId {
    /// Creates an id from its 16 bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the 16 bytes, in the order in which ids compare.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Creates an id from its UUID.
    pub(super) fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }

    /// Returns the UUID.
    pub(super) fn uuid(self) -> Uuid {
        self.0
    }

    /// Returns the time of creation.
    pub fn made_at(&self) -> Timestamp {
        Timestamp(self.millis())
    }

    /// Returns the embedded milliseconds since the Unix epoch.
    fn millis(&self) -> i64 {
        let bytes = self.0.as_bytes();
        bytes[..6]
            .iter()
            .fold(0, |millis, byte| millis << 8 | i64::from(*byte))
    }
}

impl TaskIds {
    /// Starts after `last`, the greatest id that was ever created for this store.
    pub fn after(last: Option<TaskId>) -> Self {
        let millis = last.map_or(0, |last| last.millis());
        Self {
            last: Mutex::new((millis, u16::MAX)),
        }
    }

    /// Returns a new id.
    pub fn next(&self, now: Timestamp) -> TaskId {
        const COUNTER_END: u16 = 1 << 12;
        let (millis, counter) = {
            let mut last = self
                .last
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            *last = if now.0 > last.0 || last.0 - now.0 > MAX_CLOCK_LEAD_MS {
                (now.0, 0)
            } else if last.1.saturating_add(1) < COUNTER_END {
                (last.0, last.1 + 1)
            } else {
                (last.0 + 1, 0)
            };
            *last
        };
        let mut random = [0; 10];
        // Without random bits, ids remain unique within this store because the counter never
        // repeats.
        let _ = getrandom::fill(&mut random);
        let [high, low] = counter.to_be_bytes();
        random[0] = high;
        random[1] = low;
        let millis = u64::try_from(millis).unwrap_or(0);
        TaskId(Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for TaskId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_whatever_the_clock_does() {
        let ids = TaskIds::default();
        let mut last = ids.next(Timestamp(1_000));
        for now in [1_000, 999, 5, 1_001, 1_001, 3]
            .into_iter()
            .cycle()
            .take(20_000)
        {
            let next = ids.next(Timestamp(now));
            assert!(next > last, "{next} after {last}");
            last = next;
        }
        let far = ids.next(Timestamp(400 * 86_400_000));
        let back = ids.next(Timestamp(2_000));
        assert!(back < far && back.made_at() == Timestamp(2_000));
        let restarted = TaskIds::after(Some(far)).next(Timestamp(2_000));
        assert_eq!(restarted.made_at(), Timestamp(2_000));
        let again = TaskIds::after(Some(last));
        assert!(again.next(Timestamp(0)) > last);
        assert_eq!(last.to_string().parse(), Ok(last));
        assert_eq!(last.0.get_version_num(), 7);
    }
}
