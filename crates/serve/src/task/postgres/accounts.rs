//! The counts of accounts, which limits are checked against.
//!
//! Invariant: whoever changes an account's tasks holds its row until the end of the transaction.

use std::collections::{BTreeMap, BTreeSet};

use deadpool_postgres::Transaction;
use tokio_postgres::Row;

use super::rows::{self, Fault};
use crate::account::AccountId;
use crate::task::rate::RateWindow;

/// The counts of an account.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AccountLoad {
    pub(super) waiting: u64,
    pub(super) running: u64,
    /// Stored tasks.
    pub(super) tasks: u64,
    /// Bytes of their bodies and answers.
    pub(super) bytes: u64,
}

/// The counts of accounts whose rows a transaction holds.
pub(super) type AccountLoads = BTreeMap<AccountId, AccountLoad>;

const HOLD: &str = "SELECT account, waiting, running, tasks, bytes FROM account_load
    WHERE account = ANY($1) ORDER BY account FOR UPDATE";

const STORE: &str = "UPDATE account_load AS known
    SET waiting = new.waiting, running = new.running, tasks = new.tasks, bytes = new.bytes
    FROM unnest($1::BIGINT[], $2::BIGINT[], $3::BIGINT[], $4::BIGINT[], $5::BIGINT[])
        AS new (account, waiting, running, tasks, bytes)
    WHERE known.account = new.account";

/// Reads the counts of an account from five columns.
pub(super) fn read(row: &Row) -> Result<(AccountId, AccountLoad), Fault> {
    let load = AccountLoad {
        waiting: rows::number(row, 1)?,
        running: rows::number(row, 2)?,
        tasks: rows::number(row, 3)?,
        bytes: rows::number(row, 4)?,
    };
    Ok((AccountId(row.try_get(0)?), load))
}

/// Takes the rows of accounts, and makes those that are missing.
pub(super) async fn hold(
    transaction: &Transaction<'_>,
    accounts: &BTreeSet<AccountId>,
) -> Result<AccountLoads, Fault> {
    let numbers: Vec<i64> = accounts.iter().map(|account| account.0).collect();
    let hold = transaction.prepare_cached(HOLD).await?;
    let mut found = transaction.query(&hold, &[&numbers]).await?;
    if found.len() < numbers.len() {
        let make =
            "INSERT INTO account_load (account) SELECT unnest($1::BIGINT[]) ON CONFLICT DO NOTHING";
        transaction.execute(make, &[&numbers]).await?;
        found = transaction.query(&hold, &[&numbers]).await?;
    }
    found.iter().map(read).collect()
}

/// Stores the counts of accounts that this transaction holds.
pub(super) async fn store(
    transaction: &Transaction<'_>,
    loads: &AccountLoads,
) -> Result<u64, Fault> {
    let column = |of: fn(&AccountLoad) -> u64| -> Vec<i64> {
        loads.values().map(|load| rows::signed(of(load))).collect()
    };
    let accounts: Vec<i64> = loads.keys().map(|account| account.0).collect();
    let store = transaction.prepare_cached(STORE).await?;
    let counts = [
        column(|load| load.waiting),
        column(|load| load.running),
        column(|load| load.tasks),
        column(|load| load.bytes),
    ];
    let [waiting, running, tasks, bytes] = &counts;
    let values: &[&(dyn tokio_postgres::types::ToSql + Sync)] =
        &[&accounts, waiting, running, tasks, bytes];
    transaction.execute(&store, values).await
}

/// The requests of accounts in the last second, whose rows a transaction holds.
pub(super) type RateWindows = BTreeMap<AccountId, RateWindow>;

/// Takes the requests of accounts, given with the number of requests per second that each may make.
pub(super) async fn hold_rates(
    transaction: &Transaction<'_>,
    limits: &BTreeMap<AccountId, u32>,
) -> Result<RateWindows, Fault> {
    if limits.is_empty() {
        return Ok(RateWindows::new());
    }
    let numbers: Vec<i64> = limits.keys().map(|account| account.0).collect();
    let hold = "SELECT account, recent FROM account_rate WHERE account = ANY($1) ORDER BY account FOR UPDATE";
    let hold = transaction.prepare_cached(hold).await?;
    let mut found = transaction.query(&hold, &[&numbers]).await?;
    if found.len() < numbers.len() {
        let make = "INSERT INTO account_rate (account, recent) SELECT unnest($1::BIGINT[]), ''
            ON CONFLICT DO NOTHING";
        transaction.execute(make, &[&numbers]).await?;
        found = transaction.query(&hold, &[&numbers]).await?;
    }
    let read = |row: &Row| {
        let account = AccountId(row.try_get(0)?);
        let limit = limits.get(&account).copied().unwrap_or(0);
        Ok((account, RateWindow::decode(row.try_get(1)?, limit)))
    };
    found.iter().map(read).collect()
}

/// Stores the requests of accounts that this transaction holds.
pub(super) async fn store_rates(
    transaction: &Transaction<'_>,
    windows: &RateWindows,
) -> Result<u64, Fault> {
    if windows.is_empty() {
        return Ok(0);
    }
    let (accounts, recent): (Vec<i64>, Vec<Vec<u8>>) = windows
        .iter()
        .map(|(account, window)| (account.0, window.encode()))
        .unzip();
    let store = "UPDATE account_rate AS known SET recent = new.recent
        FROM unnest($1::BIGINT[], $2::BYTEA[]) AS new (account, recent) WHERE known.account = new.account";
    let store = transaction.prepare_cached(store).await?;
    transaction.execute(&store, &[&accounts, &recent]).await
}
