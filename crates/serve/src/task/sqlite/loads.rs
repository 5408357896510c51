//! In-memory usage counts of each account: waiting tasks, running tasks and stored data. Limits are
//! checked against them.
//!
//! Invariant: within the writer's transaction the counts equal those in the database. An account's
//! stored data is counted at its first use and kept up to date from then on.

use std::collections::{BTreeSet, HashMap};

use rusqlite::Connection;

use super::rows::{self, RUNNING, WAITING};
use crate::account::AccountId;
use crate::database::Timestamp;
use crate::task::TaskLimits;

/// Maximum age, in milliseconds, of a count of stored data that rejects a request. An older one is
/// recounted first, because other processes delete too.
const MAX_COUNT_AGE_MS: u64 = 10_000;

/// Counts the tasks of an account and the bytes that they use.
pub(super) const COUNT_STORED_SQL: &str =
    "SELECT count(*), coalesce(sum(CASE WHEN status < 2 THEN coalesce(request_bytes, 0)
        ELSE coalesce(answer_size, length(answer), 0) END), 0)
    FROM task INDEXED BY task_of_caller WHERE caller = ?1";

/// The counts of all accounts.
#[derive(Debug, Default)]
pub(super) struct Loads {
    accounts: HashMap<AccountId, Load>,
    /// Accounts with waiting tasks.
    waiting: BTreeSet<AccountId>,
    /// Number of accounts with waiting or running tasks.
    active: usize,
    stored: HashMap<AccountId, StoredData>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) waiting: u32,
    pub(super) running: u32,
}

/// Stored data of an account.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StoredData {
    /// Tasks.
    pub(super) tasks: u64,
    /// Bytes of their bodies and answers.
    pub(super) bytes: u64,
    counted_at: Timestamp,
}

impl Load {
    fn is_active(self) -> bool {
        self.waiting > 0 || self.running > 0
    }
}

impl Loads {
    /// Counts the waiting and running tasks in the database.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut loads = Self::default();
        for (status, sql) in [
            (
                WAITING,
                "SELECT caller, count(*) FROM task INDEXED BY task_waiting WHERE status = 0 GROUP BY caller",
            ),
            (
                RUNNING,
                "SELECT caller, count(*) FROM task INDEXED BY task_running WHERE status = 1 GROUP BY caller",
            ),
        ] {
            let mut read = connection.prepare(sql)?;
            let mut rows = read.query([])?;
            while let Some(row) = rows.next()? {
                let account = AccountId(row.get(0)?);
                let count: u32 = row.get(1)?;
                loads.change(account, |load| {
                    if status == WAITING {
                        load.waiting = count;
                    } else {
                        load.running = count;
                    }
                });
            }
        }
        Ok(loads)
    }

    /// Returns the counts of an account.
    pub(super) fn of(&self, account: AccountId) -> Load {
        self.accounts.get(&account).copied().unwrap_or_default()
    }

    /// Returns the accounts with waiting tasks.
    pub(super) fn waiting(&self) -> impl Iterator<Item = AccountId> {
        self.waiting.iter().copied()
    }

    /// Returns the number of accounts with waiting or running tasks.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Changes the counts of an account.
    pub(super) fn change(&mut self, account: AccountId, change: impl FnOnce(&mut Load)) {
        let load = self.accounts.entry(account).or_default();
        let (waited, was_active) = (load.waiting > 0, load.is_active());
        change(load);
        match (was_active, load.is_active()) {
            (false, true) => self.active += 1,
            (true, false) => self.active -= 1,
            _ => {}
        }
        match (waited, load.waiting > 0) {
            (false, true) => {
                self.waiting.insert(account);
            }
            (true, false) => {
                self.waiting.remove(&account);
            }
            _ => {}
        }
    }

    /// Returns whether a waiting task of an account may run.
    pub(super) fn may_run(&self, account: AccountId, limits: &TaskLimits) -> bool {
        let load = self.of(account);
        load.waiting > 0 && load.running < limits.running(account)
    }

    /// Returns an account's stored data. It is counted at first use, and recounted if `doubt` is
    /// set and the count is older than `MAX_COUNT_AGE_MS`.
    pub(super) fn stored(
        &mut self,
        connection: &Connection,
        account: AccountId,
        doubt: bool,
        now: Timestamp,
    ) -> rusqlite::Result<StoredData> {
        if let Some(known) = self.stored.get(&account)
            && !(doubt && known.counted_at.0.abs_diff(now.0) >= MAX_COUNT_AGE_MS)
        {
            return Ok(*known);
        }
        let mut read = connection.prepare_cached(COUNT_STORED_SQL)?;
        let counted = read.query_row([account.0], |row| {
            Ok(StoredData {
                tasks: rows::number(row, 0)?,
                bytes: rows::number(row, 1)?,
                counted_at: now,
            })
        })?;
        self.stored.insert(account, counted);
        Ok(counted)
    }

    /// Adds tasks and bytes to an account.
    pub(super) fn store(&mut self, account: AccountId, tasks: u64, bytes: u64) {
        if let Some(stored) = self.stored.get_mut(&account) {
            stored.tasks = stored.tasks.saturating_add(tasks);
            stored.bytes = stored.bytes.saturating_add(bytes);
        }
    }

    /// Subtracts tasks and bytes from an account.
    pub(super) fn free(&mut self, account: AccountId, tasks: u64, bytes: u64) {
        if let Some(stored) = self.stored.get_mut(&account) {
            stored.tasks = stored.tasks.saturating_sub(tasks);
            stored.bytes = stored.bytes.saturating_sub(bytes);
        }
    }
}
