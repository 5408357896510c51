//! Accounts and keys as the server sees them: a snapshot that is never locked, and soon follows every
//! change, of this process or another; at once where a key is asked for that is not in it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{Mutex, Notify};
use tokio::task::AbortHandle;

use super::key::{ApiKey, Secret};
use super::number::number;
use super::record::{Account, AccountId};
use super::store::{AccountStore, StoredKey};
use super::strangers::Strangers;
use crate::database::{DatabaseError, Timestamp};

/// How often is looked for changes.
const INTERVAL: Duration = Duration::from_millis(200);

/// All accounts and keys, now.
#[derive(Debug)]
pub struct Directory {
    view: Arc<View>,
    strangers: Strangers,
    follower: AbortHandle,
    wake: Arc<Notify>,
}

/// The snapshot, and what it is read from.
struct View {
    store: Arc<dyn AccountStore>,
    current: ArcSwap<Snapshot>,
    /// The version that the snapshot is of, or a later one's. Held while a snapshot is read: none takes
    /// the place of a newer one.
    seen: Mutex<i64>,
}

/// All accounts and keys at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    accounts: HashMap<AccountId, Account>,
    by_name: HashMap<String, AccountId>,
    keys: HashMap<[u8; 32], ApiKey>,
}

impl Directory {
    /// Reads a store's accounts and watches them. Must be called on a tokio runtime.
    pub async fn watch(store: Arc<dyn AccountStore>) -> Result<Arc<Self>, DatabaseError> {
        let seen = store.version().await?;
        let first = Snapshot::read(&*store).await?;
        let view = Arc::new(View {
            store,
            current: ArcSwap::from_pointee(first),
            seen: Mutex::new(seen),
        });
        let wake = Arc::new(Notify::new());
        let follower = tokio::spawn(follow(Arc::clone(&view), Arc::clone(&wake)));
        Ok(Arc::new(Self {
            view,
            strangers: Strangers::new(Instant::now()),
            follower: follower.abort_handle(),
            wake,
        }))
    }

    /// Reads everything again soon, whether it changed or not.
    pub fn look_again(&self) {
        self.wake.notify_one();
    }

    /// What there is now.
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.view.current.load()
    }

    /// Asks the store whether a secret that is not known has become so, unless it was asked for this one
    /// lately, or too often for others.
    pub async fn look_for(&self, secret: &str) {
        let hash = Secret::hash(secret);
        let is_known = self.snapshot().keys.contains_key(&hash);
        if is_known || !self.strangers.admit(hash, Instant::now()) {
            return;
        }
        if let Err(error) = self.view.refresh().await {
            tracing::warn!(%error, "a key that is not known cannot be looked for");
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl View {
    /// Puts a new snapshot in the place of the old if something changed.
    async fn refresh(&self) -> Result<(), DatabaseError> {
        let mut seen = self.seen.lock().await;
        // Before what it is the version of: a change in between is seen the next time.
        let now = self.store.version().await?;
        if now != *seen {
            let snapshot = Snapshot::read(&*self.store).await?;
            self.current.store(Arc::new(snapshot));
            *seen = now;
        }
        Ok(())
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.current.load();
        f.debug_struct("View")
            .field("accounts", &current.accounts.len())
            .field("keys", &current.keys.len())
            .finish_non_exhaustive()
    }
}

/// Looks for changes again and again.
async fn follow(view: Arc<View>, wake: Arc<Notify>) {
    let mut warned = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            // No store has this version: what it has is read whatever it says.
            () = wake.notified() => *view.seen.lock().await = i64::MIN,
        }
        match view.refresh().await {
            Ok(()) => warned = false,
            Err(error) if !warned => {
                tracing::warn!(%error, "accounts and keys cannot be read again");
                warned = true;
            }
            Err(_) => {}
        }
    }
}

impl Snapshot {
    /// What a store has now.
    pub async fn read(store: &dyn AccountStore) -> Result<Self, DatabaseError> {
        let accounts = store.accounts().await?;
        Ok(Self::new(accounts, store.keys().await?))
    }

    /// These accounts and keys.
    pub fn new(accounts: Vec<Account>, keys: Vec<StoredKey>) -> Self {
        let mut snapshot = Self::default();
        for account in accounts {
            snapshot.by_name.insert(account.name.clone(), account.id);
            snapshot.accounts.insert(account.id, account);
        }
        for stored in keys {
            snapshot.keys.insert(stored.hash, stored.key);
        }
        snapshot
    }

    /// The key of a secret, and its account; `None` if it is not known, has expired or was revoked.
    pub fn authenticate(&self, secret: &str, now: Timestamp) -> Option<(&ApiKey, &Account)> {
        let key = self.keys.get(&Secret::hash(secret))?;
        let expired = key.expires_at.is_some_and(|at| at <= now);
        if expired || key.revoked_at.is_some() {
            return None;
        }
        Some((key, self.accounts.get(&key.account)?))
    }

    /// The account of this name, or of this number if it is digits only.
    pub fn account(&self, account: &str) -> Option<&Account> {
        let id = match number(account) {
            Some(number) => AccountId(number),
            None => *self.by_name.get(account)?,
        };
        self.accounts.get(&id)
    }

    /// The numbers of all accounts, the oldest first.
    pub fn ids(&self) -> Vec<AccountId> {
        let mut ids: Vec<_> = self.accounts.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The account of this number.
    pub fn by_id(&self, id: AccountId) -> Option<&Account> {
        self.accounts.get(&id)
    }
}
