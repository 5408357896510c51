//! A task store combined with the state that its callers keep: the accounts' limits and the order
//! of turns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pkgtool_serve::account::{AccountId, AccountStore, Snapshot};
use pkgtool_serve::database::{DatabaseError, Timestamp};
use pkgtool_serve::task::{
    AccountTurns, Caps, ClaimedTask, EnqueueError, Lease, Limit, NewTask, StoredAnswer, TaskId,
    TaskLimits, TaskStore,
};

/// A task store, called the way that the gateway and its queue call it.
pub(crate) struct Limited {
    pub(crate) store: Arc<dyn TaskStore>,
    caps: Caps,
    accounts: Mutex<Arc<Snapshot>>,
    turns: Mutex<Arc<AccountTurns>>,
    paused: Mutex<Vec<(AccountId, String)>>,
}

impl Limited {
    pub(crate) fn new(store: Arc<dyn TaskStore>, accounts: Snapshot, caps: Caps) -> Self {
        Self {
            store,
            caps,
            accounts: Mutex::new(Arc::new(accounts)),
            turns: Mutex::default(),
            paused: Mutex::default(),
        }
    }

    /// Forgets the turns, as the end of a process does.
    pub(crate) fn forget_turns(&self) {
        *lock(&self.turns) = Arc::default();
    }

    /// Leaves the tasks of these services in the queue.
    pub(crate) fn pause(&self, services: &[(AccountId, &str)]) {
        let services = services.iter();
        let services = services.map(|(owner, name)| (*owner, (*name).to_owned()));
        *lock(&self.paused) = services.collect();
    }

    /// Loads the current accounts.
    pub(crate) async fn look(&self, accounts: &dyn AccountStore) {
        let accounts = Snapshot::read(accounts).await.expect("it works");
        *lock(&self.accounts) = Arc::new(accounts);
    }

    /// Returns the limits of the account that makes a request.
    fn limit(&self, account: AccountId) -> Result<Limit, EnqueueError> {
        let accounts = lock(&self.accounts);
        let account = accounts.by_id(account);
        let limit = account.and_then(|account| self.caps.of(account));
        limit.ok_or(EnqueueError::Blocked)
    }

    pub(crate) async fn enqueue(
        &self,
        task: NewTask,
        now: Timestamp,
    ) -> Result<TaskId, EnqueueError> {
        let limit = self.limit(task.caller)?;
        self.store.enqueue(task, limit, now).await
    }

    pub(crate) async fn admit(
        &self,
        account: AccountId,
        now: Timestamp,
    ) -> Result<(), EnqueueError> {
        let limit = self.limit(account)?;
        self.store.admit(account, limit, now).await
    }

    pub(crate) async fn claim(&self, max: usize) -> Result<Vec<ClaimedTask>, DatabaseError> {
        let limits = TaskLimits::new(Arc::clone(&lock(&self.accounts)), self.caps);
        let limits = limits.without(lock(&self.paused).clone());
        let turns = Arc::clone(&lock(&self.turns));
        let claimed = self.store.claim(max, &turns, &limits).await?;
        let mut turns = lock(&self.turns);
        for task in &claimed {
            Arc::make_mut(&mut turns).served(task.caller);
        }
        Ok(claimed)
    }

    pub(crate) async fn complete(
        &self,
        lease: Lease,
        answer: impl Into<StoredAnswer>,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let answer = answer.into();
        self.store.complete(lease, answer, now, expires_at).await
    }

    pub(crate) async fn release(
        &self,
        lease: Lease,
        crashed: bool,
        now: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let attempts = self.caps.attempts;
        self.store.release(lease, crashed, attempts, now).await
    }

    pub(crate) async fn recover(&self, now: Timestamp) -> Result<u64, DatabaseError> {
        self.store.recover(self.caps.attempts, now).await
    }
}

/// Access to the operations that need neither limits nor turns.
impl std::ops::Deref for Limited {
    type Target = dyn TaskStore;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
