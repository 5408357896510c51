//! Memory budget for request bodies, shared fairly among accounts.
//!
//! Invariant: total use exceeds the budget only while a single oversized body is alone. An account
//! gets another body only if its total then does not exceed the free memory, so room always remains
//! for others. Memory of a large body is mapped and returns to the system when its last reader
//! drops it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use memmap2::MmapMut;
use tokio::sync::Notify;

use crate::account::AccountId;

/// Maximum size of a body on the heap, in bytes. Larger ones are mapped.
const MAX_HEAP_BYTES: usize = 64 << 10;

/// Maximum time that a request waits for memory while it holds a body.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Growth step of a body of unknown length, in bytes.
const GROWTH_BYTES: usize = 256 << 10;

/// Number of accounts above which entries without bodies are dropped.
const MAX_IDLE_ACCOUNTS: usize = 1024;

/// The memory budget for request bodies.
pub struct BodyMemory {
    most: usize,
    used: Mutex<MemoryUsage>,
    freed: Notify,
    /// Number of waiters for memory.
    waiting: AtomicUsize,
}

/// Counts a waiter for memory until it is dropped.
struct WaiterCount<'m>(&'m AtomicUsize);

#[derive(Debug, Default)]
struct MemoryUsage {
    all: usize,
    accounts: HashMap<AccountId, AccountUsage>,
}

/// Memory that an account uses.
#[derive(Debug, Default)]
struct AccountUsage {
    bytes: usize,
    holdings: usize,
}

/// A share of the budget, released on drop.
#[derive(Debug)]
pub struct BodyReservation {
    memory: Arc<BodyMemory>,
    account: AccountId,
    bytes: usize,
}

/// Reasons to reject a body for lack of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBodyMemory {
    /// The account has used up its share.
    #[error("the account's other request bodies use up its share of the memory for bodies")]
    Share,
    /// All accounts together have used up the budget.
    #[error("the memory for request bodies is full")]
    Full,
}

/// A body that is being received.
#[derive(Debug)]
pub struct BodyBuffer {
    holding: BodyReservation,
    kept: BodyStorage,
    length: usize,
    max_bytes: usize,
    /// Bytes of the holding that are reserved for a decoder instead of the body.
    decoder_bytes: usize,
    /// True if the holding covers the whole body, even if it is smaller than the body.
    is_covered: bool,
}

#[derive(Debug)]
enum BodyStorage {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

/// Bytes of a body together with their share of the budget.
struct OwnedBytes<T> {
    bytes: T,
    length: usize,
    _holding: Arc<BodyReservation>,
}

impl BodyMemory {
    /// Creates a budget of this many bytes.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            used: Mutex::default(),
            freed: Notify::new(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Takes a share of the budget, or fails at once.
    pub fn take(
        self: &Arc<Self>,
        account: AccountId,
        bytes: usize,
    ) -> Result<BodyReservation, OutOfBodyMemory> {
        let mut used = self.used();
        let others = used.accounts.get(&account).map_or(0, |own| own.holdings);
        used.add(self.most, (account, others), 0, bytes)?;
        used.accounts.entry(account).or_default().holdings += 1;
        drop(used);
        Ok(BodyReservation {
            memory: Arc::clone(self),
            account,
            bytes,
        })
    }

    /// Waits for a share of the budget. A body larger than the budget waits for all of it.
    pub async fn wait(self: &Arc<Self>, account: AccountId, bytes: usize) -> BodyReservation {
        let bytes = bytes.min(self.most);
        let _waits = WaiterCount::new(&self.waiting);
        loop {
            // Subscribe before the check, so that a release in between is not missed.
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Ok(holding) = self.take(account, bytes) {
                return holding;
            }
            freed.await;
        }
    }

    /// Returns the number of bytes in use.
    pub fn held(&self) -> usize {
        self.used().all
    }

    fn give_back(&self, account: AccountId, bytes: usize, holdings: usize) {
        let mut used = self.used();
        used.all -= bytes;
        if let Some(own) = used.accounts.get_mut(&account) {
            own.bytes -= bytes;
            own.holdings -= holdings;
            // The entry of an account with frequent requests stays.
            if own.holdings == 0 && used.accounts.len() > MAX_IDLE_ACCOUNTS {
                used.accounts.remove(&account);
            }
        }
        drop(used);
        // A waiter registers before it checks the usage.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.freed.notify_waiters();
        }
    }

    fn used(&self) -> MutexGuard<'_, MemoryUsage> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'m> WaiterCount<'m> {
    fn new(waiting: &'m AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl MemoryUsage {
    /// Adds bytes to a holding of an account that has `others` other holdings.
    fn add(
        &mut self,
        most: usize,
        (account, others): (AccountId, usize),
        held: usize,
        bytes: usize,
    ) -> Result<(), OutOfBodyMemory> {
        let free = most.saturating_sub(self.all);
        let is_alone = self.all == held;
        if bytes > free && !is_alone {
            return Err(OutOfBodyMemory::Full);
        }
        let own = self.accounts.entry(account).or_default();
        // At most as much as then remains free: a single account gets half, two get a third each.
        if others > 0 && own.bytes.saturating_add(bytes) > free {
            return Err(OutOfBodyMemory::Share);
        }
        own.bytes += bytes;
        self.all += bytes;
        Ok(())
    }
}

impl BodyReservation {
    /// Returns the account that owns it.
    pub fn account(&self) -> AccountId {
        self.account
    }

    /// Waits for another share of the budget for the same account, for what a body becomes when it is decoded.
    pub async fn another(&self, bytes: usize) -> Result<Self, OutOfBodyMemory> {
        if bytes > self.memory.most / 2 {
            return Err(OutOfBodyMemory::Full);
        }
        // Others may wait while they hold their bodies, so nobody waits for ever.
        let wait = self.memory.wait(self.account, bytes);
        let reserved = tokio::time::timeout(MAX_WAIT, wait).await;
        reserved.map_err(|_| OutOfBodyMemory::Share)
    }

    /// Takes more of the budget.
    pub fn grow(&mut self, bytes: usize) -> Result<(), OutOfBodyMemory> {
        let mut used = self.memory.used();
        let others = used.accounts.get(&self.account);
        let others = others.map_or(0, |own| own.holdings - 1);
        let (most, whose) = (self.memory.most, (self.account, others));
        used.add(most, whose, self.bytes, bytes)?;
        drop(used);
        self.bytes += bytes;
        Ok(())
    }

    /// Releases a part of it. Most bodies reserve nothing for a decoder and skip the lock.
    fn shrink(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.memory.give_back(self.account, bytes, 0);
        self.bytes -= bytes;
    }

    /// Wraps bytes so that they keep this share of the budget until their last reader drops them.
    pub fn keep(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        let length = bytes.len();
        Bytes::from_owner(OwnedBytes {
            bytes,
            length,
            _holding: Arc::clone(self),
        })
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.memory.give_back(self.account, self.bytes, 1);
    }
}

impl BodyBuffer {
    /// Creates a buffer for at most `most` bytes, which the holding may cover in part. Its `beside`
    /// bytes are reserved for a decoder and released when the body is complete.
    pub fn new(holding: BodyReservation, beside: usize, most: usize) -> Self {
        let expected = holding.bytes.saturating_sub(beside);
        Self {
            kept: BodyStorage::Heap(Vec::with_capacity(expected.min(most).min(MAX_HEAP_BYTES))),
            holding,
            length: 0,
            max_bytes: most,
            decoder_bytes: beside,
            is_covered: false,
        }
    }

    /// Creates a buffer for at most `most` bytes whose memory [`BodyMemory::wait`] has already
    /// reserved.
    pub fn covered(holding: BodyReservation, most: usize) -> Self {
        Self {
            is_covered: true,
            ..Self::new(holding, 0, most)
        }
    }

    /// Appends bytes, taking more of the budget if needed.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), OutOfBodyMemory> {
        let length = self.length.saturating_add(bytes.len());
        if length > self.max_bytes {
            return Err(OutOfBodyMemory::Full);
        }
        let covered = self.holding.bytes - self.decoder_bytes;
        if length > covered && !self.is_covered {
            let step = (length - covered).max(GROWTH_BYTES.min(self.max_bytes - covered));
            self.holding.grow(step)?;
        }
        if let BodyStorage::Heap(heap) = &mut self.kept {
            if length <= MAX_HEAP_BYTES {
                heap.extend_from_slice(bytes);
                self.length = length;
                return Ok(());
            }
            // Untouched pages occupy no memory.
            let mut map = MmapMut::map_anon(self.max_bytes).map_err(|_| OutOfBodyMemory::Full)?;
            map[..self.length].copy_from_slice(heap);
            self.kept = BodyStorage::Mapped(map);
        }
        if let BodyStorage::Mapped(map) = &mut self.kept {
            map[self.length..length].copy_from_slice(bytes);
        }
        self.length = length;
        Ok(())
    }

    /// Takes more of the budget until it covers this many bytes, which are processed elsewhere.
    pub fn cover(&mut self, bytes: usize) -> Result<(), OutOfBodyMemory> {
        let covered = self.holding.bytes - self.decoder_bytes;
        match bytes.checked_sub(covered) {
            None | Some(0) => Ok(()),
            Some(missing) => self.holding.grow(missing),
        }
    }

    /// Returns the bytes received so far, for a body whose rest is stored elsewhere. Everything
    /// reserved stays reserved.
    pub fn into_received(mut self) -> (Bytes, Arc<BodyReservation>) {
        self.decoder_bytes = 0;
        self.finish()
    }

    /// Returns the body and its share of the budget. A decoder whose result is as large as the body
    /// keeps the share.
    pub fn finish(mut self) -> (Bytes, Arc<BodyReservation>) {
        self.holding.shrink(self.decoder_bytes);
        let holding = Arc::new(self.holding);
        let body = match self.kept {
            BodyStorage::Heap(heap) => holding.keep(heap),
            BodyStorage::Mapped(bytes) => Bytes::from_owner(OwnedBytes {
                bytes,
                length: self.length,
                _holding: Arc::clone(&holding),
            }),
        };
        (body, holding)
    }
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for OwnedBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes.as_ref()[..self.length]
    }
}

impl fmt::Debug for BodyMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyMemory({} of {})", self.held(), self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: AccountId = AccountId(1);
    const TWO: AccountId = AccountId(2);

    #[test]
    fn no_account_gets_all_and_everything_comes_back() {
        let memory = BodyMemory::new(100);
        let first = memory.take(ONE, 40).expect("there is room");
        let second = memory.take(ONE, 10).expect("as much is left");
        assert_eq!(
            memory.take(ONE, 1).expect_err("half is its share"),
            OutOfBodyMemory::Share
        );
        let other = memory.take(TWO, 50).expect("the rest is another's");
        assert_eq!(
            memory.take(AccountId(3), 1).expect_err("full"),
            OutOfBodyMemory::Full
        );
        drop((first, second, other));
        assert_eq!(memory.held(), 0);
        // A body that is alone may take all of it, and more.
        let mut alone = memory.take(ONE, 60).expect("there is room");
        alone.grow(60).expect("it is alone");
        assert_eq!(
            memory.take(TWO, 1).expect_err("full"),
            OutOfBodyMemory::Full
        );
        drop(alone);
        // The first of several grows as long as there is room at all.
        let mut first = memory.take(ONE, 40).expect("there is room");
        let second = memory.take(TWO, 40).expect("there is room");
        first.grow(20).expect("there is room");
        assert_eq!(first.grow(1).expect_err("full"), OutOfBodyMemory::Full);
        drop((first, second));
        assert!(memory.used().accounts.values().all(|own| own.bytes == 0));
    }

    #[test]
    fn accounts_that_hold_nothing_are_forgotten_in_the_end() {
        let memory = BodyMemory::new(1 << 20);
        for account in (0..).take(5 * MAX_IDLE_ACCOUNTS) {
            let held = memory.take(AccountId(account), 1);
            drop(held.expect("there is room"));
        }
        assert!(memory.used().accounts.len() <= MAX_IDLE_ACCOUNTS + 1);
    }

    #[test]
    fn a_body_holds_its_part_as_long_as_it_is_read() {
        let memory = BodyMemory::new(4 << 20);
        for length in [10, MAX_HEAP_BYTES + 1, 1 << 20, 10] {
            let holding = memory.take(ONE, 0).expect("there is room");
            let mut buffer = BodyBuffer::new(holding, 0, 2 << 20);
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            for chunk in bytes.chunks(1000) {
                buffer.push(chunk).expect("there is room");
            }
            let (body, holding) = buffer.finish();
            assert_eq!(body, bytes);
            let end = body.slice(length - 5..);
            drop((body, holding));
            assert!(memory.held() >= length);
            drop(end);
            assert_eq!(memory.held(), 0);
        }
        let holding = memory.take(ONE, 0).expect("there is room");
        let mut buffer = BodyBuffer::new(holding, 0, 100);
        assert_eq!(buffer.push(&[0; 101]), Err(OutOfBodyMemory::Full));
        // An upload may need more memory than the buffer that receives its beginning.
        buffer.push(&[0; 100]).expect("there is room");
        for covered in [3 << 20, 1 << 20] {
            buffer.cover(covered).expect("there is room");
            assert_eq!(memory.held(), 3 << 20);
        }
    }

    #[tokio::test]
    async fn who_waits_gets_what_is_given_back() {
        let memory = BodyMemory::new(100);
        let held = memory.take(ONE, 90).expect("there is room");
        let waiting = Arc::clone(&memory);
        let waits = tokio::spawn(async move { waiting.wait(TWO, 1000).await.bytes });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(held);
        assert_eq!(waits.await.expect("it ends"), 100);
    }
}
