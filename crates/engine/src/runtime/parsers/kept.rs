//! A cache of contents in a parser process, for contents that cost more to read than the job
//! itself.

use std::collections::VecDeque;

use super::job::ContentId;

/// A cache with a fixed capacity that evicts the least recently used content.
#[derive(Debug)]
pub struct ContentCache<T> {
    most: usize,
    /// The most recently used content is last.
    items: VecDeque<(ContentId, T)>,
}

impl<T> ContentCache<T> {
    /// Creates a cache of at most `most` contents.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            items: VecDeque::new(),
        }
    }

    /// Returns a content and marks it as used.
    pub fn get(&mut self, id: ContentId) -> Option<&mut T> {
        let place = self.items.iter().position(|(known, _)| *known == id)?;
        let found = self.items.remove(place)?;
        self.items.push_back(found);
        self.items.back_mut().map(|(_, item)| item)
    }

    /// Adds a content; evicts the least recently used one if the cache is full.
    pub fn put(&mut self, id: ContentId, item: T) {
        self.items.retain(|(known, _)| *known != id);
        while self.items.len() >= self.most.max(1) {
            self.items.pop_front();
        }
        self.items.push_back((id, item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_evicted() {
        let mut kept = ContentCache::new(2);
        let [a, b, c] = [1, 2, 3].map(ContentId::numbered);
        kept.put(a, "a");
        kept.put(b, "b");
        assert_eq!(kept.get(a).copied(), Some("a"));
        kept.put(c, "c");
        assert_eq!(kept.get(b), None);
        assert_eq!(kept.get(a).copied(), Some("a"));
        assert_eq!(kept.get(c).copied(), Some("c"));
    }
}
