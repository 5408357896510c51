//! Tables whose keys are paths, names and numbers: a hash that costs less than the look-up.
//!
//! Seeded for each process, so that nobody can choose keys that collide in all of them. Keys that come from clients of a
//! server belong into the standard library's tables.

use foldhash::fast::RandomState;

/// A table.
pub type Map<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A set.
pub type Set<K> = std::collections::HashSet<K, RandomState>;
