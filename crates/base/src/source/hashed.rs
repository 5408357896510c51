//! Hash tables with a fast hash function, for keys such as paths, names and numbers.
//!
//! The hash is seeded per process, so that nobody can choose keys that collide in all processes.
//! Keys from clients of a server must use the standard library's tables instead.

use foldhash::fast::RandomState;

/// A map with the fast hash.
pub type Map<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A set with the fast hash.
pub type Set<K> = std::collections::HashSet<K, RandomState>;
