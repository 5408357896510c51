//! The account store in SQLite.
//!
//! Invariant: readers never wait for a change that waits for another process. Such a change runs on
//! a blocking thread, so it does not delay other requests.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::cpu::CpuUsed;
use super::key::{ApiKey, Permissions};
use super::record::{Account, AccountId, Counted, MAX_COUNT, PredictConfig, Usage, UsageKey};
use super::store::{AccountStore, NewConfig, NewKey, StoredKey};
use crate::database::sqlite::Sqlite;
use crate::database::{DatabaseError, Day, Timestamp};

/// Columns of an account.
const ACCOUNT_COLUMNS: &str = "id, name, rps, blocked, created_at";

/// Columns of a predict config.
const CONFIG_COLUMNS: &str = "id, service, name, config, is_default, created_at";

/// Accounts in a database that several processes may change. A call takes microseconds, so it runs
/// on the calling thread.
#[derive(Debug)]
pub(crate) struct SqliteAccounts {
    database: Sqlite,
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
}

impl SqliteAccounts {
    /// Opens the accounts of a database.
    pub(crate) fn open(database: &Sqlite) -> Result<Arc<Self>, DatabaseError> {
        Ok(Arc::new(Self {
            writer: Mutex::new(database.connect()?),
            reader: Mutex::new(database.connect_to_read()?),
            database: database.clone(),
        }))
    }

    fn read<T>(
        &self,
        call: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DatabaseError> {
        self.on(&self.reader, call)
    }

    fn write<T>(
        &self,
        call: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DatabaseError> {
        let write = || self.on(&self.writer, call);
        // Waiting for another process's lock may take seconds, so it runs on a blocking thread.
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(write),
            _ => write(),
        }
    }

    fn on<T>(
        &self,
        connection: &Mutex<Connection>,
        call: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DatabaseError> {
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        call(&connection).map_err(|error| self.database.error(&error))
    }
}

#[async_trait::async_trait]
impl AccountStore for SqliteAccounts {
    async fn create_account(
        &self,
        name: &str,
        rps: u32,
        now: Timestamp,
    ) -> Result<Option<Account>, DatabaseError> {
        let sql = format!(
            "INSERT INTO account (name, rps, created_at) VALUES (?1, ?2, ?3)
            ON CONFLICT (name) DO NOTHING RETURNING {ACCOUNT_COLUMNS}"
        );
        self.write(|connection| {
            let made = connection.query_row(&sql, params![name, rps, now.0], account);
            made.optional()
        })
    }

    async fn change_account(
        &self,
        id: AccountId,
        rps: Option<u32>,
        blocked: Option<bool>,
    ) -> Result<Option<Account>, DatabaseError> {
        let sql = format!(
            "UPDATE account SET rps = coalesce(?2, rps), blocked = coalesce(?3, blocked)
            WHERE id = ?1 RETURNING {ACCOUNT_COLUMNS}"
        );
        self.write(|connection| {
            let changed = connection.query_row(&sql, params![id.0, rps, blocked], account);
            changed.optional()
        })
    }

    async fn accounts(&self) -> Result<Vec<Account>, DatabaseError> {
        self.read(|connection| {
            let sql = format!("SELECT {ACCOUNT_COLUMNS} FROM account ORDER BY id");
            let mut read = connection.prepare_cached(&sql)?;
            read.query_map([], account)?.collect()
        })
    }

    async fn create_key(
        &self,
        key: NewKey,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, DatabaseError> {
        let sql = "INSERT INTO api_key
                (account, name, hash, predict, read, write, created_at, expires_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (account, name) DO NOTHING
            RETURNING id";
        let id = self.write(|connection| {
            let values = params![
                key.account.0,
                key.name,
                key.hash,
                key.permissions.predict,
                key.permissions.read,
                key.permissions.write,
                now.0,
                key.expires_at.map(|at| at.0),
            ];
            let made = connection.query_row(sql, values, |row| row.get(0));
            made.optional()
        })?;
        Ok(id.map(|id| ApiKey {
            id,
            name: key.name,
            account: key.account,
            permissions: key.permissions,
            created_at: now,
            expires_at: key.expires_at,
            revoked_at: None,
        }))
    }

    async fn keys(&self) -> Result<Vec<StoredKey>, DatabaseError> {
        let sql = "SELECT api_key.id, api_key.name, account, predict, read, write,
                api_key.created_at, expires_at, revoked_at, account.name, hash
            FROM api_key JOIN account ON account.id = account ORDER BY api_key.id";
        self.read(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            read.query_map([], key)?.collect()
        })
    }

    async fn revoke_key(&self, key: i64, now: Timestamp) -> Result<(), DatabaseError> {
        let sql = "UPDATE api_key SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
        self.write(|connection| connection.execute(sql, params![key, now.0]).map(drop))
    }

    async fn version(&self) -> Result<i64, DatabaseError> {
        self.read(|connection| {
            let mut read = connection.prepare_cached("SELECT version FROM account_version")?;
            read.query_row([], |row| row.get(0))
        })
    }

    async fn service_number(&self, owner: AccountId, name: &str) -> Result<i64, DatabaseError> {
        let find = "SELECT id FROM service WHERE owner = ?1 AND name = ?2";
        let insert = "INSERT INTO service (owner, name) VALUES (?1, ?2)
            ON CONFLICT (owner, name) DO NOTHING";
        self.write(|connection| {
            let number = || connection.query_row(find, params![owner.0, name], |row| row.get(0));
            if let Some(known) = number().optional()? {
                return Ok(known);
            }
            connection.execute(insert, params![owner.0, name])?;
            number()
        })
    }

    async fn configs(&self, service: i64) -> Result<Vec<PredictConfig>, DatabaseError> {
        let sql =
            format!("SELECT {CONFIG_COLUMNS} FROM predict_config WHERE service = ?1 ORDER BY id");
        self.read(|connection| {
            let mut read = connection.prepare_cached(&sql)?;
            read.query_map([service], config)?.collect()
        })
    }

    async fn create_config(
        &self,
        new: NewConfig,
        now: Timestamp,
    ) -> Result<PredictConfig, DatabaseError> {
        let clear = "UPDATE predict_config SET is_default = 0 WHERE service = ?1";
        let insert = format!(
            "INSERT INTO predict_config (service, name, config, is_default, created_at)
            VALUES (?1, ?2, ?3, ?4, ?5) RETURNING {CONFIG_COLUMNS}"
        );
        self.write(|connection| {
            let change = connection.unchecked_transaction()?;
            if new.is_default {
                change.execute(clear, [new.service])?;
            }
            let values = params![new.service, new.name, new.config, new.is_default, now.0];
            let made = change.query_row(&insert, values, config)?;
            change.commit()?;
            Ok(made)
        })
    }

    async fn delete_config(&self, service: i64, id: i64) -> Result<bool, DatabaseError> {
        let sql = "DELETE FROM predict_config WHERE service = ?1 AND id = ?2";
        self.write(|connection| Ok(connection.execute(sql, params![service, id])? > 0))
    }

    async fn add_usage(&self, used: &[(UsageKey, Counted)]) -> Result<(), DatabaseError> {
        let sql = format!(
            "INSERT INTO usage (account, day, service, requests, prompt_tokens, completion_tokens,
                cached_tokens)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (account, day, service) DO UPDATE SET
                requests = min({MAX_COUNT}, requests + excluded.requests),
                prompt_tokens = min({MAX_COUNT}, prompt_tokens + excluded.prompt_tokens),
                completion_tokens = min({MAX_COUNT}, completion_tokens + excluded.completion_tokens),
                cached_tokens = min({MAX_COUNT}, cached_tokens + excluded.cached_tokens)"
        );
        self.write(|connection| {
            let change = connection.unchecked_transaction()?;
            let mut add = change.prepare_cached(&sql)?;
            for (key, counted) in used {
                let [requests, prompt, completion, cached] = numbers(*counted);
                let (account, day) = (key.account.0, key.day.0);
                add.execute(params![
                    account,
                    day,
                    key.service,
                    requests,
                    prompt,
                    completion,
                    cached
                ])?;
            }
            drop(add);
            change.commit()
        })
    }

    async fn usage(
        &self,
        account: AccountId,
        from: Day,
        to: Day,
    ) -> Result<Vec<Usage>, DatabaseError> {
        let sql = "SELECT day, service.id, service.name, owner.id, owner.name,
                requests, prompt_tokens, completion_tokens, cached_tokens
            FROM usage JOIN service ON service.id = usage.service
                JOIN account AS owner ON owner.id = service.owner
            WHERE usage.account = ?1 AND day BETWEEN ?2 AND ?3
            ORDER BY day, owner.name, service.name";
        self.read(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            read.query_map([account.0, from.0, to.0], usage)?.collect()
        })
    }

    async fn add_cpu(&self, used: &[CpuUsed]) -> Result<(), DatabaseError> {
        let sql = format!(
            "INSERT INTO cpu_usage (account, day, micros) VALUES (?1, ?2, ?3)
            ON CONFLICT (account, day) DO UPDATE SET micros = min({MAX_COUNT}, micros + excluded.micros)"
        );
        self.write(|connection| {
            let change = connection.unchecked_transaction()?;
            let mut add = change.prepare_cached(&sql)?;
            for used in used {
                let micros = i64::try_from(used.micros.min(MAX_COUNT)).unwrap_or(i64::MAX);
                add.execute(params![used.account.0, used.day.0, micros])?;
            }
            drop(add);
            change.commit()
        })
    }

    async fn cpu(
        &self,
        account: Option<AccountId>,
        from: Day,
        to: Day,
    ) -> Result<Vec<CpuUsed>, DatabaseError> {
        let sql = "SELECT account, day, micros FROM cpu_usage
            WHERE day BETWEEN ?2 AND ?3 AND (?1 IS NULL OR account = ?1) ORDER BY day, account";
        self.read(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            let values = params![account.map(|account| account.0), from.0, to.0];
            let used = read.query_map(values, |row| {
                Ok(CpuUsed {
                    account: AccountId(row.get(0)?),
                    day: Day(row.get(1)?),
                    micros: row.get::<_, i64>(2)?.try_into().unwrap_or(0),
                })
            })?;
            used.collect()
        })
    }

    async fn forget_usage(&self, before: Day, most: usize) -> Result<usize, DatabaseError> {
        // Checked first: a change without effect would also wait for other processes.
        let find = "SELECT EXISTS (SELECT 1 FROM usage WHERE day < ?1)
            OR EXISTS (SELECT 1 FROM cpu_usage WHERE day < ?1)";
        let is_there = self.read(|connection| {
            let mut find = connection.prepare_cached(find)?;
            find.query_row([before.0], |row| row.get::<_, bool>(0))
        })?;
        if !is_there {
            return Ok(0);
        }
        let sql = "DELETE FROM usage WHERE (account, day, service) IN (
            SELECT account, day, service FROM usage WHERE day < ?1 ORDER BY day LIMIT ?2)";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let cpu = "DELETE FROM cpu_usage WHERE day < ?1";
        self.write(|connection| {
            // One row per account and day, so there are few.
            connection.execute(cpu, [before.0])?;
            connection.execute(sql, [before.0, most])
        })
    }
}

/// Converts counts to SQLite's integers; none exceeds [`MAX_COUNT`].
fn numbers(counted: Counted) -> [i64; 4] {
    let all = [
        counted.requests,
        counted.prompt,
        counted.completion,
        counted.cached,
    ];
    all.map(|count| i64::try_from(count.min(MAX_COUNT)).unwrap_or(i64::MAX))
}

fn usage(row: &Row<'_>) -> Result<Usage, rusqlite::Error> {
    let count =
        |column| Ok::<_, rusqlite::Error>(row.get::<_, i64>(column)?.try_into().unwrap_or(0));
    Ok(Usage {
        day: Day(row.get(0)?),
        service: row.get(1)?,
        service_name: row.get(2)?,
        owner: AccountId(row.get(3)?),
        owner_name: row.get(4)?,
        counted: Counted {
            requests: count(5)?,
            prompt: count(6)?,
            completion: count(7)?,
            cached: count(8)?,
        },
    })
}

fn account(row: &Row<'_>) -> Result<Account, rusqlite::Error> {
    Ok(Account {
        id: AccountId(row.get(0)?),
        name: row.get(1)?,
        rps: row.get(2)?,
        blocked: row.get(3)?,
        created_at: Timestamp(row.get(4)?),
    })
}

fn key(row: &Row<'_>) -> Result<StoredKey, rusqlite::Error> {
    let moment =
        |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp));
    Ok(StoredKey {
        key: ApiKey {
            id: row.get(0)?,
            name: row.get(1)?,
            account: AccountId(row.get(2)?),
            permissions: Permissions {
                predict: row.get(3)?,
                read: row.get(4)?,
                write: row.get(5)?,
            },
            created_at: Timestamp(row.get(6)?),
            expires_at: moment(7)?,
            revoked_at: moment(8)?,
        },
        account_name: row.get(9)?,
        hash: row.get(10)?,
    })
}

fn config(row: &Row<'_>) -> Result<PredictConfig, rusqlite::Error> {
    Ok(PredictConfig {
        id: row.get(0)?,
        service: row.get(1)?,
        name: row.get(2)?,
        config: row.get(3)?,
        is_default: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
    })
}
