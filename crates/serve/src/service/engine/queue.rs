//! A fair queue: callers take turns, and the items of each caller are served in order.
//!
//! Invariant: between two items of a caller, at most one item of each other caller is served. An
//! item that was put back is its caller's next one. The queue knows nothing of sessions and time.

use std::collections::{BTreeMap, VecDeque};

use crate::account::AccountId;

/// An item of the queue.
pub(super) trait QueueItem {
    /// Returns its number, unique in a queue.
    fn id(&self) -> u64;

    /// Returns its caller.
    fn caller(&self) -> AccountId;
}

/// A fair queue.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// Callers with items, the next one first.
    turns: VecDeque<AccountId>,
    /// Items by caller, with a non-empty entry for exactly the callers in `turns`.
    lines: BTreeMap<AccountId, VecDeque<T>>,
    count: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            turns: VecDeque::new(),
            lines: BTreeMap::new(),
            count: 0,
        }
    }
}

impl<T: QueueItem> FairQueue<T> {
    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends an item to those of its caller.
    pub(super) fn push(&mut self, item: T) {
        let caller = item.caller();
        let line = self.lines.entry(caller).or_default();
        if line.is_empty() {
            self.turns.push_back(caller);
        }
        line.push_back(item);
        self.count += 1;
    }

    /// Puts a taken item back: as the first of its caller, whose turn is next.
    pub(super) fn put_back(&mut self, item: T) {
        let caller = item.caller();
        self.turns.retain(|other| *other != caller);
        self.turns.push_front(caller);
        self.lines.entry(caller).or_default().push_front(item);
        self.count += 1;
    }

    /// Returns the next item.
    pub(super) fn first(&self) -> Option<&T> {
        self.lines.get(self.turns.front()?)?.front()
    }

    /// Takes the next item.
    pub(super) fn pop(&mut self) -> Option<T> {
        let caller = self.turns.pop_front()?;
        self.take_from(caller)
    }

    /// Takes up to `most` items that `fits` accepts, in the order of turns. A caller whose next
    /// item is rejected keeps its turn, and its later items stay behind that one.
    pub(super) fn take_where(&mut self, most: usize, mut fits: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        let mut passed = VecDeque::new();
        while taken.len() < most
            && let Some(caller) = self.turns.pop_front()
        {
            let next = self.lines.get(&caller).and_then(VecDeque::front);
            if next.is_some_and(&mut fits) {
                taken.extend(self.take_from(caller));
            } else {
                passed.push_back(caller);
            }
        }
        while let Some(caller) = passed.pop_back() {
            self.turns.push_front(caller);
        }
        taken
    }

    /// Counts the items that [`FairQueue::take_where`] would take, at most `most`.
    pub(super) fn count_where(&self, most: usize, mut fits: impl FnMut(&T) -> bool) -> usize {
        let mut count = 0;
        for line in self.lines.values() {
            for item in line {
                if count == most || !fits(item) {
                    break;
                }
                count += 1;
            }
        }
        count
    }

    /// Removes an item from any position.
    pub(super) fn remove(&mut self, id: u64, caller: AccountId) -> Option<T> {
        let line = self.lines.get_mut(&caller)?;
        let place = line.iter().position(|item| item.id() == id)?;
        let item = line.remove(place);
        if line.is_empty() {
            self.lines.remove(&caller);
            self.turns.retain(|other| *other != caller);
        }
        self.count -= 1;
        item
    }

    /// Takes all items.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.turns.clear();
        self.count = 0;
        let lines = std::mem::take(&mut self.lines);
        lines.into_values().flatten().collect()
    }

    /// Takes the first item of a caller that is currently not in `turns`, and appends the caller to
    /// `turns` if it has more.
    fn take_from(&mut self, caller: AccountId) -> Option<T> {
        let line = self.lines.get_mut(&caller)?;
        let item = line.pop_front()?;
        self.count -= 1;
        if line.is_empty() {
            self.lines.remove(&caller);
        } else {
            self.turns.push_back(caller);
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Numbered(i64, u64);

    impl QueueItem for Numbered {
        fn id(&self) -> u64 {
            self.1
        }

        fn caller(&self) -> AccountId {
            AccountId(self.0)
        }
    }

    fn queue(items: &[(i64, u64)]) -> FairQueue<Numbered> {
        let mut queue = FairQueue::default();
        for (caller, id) in items {
            queue.push(Numbered(*caller, *id));
        }
        queue
    }

    fn drained(queue: &mut FairQueue<Numbered>) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop())
            .map(|item| item.1)
            .collect()
    }

    #[test]
    fn callers_take_turns() {
        let mut queue = queue(&[(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)]);
        assert_eq!(queue.len(), 6);
        assert_eq!(drained(&mut queue), [10, 20, 30, 11, 21, 12]);
        assert!(queue.is_empty());
    }

    #[test]
    fn what_was_put_back_is_next() {
        let mut queue = queue(&[(1, 10), (1, 11), (2, 20)]);
        let first = queue.pop().expect("there are three");
        queue.put_back(first);
        assert_eq!(queue.first().map(QueueItem::id), Some(10));
        assert_eq!(drained(&mut queue), [10, 20, 11]);
    }

    #[test]
    fn removing_keeps_the_turns_of_others() {
        let mut queue = queue(&[(1, 10), (2, 20), (2, 21)]);
        assert_eq!(queue.remove(10, AccountId(1)).map(|item| item.1), Some(10));
        assert!(queue.remove(10, AccountId(1)).is_none());
        assert_eq!(queue.remove(20, AccountId(2)).map(|item| item.1), Some(20));
        assert_eq!(drained(&mut queue), [21]);
    }

    #[test]
    fn a_batch_takes_turns_and_leaves_what_does_not_fit() {
        let even = |item: &Numbered| item.1.is_multiple_of(2);
        let mut queue = queue(&[
            (1, 10),
            (1, 12),
            (1, 13),
            (1, 14),
            (2, 21),
            (2, 20),
            (3, 30),
        ]);
        assert_eq!(queue.count_where(9, even), 3);
        let taken = queue.take_where(9, even);
        let ids: Vec<u64> = taken.iter().map(QueueItem::id).collect();
        assert_eq!(ids, [10, 30, 12]);
        assert_eq!(queue.len(), 4);
        assert_eq!(drained(&mut queue), [21, 13, 20, 14]);
    }
}
