//! Accounts and keys as the server sees them: a snapshot that is never locked, and soon follows every
//! change, of this process or another.

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use rusqlite::Connection;

use super::accounts::{all_accounts, all_keys, version};
use super::{Account, AccountId, ApiKey, Secret};
use crate::database::{Database, DatabaseError, Timestamp};

/// How often is looked for changes.
const INTERVAL: Duration = Duration::from_millis(200);

/// All accounts and keys, now.
#[derive(Debug)]
pub struct Directory {
    current: Arc<ArcSwap<Snapshot>>,
    stop: Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

/// All accounts and keys at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    accounts: HashMap<AccountId, Account>,
    by_name: HashMap<String, AccountId>,
    keys: HashMap<[u8; 32], ApiKey>,
}

impl Directory {
    /// Reads a database's accounts and watches them.
    pub fn watch(database: &Database) -> Result<Arc<Self>, DatabaseError> {
        let connection = database.connect_to_read()?;
        let mut seen = version(&connection).map_err(|error| database.error(&error))?;
        let first = Snapshot::read(&connection).map_err(|error| database.error(&error))?;
        let current = Arc::new(ArcSwap::from_pointee(first));
        let shared = Arc::clone(&current);
        let (stop, stopped) = mpsc::channel();
        let name = "accounts".to_owned();
        let follow = move || {
            let mut warned = false;
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                match refresh(&connection, &mut seen, &shared) {
                    Ok(()) => warned = false,
                    Err(error) if !warned => {
                        tracing::warn!(%error, "accounts and keys cannot be read again");
                        warned = true;
                    }
                    Err(_) => {}
                }
            }
        };
        let thread = thread::Builder::new().name(name).spawn(follow);
        let thread = thread.map_err(|error| DatabaseError::Other {
            path: database.path().display().to_string(),
            reason: format!("no thread can be started: {error}"),
        })?;
        Ok(Arc::new(Self {
            current,
            stop: Mutex::new(Some((stop, thread))),
        }))
    }

    /// What there is now.
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let stop = self
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((stop, thread)) = stop {
            drop(stop);
            // A panic there was told when it happened.
            let _ = thread.join();
        }
    }
}

fn refresh(
    connection: &Connection,
    seen: &mut Option<i64>,
    shared: &ArcSwap<Snapshot>,
) -> Result<(), rusqlite::Error> {
    let now = version(connection)?;
    if now != *seen {
        shared.store(Arc::new(Snapshot::read(connection)?));
        *seen = now;
    }
    Ok(())
}

impl Snapshot {
    fn read(connection: &Connection) -> Result<Self, rusqlite::Error> {
        let mut snapshot = Self::default();
        for account in all_accounts(connection)? {
            snapshot.by_name.insert(account.name.clone(), account.id);
            snapshot.accounts.insert(account.id, account);
        }
        for (key, _, hash) in all_keys(connection)? {
            snapshot.keys.insert(hash, key);
        }
        Ok(snapshot)
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
