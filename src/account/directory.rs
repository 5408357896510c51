//! Accounts and keys as the server sees them: a snapshot that is never locked, and soon follows every
//! change, of this process or another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::key::{ApiKey, Secret};
use super::record::{Account, AccountId};
use super::store::{AccountStore, StoredKey};
use crate::database::{DatabaseError, Timestamp};

/// How often is looked for changes.
const INTERVAL: Duration = Duration::from_millis(200);

/// All accounts and keys, now.
#[derive(Debug)]
pub struct Directory {
    current: Arc<ArcSwap<Snapshot>>,
    follower: AbortHandle,
    wake: Arc<Notify>,
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
        let current = Arc::new(ArcSwap::from_pointee(first));
        let wake = Arc::new(Notify::new());
        let following = follow(store, seen, Arc::clone(&current), Arc::clone(&wake));
        let follower = tokio::spawn(following);
        Ok(Arc::new(Self {
            current,
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
        self.current.load()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// Puts a new snapshot in the place of the old whenever something changed.
async fn follow(
    store: Arc<dyn AccountStore>,
    mut seen: i64,
    current: Arc<ArcSwap<Snapshot>>,
    wake: Arc<Notify>,
) {
    let mut warned = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            // No store has this version: what it has is read whatever it says.
            () = wake.notified() => seen = i64::MIN,
        }
        match refresh(&*store, &mut seen, &current).await {
            Ok(()) => warned = false,
            Err(error) if !warned => {
                tracing::warn!(%error, "accounts and keys cannot be read again");
                warned = true;
            }
            Err(_) => {}
        }
    }
}

async fn refresh(
    store: &dyn AccountStore,
    seen: &mut i64,
    current: &ArcSwap<Snapshot>,
) -> Result<(), DatabaseError> {
    // Before what it is the version of: a change in between is seen the next time.
    let now = store.version().await?;
    if now != *seen {
        current.store(Arc::new(Snapshot::read(store).await?));
        *seen = now;
    }
    Ok(())
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
        let id = match account.parse() {
            Ok(number) if account.bytes().all(|byte| byte.is_ascii_digit()) => AccountId(number),
            _ => *self.by_name.get(account)?,
        };
        self.accounts.get(&id)
    }

    /// The account of this number.
    pub fn by_id(&self, id: AccountId) -> Option<&Account> {
        self.accounts.get(&id)
    }
}
