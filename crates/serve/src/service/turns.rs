//! Limits concurrent work, such as generations of text, to a number of slots. Accounts take turns.
//!
//! Invariant: a granted turn is either used or passed on; a waiter that leaves is removed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::CallError;
use crate::account::AccountId;

/// The turns of one resource.
#[derive(Debug)]
pub(super) struct ResourceTurns {
    /// Maximum number of waiters.
    queue: usize,
    state: Mutex<TurnsState>,
}

#[derive(Debug)]
struct TurnsState {
    free: usize,
    waiting: BTreeMap<AccountId, VecDeque<oneshot::Sender<Turn>>>,
    /// The account that was served last.
    last: Option<AccountId>,
}

/// The right to proceed. Dropping it passes the turn on.
#[derive(Debug)]
pub(super) struct Turn(Option<Arc<ResourceTurns>>);

impl ResourceTurns {
    /// Allows `at_once` concurrent turns and up to `queue` waiters.
    pub(super) fn new(at_once: usize, queue: usize) -> Arc<Self> {
        Arc::new(Self {
            queue,
            state: Mutex::new(TurnsState {
                free: at_once.max(1),
                waiting: BTreeMap::new(),
                last: None,
            }),
        })
    }

    /// Waits for a turn.
    pub(super) async fn take(self: &Arc<Self>, caller: AccountId) -> Result<Turn, CallError> {
        let receiver = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                state.last = Some(caller);
                return Ok(Turn(Some(Arc::clone(self))));
            }
            let own = state.waiting.entry(caller).or_default();
            own.retain(|waiting| !waiting.is_closed());
            let waiting: usize = state.waiting.values().map(VecDeque::len).sum();
            if waiting >= self.queue {
                return Err(CallError::QueueFull { limit: self.queue });
            }
            let (sender, receiver) = oneshot::channel();
            state.waiting.entry(caller).or_default().push_back(sender);
            receiver
        };
        receiver.await.map_err(|_| CallError::Stopped)
    }

    /// Allows `by` more concurrent turns.
    pub(super) fn widen(self: &Arc<Self>, by: usize) {
        for _ in 0..by {
            self.pass();
        }
    }

    /// Returns the number of waiters.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state();
        let all = state.waiting.values().flatten();
        all.filter(|waiting| !waiting.is_closed()).count()
    }

    /// Passes the turn to the first waiter of the next account.
    fn pass(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let Some(next) = state.next() else {
                    state.free += 1;
                    return;
                };
                next
            };
            match next.send(Turn(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // The waiter has left. The loop passes the turn on, so its drop must not.
                Err(mut turn) => turn.0 = None,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, TurnsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnsState {
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        self.waiting.retain(|_, own| {
            own.retain(|waiting| !waiting.is_closed());
            !own.is_empty()
        });
        let accounts = || self.waiting.keys().copied();
        let after = accounts().find(|account| self.last.is_none_or(|last| *account > last));
        let account = after.or_else(|| accounts().next())?;
        self.last = Some(account);
        self.waiting.get_mut(&account)?.pop_front()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: AccountId = AccountId(1);
    const BOB: AccountId = AccountId(2);

    #[tokio::test]
    async fn accounts_take_turns_and_who_leaves_is_passed_over() {
        let turns = ResourceTurns::new(1, 8);
        let first = turns.take(ANN).await.expect("it is free");
        let order = Arc::new(Mutex::new(Vec::new()));
        let wait = |caller, name: &'static str| {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            tokio::spawn(async move {
                let _turn = turns.take(caller).await.expect("it comes");
                order.lock().expect("no test has panicked").push(name);
            })
        };
        let mut all = Vec::new();
        for (caller, name) in [
            (ANN, "a1"),
            (ANN, "a2"),
            (ANN, "gone"),
            (BOB, "b1"),
            (BOB, "b2"),
        ] {
            all.push((name, wait(caller, name)));
            tokio::task::yield_now().await;
        }
        while turns.waiting() < 5 {
            tokio::task::yield_now().await;
        }
        let (_, gone) = all.remove(2);
        gone.abort();
        assert!(gone.await.is_err());
        drop(first);
        for (_, waiting) in all {
            waiting.await.expect("it ends");
        }
        let order = order.lock().expect("no test has panicked").clone();
        assert_eq!(order, ["b1", "a1", "b2", "a2"]);
        drop(turns.take(BOB).await.expect("it is free again"));
    }

    #[tokio::test]
    async fn no_more_wait_than_may() {
        let turns = ResourceTurns::new(1, 1);
        let _first = turns.take(ANN).await.expect("it is free");
        let waiting = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { turns.take(BOB).await.map(drop) }
        });
        while turns.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let refused = turns.take(ANN).await;
        assert!(matches!(refused, Err(CallError::QueueFull { limit: 1 })));
        waiting.abort();
        assert!(waiting.await.is_err());
        assert_eq!(turns.waiting(), 0);
    }
}
