//! Families of metric series by key: look-ups are lock-free, and series are created on first use.
//!
//! Invariant: a key has the same series as long as the family lives. A bounded family has separate
//! series for its first keys, and one for all others.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Series by key. Callers must bound the number of keys.
#[derive(Debug)]
pub struct Family<K, V> {
    series: ArcSwap<HashMap<K, Arc<V>>>,
}

/// Separate series for the first keys, and one for the rest.
#[derive(Debug)]
pub struct BoundedFamily<K, V> {
    family: Family<K, V>,
    most: usize,
    other: Arc<V>,
}

impl<K, V> Default for Family<K, V> {
    fn default() -> Self {
        Self {
            series: ArcSwap::default(),
        }
    }
}

impl<K: Hash + Eq + Clone, V> Family<K, V> {
    /// Calls `work` with the series of a key, which is created if necessary.
    pub fn with<Q, T>(&self, key: &Q, make: impl Fn() -> V, work: impl FnOnce(&V) -> T) -> T
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(found) = self.series.load().get(key) {
            return work(found);
        }
        let own = self.insert(key, usize::MAX, &make);
        // An unbounded family always inserts the key, so this creates nothing.
        work(&own.unwrap_or_else(|| Arc::new(make())))
    }

    /// Returns all series, in no particular order.
    pub fn all(&self) -> Vec<(K, Arc<V>)> {
        let series = self.series.load();
        let all = series.iter();
        all.map(|(key, value)| (key.clone(), Arc::clone(value)))
            .collect()
    }

    /// Inserts the series of a key; returns `None` if there are `most` others already.
    fn insert<Q>(&self, key: &Q, most: usize, make: impl Fn() -> V) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let mut own = None;
        self.series.rcu(|series| {
            if series.contains_key(key) || series.len() >= most {
                return Arc::clone(series);
            }
            let own = own.get_or_insert_with(|| Arc::new(make()));
            let mut series = HashMap::clone(series);
            series.insert(key.to_owned(), Arc::clone(own));
            Arc::new(series)
        });
        self.series.load().get(key).map(Arc::clone)
    }
}

impl<K: Hash + Eq + Clone, V> BoundedFamily<K, V> {
    /// Creates a family of at most `most` series, and `other` for the rest.
    pub fn new(most: usize, other: V) -> Self {
        Self {
            family: Family::default(),
            most,
            other: Arc::new(other),
        }
    }

    /// Returns the series of a key: its own if it is among the first.
    pub fn of<Q>(&self, key: &Q, make: impl Fn() -> V) -> Arc<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let series = self.family.series.load();
        if let Some(found) = series.get(key) {
            return Arc::clone(found);
        }
        if series.len() >= self.most {
            return Arc::clone(&self.other);
        }
        let own = self.family.insert(key, self.most, make);
        own.unwrap_or_else(|| Arc::clone(&self.other))
    }

    /// Returns the series of all keys beyond the bound.
    pub fn rest(&self) -> Arc<V> {
        Arc::clone(&self.other)
    }

    /// Returns all series, the one for the rest last.
    pub fn all(&self) -> Vec<Arc<V>> {
        let own = self.family.all().into_iter().map(|(_, series)| series);
        own.chain([Arc::clone(&self.other)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_many_threads_count_at_once_adds_up() {
        let family: Family<String, AtomicU64> = Family::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for number in 0..1000 {
                        let key = format!("k{}", number % 10);
                        family.with(key.as_str(), AtomicU64::default, |it| {
                            it.fetch_add(1, Ordering::Relaxed)
                        });
                    }
                });
            }
        });
        let all = family.all();
        assert_eq!(all.len(), 10);
        for (key, value) in all {
            assert_eq!(value.load(Ordering::Relaxed), 800, "{key}");
        }
    }

    #[test]
    fn beyond_the_bound_all_share_one() {
        let bounded: BoundedFamily<i64, String> = BoundedFamily::new(2, "other".to_owned());
        let of = |key: i64| bounded.of(&key, || format!("own {key}"));
        for _ in 0..3 {
            assert_eq!(*of(7), "own 7");
            assert_eq!(*of(8), "own 8");
            assert_eq!(*of(9), "other");
        }
        assert_eq!(bounded.all().len(), 3);
        let none: BoundedFamily<i64, &str> = BoundedFamily::new(0, "other");
        assert_eq!(*none.of(&1, || "own"), "other");
    }
}
