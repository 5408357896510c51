//! Accounts, keys and tokens as the server sees them: a lock-free snapshot that follows changes of any
//! process.
//!
//! The snapshot is refreshed a few times per second, and at once when a request has an unknown key.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{Mutex, MutexGuard, Notify, watch};
use tokio::task::AbortHandle;

use super::key::{ApiKey, Secret};
use super::number::number;
use super::record::{Account, AccountId};
use super::store::{AccountStore, StoredKey};
use super::strangers::UnknownKeyLimiter;
use super::token::{StoredWorkerToken, WorkerToken};
use crate::database::{DatabaseResult, Timestamp};

/// Interval between checks for changes.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// The current accounts, keys and tokens.
#[derive(Debug)]
pub struct Directory {
    view: Arc<View>,
    strangers: UnknownKeyLimiter,
    follower: AbortHandle,
    wake: Arc<Notify>,
}

/// The snapshot, and the store from which it is read.
struct View {
    store: Arc<dyn AccountStore>,
    current: ArcSwap<Snapshot>,
    /// Changes with the snapshot.
    changes: watch::Sender<()>,
    /// Version of the snapshot, or an older one. Locked while a snapshot is read, so that an older
    /// snapshot never replaces a newer one.
    seen: Mutex<i64>,
}

/// The accounts, keys and tokens at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    accounts: HashMap<AccountId, Account>,
    by_name: HashMap<String, AccountId>,
    keys: HashMap<[u8; 32], ApiKey>,
    tokens: HashMap<[u8; 32], WorkerToken>,
}

impl Directory {
    /// Reads a store's accounts and follows its changes. Must be called on a tokio runtime.
    pub async fn watch(store: Arc<dyn AccountStore>) -> DatabaseResult<Arc<Self>> {
        let seen = store.version().await?;
        let first = Snapshot::read(&*store).await?;
        let view = Arc::new(View {
            store,
            current: ArcSwap::from_pointee(first),
            changes: watch::Sender::new(()),
            seen: Mutex::new(seen),
        });
        let wake = Arc::new(Notify::new());
        let follower = tokio::spawn(follow(Arc::clone(&view), Arc::clone(&wake)));
        Ok(Arc::new(Self {
            view,
            strangers: UnknownKeyLimiter::new(Instant::now()),
            follower: follower.abort_handle(),
            wake,
        }))
    }

    /// Requests a refresh, even if nothing changed.
    pub fn refresh_soon(&self) {
        self.wake.notify_one();
    }

    /// Returns the current snapshot.
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.view.current.load()
    }

    /// Returns a receiver that changes with the snapshot.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.view.changes.subscribe()
    }

    /// Refreshes the snapshot for an unknown secret of a key or a token. Does nothing if this secret was looked up
    /// recently, or if there are too many look-ups.
    ///
    /// Waits for a look-up that another request began: the key is known after it.
    pub async fn refresh_for(&self, secret: &str) {
        let hash = Secret::hash(secret);
        let seen = self.view.seen.lock().await;
        let snapshot = self.snapshot();
        let is_known = snapshot.keys.contains_key(&hash) || snapshot.tokens.contains_key(&hash);
        drop(snapshot);
        if is_known || !self.strangers.admit(hash, Instant::now()) {
            return;
        }
        if let Err(error) = self.view.refresh(seen).await {
            tracing::warn!(%error, "an unknown key could not be looked up");
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl View {
    /// Replaces the snapshot if something changed since the version that was seen.
    async fn refresh(&self, mut seen: MutexGuard<'_, i64>) -> DatabaseResult<()> {
        // The version is read before the data: the next refresh sees a change in between.
        let now = self.store.version().await?;
        if now != *seen {
            let snapshot = Snapshot::read(&*self.store).await?;
            self.current.store(Arc::new(snapshot));
            self.changes.send_replace(());
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

/// Refreshes the snapshot periodically.
async fn follow(view: Arc<View>, wake: Arc<Notify>) {
    let mut warned = false;
    loop {
        let is_requested = tokio::select! {
            () = tokio::time::sleep(REFRESH_INTERVAL) => false,
            () = wake.notified() => true,
        };
        let mut seen = view.seen.lock().await;
        if is_requested {
            // No store has this version, so the refresh reads everything.
            *seen = i64::MIN;
        }
        match view.refresh(seen).await {
            Ok(()) => warned = false,
            Err(error) if !warned => {
                tracing::warn!(%error, "accounts and keys could not be refreshed");
                warned = true;
            }
            Err(_) => {}
        }
    }
}

impl Snapshot {
    /// Reads the current snapshot of a store.
    pub async fn read(store: &dyn AccountStore) -> DatabaseResult<Self> {
        let (accounts, keys) = (store.accounts().await?, store.keys().await?);
        let mut snapshot = Self::new(accounts, keys);
        let tokens = store.worker_tokens().await?.into_iter();
        let by_hash = |stored: StoredWorkerToken| (stored.hash, stored.token);
        snapshot.tokens = tokens.map(by_hash).collect();
        Ok(snapshot)
    }

    /// Returns the token with this text, whether it is valid or not.
    pub fn worker_token(&self, text: &str) -> Option<&WorkerToken> {
        self.tokens.get(&Secret::hash(text))
    }

    /// Returns all tokens of workers.
    pub fn worker_tokens(&self) -> impl Iterator<Item = &WorkerToken> {
        self.tokens.values()
    }

    /// Creates a snapshot of these accounts and keys.
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

    /// Returns the key with this secret, and its account; `None` if it is unknown, expired or
    /// revoked.
    pub fn authenticate(&self, secret: &str, now: Timestamp) -> Option<(&ApiKey, &Account)> {
        let key = self.keys.get(&Secret::hash(secret))?;
        Some((key, self.accounts.get(&key.account)?)).filter(|_| key.is_valid(now))
    }

    /// Returns the key with this number, and its account; `None` if it is unknown, expired or
    /// revoked.
    pub fn key(&self, id: i64, now: Timestamp) -> Option<(&ApiKey, &Account)> {
        let key = self.keys.values().find(|key| key.id == id)?;
        Some((key, self.accounts.get(&key.account)?)).filter(|_| key.is_valid(now))
    }

    /// Finds an account by name, or by number if the text consists of digits.
    pub fn account(&self, account: &str) -> Option<&Account> {
        let id = match number(account) {
            Some(number) => AccountId(number),
            None => *self.by_name.get(account)?,
        };
        self.accounts.get(&id)
    }

    /// Returns the numbers of all accounts, oldest first.
    pub fn ids(&self) -> Vec<AccountId> {
        let mut ids: Vec<_> = self.accounts.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Finds an account by its number.
    pub fn by_id(&self, id: AccountId) -> Option<&Account> {
        self.accounts.get(&id)
    }
}
