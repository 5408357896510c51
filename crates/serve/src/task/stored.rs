//! What the databases of both kinds store alike: a copy of one into the other depends on it.

/// Stored values of outcomes.
pub(super) const ANSWERED: i64 = 1;
pub(super) const EXPIRED: i64 = 2;
pub(super) const FAILED: i64 = 3;
pub(super) const CANCELED_BY_USER: i64 = 4;

/// Maximum queue position that is counted.
pub(super) const MAX_COUNTED_POSITION: i64 = 1000;

/// Maximum number of events that a slow listener may lag behind.
pub(super) const EVENT_CAPACITY: usize = 4096;
