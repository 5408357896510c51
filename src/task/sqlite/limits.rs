//! What accounts may do, as the database says; read again when it changed there.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::account::AccountId;

/// How long limits are taken as they were read, where nothing else reads them again.
const FRESH: Duration = Duration::from_millis(500);

/// An account's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) rps: u32,
    pub(super) blocked: bool,
}

/// The limits of all accounts.
#[derive(Debug, Default)]
pub(super) struct Limits {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    version: Option<i64>,
    read_at: Option<Instant>,
    accounts: HashMap<AccountId, Limit>,
}

impl Limits {
    /// An account's limits, if it exists.
    pub(super) fn of(&self, account: AccountId) -> Option<Limit> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.accounts.get(&account).copied()
    }

    /// Whether they were looked at not long ago.
    pub(super) fn are_fresh(&self) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.read_at.is_some_and(|at| at.elapsed() < FRESH)
    }

    /// Reads them again, if they changed.
    pub(super) fn refresh(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let mut read = connection.prepare_cached("SELECT version FROM account_version")?;
        let version: i64 = read.query_row([], |row| row.get(0))?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.version != Some(version) {
            let sql = "SELECT id, rps, blocked FROM account";
            let mut read = connection.prepare_cached(sql)?;
            let rows = read.query_map([], |row| {
                let limit = Limit {
                    rps: row.get(1)?,
                    blocked: row.get(2)?,
                };
                Ok((AccountId(row.get(0)?), limit))
            })?;
            known.accounts = rows.collect::<Result<_, _>>()?;
            known.version = Some(version);
        }
        known.read_at = Some(Instant::now());
        Ok(())
    }
}
