//! Who generates when: as many at once as there are sessions, accounts in turn.
//!
//! Invariant: a turn that is given is taken or passed on; who waits and goes away leaves nothing behind.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::CallError;
use crate::account::AccountId;

/// Turns of one model.
#[derive(Debug)]
pub(super) struct Turns {
    /// How many may wait.
    queue: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: BTreeMap<AccountId, VecDeque<oneshot::Sender<Turn>>>,
    /// The account that had a turn last.
    last: Option<AccountId>,
}

/// The right to generate. Dropping it passes it on.
#[derive(Debug)]
pub(super) struct Turn(Option<Arc<Turns>>);

impl Turns {
    /// Turns for so many at once, for which so many may wait.
    pub(super) fn new(at_once: usize, queue: usize) -> Arc<Self> {
        Arc::new(Self {
            queue,
            state: Mutex::new(State {
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

    /// Lets so many more generate at once.
    pub(super) fn widen(self: &Arc<Self>, by: usize) {
        for _ in 0..by {
            self.pass();
        }
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state();
        let all = state.waiting.values().flatten();
        all.filter(|waiting| !waiting.is_closed()).count()
    }

    /// Gives the turn to the next one of the next account.
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
                // Who waited has gone: it is passed on here, not by its drop.
                Err(mut turn) => turn.0 = None,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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
        let turns = Turns::new(1, 8);
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
        let turns = Turns::new(1, 1);
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
