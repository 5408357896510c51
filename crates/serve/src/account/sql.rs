//! The account store in a database of either kind.

use super::cpu::CpuUsed;
use super::key::{ApiKey, Permissions};
use super::record::{
    Account, AccountId, Counted, Login, MAX_COUNT, PredictConfig, Usage, UsageKey,
};
use super::store::{AccountStore, NewConfig, NewKey, NewLogin, StoredKey};
use super::token::{NewWorkerToken, StoredWorkerToken, WorkerToken};
use crate::database::sql::{SqlRow, values};
use crate::database::tables::SqlDatabase;
use crate::database::{DatabaseError, DatabaseResult, Day, Timestamp};

/// Columns of an account.
const ACCOUNT_COLUMNS: &str = "id, name, rps, blocked, created_at";

/// Columns of a predict config.
const CONFIG_COLUMNS: &str = "id, service, name, config, is_default, created_at";

/// Accounts in a database that several processes may change.
#[derive(Debug)]
pub(crate) struct SqlAccounts(pub(crate) SqlDatabase);

#[async_trait::async_trait]
impl AccountStore for SqlAccounts {
    fn is_shared(&self) -> bool {
        self.0.server().is_some()
    }

    async fn create_account(
        &self,
        name: &str,
        rps: u32,
        now: Timestamp,
    ) -> DatabaseResult<Option<Account>> {
        let sql = format!(
            "INSERT INTO account (name, rps, created_at) VALUES (?1, ?2, ?3)
            ON CONFLICT (name) DO NOTHING RETURNING {ACCOUNT_COLUMNS}"
        );
        self.0
            .changed_row(&sql, &values![name, rps, now.0], account)
    }

    async fn change_account(
        &self,
        id: AccountId,
        rps: Option<u32>,
        blocked: Option<bool>,
    ) -> DatabaseResult<Option<Account>> {
        let sql = format!(
            "UPDATE account SET rps = coalesce(?2, rps), blocked = coalesce(?3, blocked)
            WHERE id = ?1 RETURNING {ACCOUNT_COLUMNS}"
        );
        let values = values![id.0, rps, blocked];
        self.0.changed_row(&sql, &values, account)
    }

    async fn accounts(&self) -> DatabaseResult<Vec<Account>> {
        let sql = format!("SELECT {ACCOUNT_COLUMNS} FROM account ORDER BY id");
        self.0.rows(&sql, &[], account)
    }

    async fn create_key(&self, key: NewKey, now: Timestamp) -> DatabaseResult<Option<ApiKey>> {
        let sql = "INSERT INTO api_key
                (account, name, hash, predict, read, write, created_at, expires_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (account, name) DO NOTHING
            RETURNING id";
        let permissions = key.permissions;
        let values = values![
            key.account.0,
            &key.name,
            key.hash,
            permissions.predict,
            permissions.read,
            permissions.write,
            now.0,
            key.expires_at.map(|at| at.0),
        ];
        let id = self.0.changed_row(sql, &values, |row| row.get(0))?;
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

    async fn keys(&self) -> DatabaseResult<Vec<StoredKey>> {
        let sql = "SELECT api_key.id, api_key.name, account, predict, read, write,
                api_key.created_at, expires_at, revoked_at, account.name, hash
            FROM api_key JOIN account ON account.id = account ORDER BY api_key.id";
        self.0.rows(sql, &[], key)
    }

    async fn revoke_key(&self, key: i64, now: Timestamp) -> DatabaseResult<()> {
        let sql = "UPDATE api_key SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
        self.0.change(sql, &values![key, now.0]).map(drop)
    }

    async fn create_worker_token(
        &self,
        new: NewWorkerToken,
        now: Timestamp,
    ) -> DatabaseResult<Option<WorkerToken>> {
        let free = "DELETE FROM worker_token
            WHERE account = ?1 AND service = ?2 AND name = ?3 AND revoked_at IS NOT NULL";
        let insert =
            "INSERT INTO worker_token (account, service, name, hash, created_at, expires_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (account, service, name) DO NOTHING
            RETURNING id";
        let expires_at = new.expires_at.map(|at| at.0);
        let values = values![
            new.account.0,
            &new.service,
            &new.name,
            new.hash,
            now.0,
            expires_at
        ];
        let same_name = values![new.account.0, &new.service, &new.name];
        let id = self.0.write(|connection| {
            connection.execute(free, &same_name)?;
            connection.row(insert, &values, |row| row.get(0))
        })?;
        Ok(id.map(|id| WorkerToken {
            id,
            name: new.name,
            account: new.account,
            service: new.service,
            created_at: now,
            expires_at: new.expires_at,
            revoked_at: None,
        }))
    }

    async fn worker_tokens(&self) -> DatabaseResult<Vec<StoredWorkerToken>> {
        let sql = "SELECT worker_token.id, worker_token.name, account, service,
                worker_token.created_at, expires_at, revoked_at, account.name, hash
            FROM worker_token JOIN account ON account.id = account ORDER BY worker_token.id";
        self.0.rows(sql, &[], worker_token)
    }

    async fn revoke_worker_token(&self, token: i64, now: Timestamp) -> DatabaseResult<()> {
        let sql = "UPDATE worker_token SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
        self.0.change(sql, &values![token, now.0]).map(drop)
    }

    async fn create_login(&self, new: NewLogin, most: usize, now: Timestamp) -> DatabaseResult<()> {
        let insert = "INSERT INTO login (hash, is_code, key, created_at, expires_at)
            VALUES (?1, ?2, ?3, ?4, ?5)";
        let oldest = "DELETE FROM login WHERE hash IN (
            SELECT hash FROM login WHERE is_code = ?1 AND key IS NOT DISTINCT FROM ?2
            ORDER BY created_at DESC LIMIT 9223372036854775807 OFFSET ?3)";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.0.write(|connection| {
            connection.execute("DELETE FROM login WHERE expires_at <= ?1", &values![now.0])?;
            let Login { key, expires_at } = new.login;
            let values = values![new.hash, new.is_code, key, now.0, expires_at.0];
            connection.execute(insert, &values)?;
            connection.execute(oldest, &values![new.is_code, key, most])?;
            Ok(())
        })
    }

    async fn login(
        &self,
        hash: [u8; 32],
        is_code: bool,
        now: Timestamp,
    ) -> DatabaseResult<Option<Login>> {
        let sql = "SELECT key, expires_at FROM login
            WHERE hash = ?1 AND is_code = ?2 AND expires_at > ?3";
        self.0.row(sql, &values![hash, is_code, now.0], |row| {
            Ok(Login {
                key: row.get(0)?,
                expires_at: Timestamp(row.get(1)?),
            })
        })
    }

    async fn delete_login(&self, hash: [u8; 32]) -> DatabaseResult<bool> {
        let sql = "DELETE FROM login WHERE hash = ?1";
        Ok(self.0.change(sql, &values![hash])? > 0)
    }

    async fn version(&self) -> DatabaseResult<i64> {
        let sql = "SELECT version FROM account_version";
        let version = self.0.row(sql, &[], |row| row.get(0))?;
        Ok(version.unwrap_or_default())
    }

    async fn service_number(&self, owner: AccountId, name: &str) -> DatabaseResult<i64> {
        let find = "SELECT id FROM service WHERE owner = ?1 AND name = ?2";
        let insert = "INSERT INTO service (owner, name) VALUES (?1, ?2)
            ON CONFLICT (owner, name) DO NOTHING";
        let key = values![owner.0, name];
        if let Some(known) = self.0.row(find, &key, |row| row.get(0))? {
            return Ok(known);
        }
        self.0.write(|connection| {
            connection.execute(insert, &key)?;
            connection.only_row(find, &key, |row| row.get(0))
        })
    }

    async fn configs(&self, service: i64) -> DatabaseResult<Vec<PredictConfig>> {
        let sql =
            format!("SELECT {CONFIG_COLUMNS} FROM predict_config WHERE service = ?1 ORDER BY id");
        self.0.rows(&sql, &values![service], config)
    }

    async fn create_config(&self, new: NewConfig, now: Timestamp) -> DatabaseResult<PredictConfig> {
        let clear = "UPDATE predict_config SET is_default = 0 WHERE service = ?1";
        let insert = format!(
            "INSERT INTO predict_config (service, name, config, is_default, created_at)
            VALUES (?1, ?2, ?3, ?4, ?5) RETURNING {CONFIG_COLUMNS}"
        );
        let values = values![new.service, &new.name, &new.config, new.is_default, now.0];
        self.0.write(|connection| {
            if new.is_default {
                connection.execute(clear, &values![new.service])?;
            }
            connection.only_row(&insert, &values, config)
        })
    }

    async fn delete_config(&self, service: i64, id: i64) -> DatabaseResult<bool> {
        let sql = "DELETE FROM predict_config WHERE service = ?1 AND id = ?2";
        Ok(self.0.change(sql, &values![service, id])? > 0)
    }

    async fn add_usage(&self, used: &[(UsageKey, Counted)]) -> DatabaseResult<()> {
        let sql = format!(
            "INSERT INTO usage (account, day, service, requests, prompt_tokens, completion_tokens,
                cached_tokens)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (account, day, service) DO UPDATE SET
                requests = {}, prompt_tokens = {}, completion_tokens = {}, cached_tokens = {}",
            sum("usage", "requests"),
            sum("usage", "prompt_tokens"),
            sum("usage", "completion_tokens"),
            sum("usage", "cached_tokens"),
        );
        self.0.write(|connection| {
            for (key, counted) in used {
                let [requests, prompt, completion, cached] = numbers(*counted);
                let (account, day) = (key.account.0, key.day.0);
                let values = values![
                    account,
                    day,
                    key.service,
                    requests,
                    prompt,
                    completion,
                    cached
                ];
                connection.execute(&sql, &values)?;
            }
            Ok(())
        })
    }

    async fn usage(&self, account: AccountId, from: Day, to: Day) -> DatabaseResult<Vec<Usage>> {
        let sql = "SELECT day, service.id, service.name, owner.id, owner.name,
                requests, prompt_tokens, completion_tokens, cached_tokens
            FROM usage JOIN service ON service.id = usage.service
                JOIN account AS owner ON owner.id = service.owner
            WHERE usage.account = ?1 AND day BETWEEN ?2 AND ?3
            ORDER BY day, owner.name, service.name";
        self.0.rows(sql, &values![account.0, from.0, to.0], usage)
    }

    async fn add_cpu(&self, used: &[CpuUsed]) -> DatabaseResult<()> {
        let sql = format!(
            "INSERT INTO cpu_usage (account, day, micros) VALUES (?1, ?2, ?3)
            ON CONFLICT (account, day) DO UPDATE SET micros = {}",
            sum("cpu_usage", "micros"),
        );
        self.0.write(|connection| {
            for used in used {
                let micros = i64::try_from(used.micros.min(MAX_COUNT)).unwrap_or(i64::MAX);
                let values = values![used.account.0, used.day.0, micros];
                connection.execute(&sql, &values)?;
            }
            Ok(())
        })
    }

    async fn cpu(
        &self,
        account: Option<AccountId>,
        from: Day,
        to: Day,
    ) -> DatabaseResult<Vec<CpuUsed>> {
        let sql = "SELECT account, day, micros FROM cpu_usage
            WHERE day BETWEEN ?2 AND ?3 AND (?1 IS NULL OR account = ?1) ORDER BY day, account";
        let values = values![account.map(|account| account.0), from.0, to.0];
        self.0.rows(sql, &values, |row| {
            Ok(CpuUsed {
                account: AccountId(row.get(0)?),
                day: Day(row.get(1)?),
                micros: row.get::<i64>(2)?.try_into().unwrap_or(0),
            })
        })
    }

    async fn forget_usage(&self, before: Day, most: usize) -> DatabaseResult<usize> {
        // Checked first: a change without effect would also wait for other processes.
        let find = "SELECT EXISTS (SELECT 1 FROM usage WHERE day < ?1)
            OR EXISTS (SELECT 1 FROM cpu_usage WHERE day < ?1)";
        let is_there = self.0.row(find, &values![before.0], |row| row.get(0))?;
        if is_there != Some(true) {
            return Ok(0);
        }
        let sql = "DELETE FROM usage WHERE (account, day, service) IN (
            SELECT account, day, service FROM usage WHERE day < ?1 ORDER BY day LIMIT ?2)";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let cpu = "DELETE FROM cpu_usage WHERE day < ?1";
        self.0.write(|connection| {
            // One row per account and day, so there are few.
            connection.execute(cpu, &values![before.0])?;
            connection.execute(sql, &values![before.0, most])
        })
    }
}

/// Returns the sum of a count that is stored and one that is added, at most [`MAX_COUNT`].
fn sum(table: &str, column: &str) -> String {
    let sum = format!("{table}.{column} + excluded.{column}");
    format!("CASE WHEN {sum} < {MAX_COUNT} THEN {sum} ELSE {MAX_COUNT} END")
}

/// Converts counts to integers of the database; none exceeds [`MAX_COUNT`].
fn numbers(counted: Counted) -> [i64; 4] {
    let all = [
        counted.requests,
        counted.prompt,
        counted.completion,
        counted.cached,
    ];
    all.map(|count| i64::try_from(count.min(MAX_COUNT)).unwrap_or(i64::MAX))
}

fn usage(row: &SqlRow) -> DatabaseResult<Usage> {
    let count = |column| Ok::<_, DatabaseError>(row.get::<i64>(column)?.try_into().unwrap_or(0));
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

fn account(row: &SqlRow) -> DatabaseResult<Account> {
    Ok(Account {
        id: AccountId(row.get(0)?),
        name: row.get(1)?,
        rps: row.get(2)?,
        blocked: row.get(3)?,
        created_at: Timestamp(row.get(4)?),
    })
}

fn moment(row: &SqlRow, column: usize) -> DatabaseResult<Option<Timestamp>> {
    Ok(row.get::<Option<i64>>(column)?.map(Timestamp))
}

fn worker_token(row: &SqlRow) -> DatabaseResult<StoredWorkerToken> {
    Ok(StoredWorkerToken {
        token: WorkerToken {
            id: row.get(0)?,
            name: row.get(1)?,
            account: AccountId(row.get(2)?),
            service: row.get(3)?,
            created_at: Timestamp(row.get(4)?),
            expires_at: moment(row, 5)?,
            revoked_at: moment(row, 6)?,
        },
        account_name: row.get(7)?,
        hash: row.get(8)?,
    })
}

fn key(row: &SqlRow) -> DatabaseResult<StoredKey> {
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
            expires_at: moment(row, 7)?,
            revoked_at: moment(row, 8)?,
        },
        account_name: row.get(9)?,
        hash: row.get(10)?,
    })
}

fn config(row: &SqlRow) -> DatabaseResult<PredictConfig> {
    Ok(PredictConfig {
        id: row.get(0)?,
        service: row.get(1)?,
        name: row.get(2)?,
        config: row.get(3)?,
        is_default: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
    })
}
