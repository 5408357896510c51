//! Accounts and keys in the database.

use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Account, AccountId, ApiKey, Permissions, Secret};
use crate::database::{Database, DatabaseError, Timestamp};

/// Longest name of an account or a key.
const LONGEST_NAME: usize = 64;

/// Accounts and keys.
#[derive(Debug)]
pub struct Accounts {
    database: Database,
    connection: Mutex<Connection>,
}

/// Why an account or a key was not made or changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AccountError {
    /// The name can't be one.
    #[error(
        "`{name}` can be no name: 1 to {LONGEST_NAME} letters, digits, `-`, `_` and `.`, and not \
         digits only"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// There is one of this name.
    #[error("there is {what} `{name}` already")]
    Exists {
        /// `an account` or `a key`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// There is none.
    #[error("there is no {what} `{name}`; `pkgtool {what}s list` shows what there is")]
    Unknown {
        /// `account` or `key`.
        what: &'static str,
        /// What was looked for.
        name: String,
    },
    /// The name is that of keys of several accounts.
    #[error("several accounts have a key `{name}`; say whose with --account, or give its number")]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// The permissions are none.
    #[error("a key needs at least one permission: predict, read, write")]
    NoPermission,
    /// There is no randomness.
    #[error("the system gives no random bits: {0}")]
    Random(String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl Accounts {
    /// The accounts of a database.
    pub fn open(database: &Database) -> Result<Self, DatabaseError> {
        Ok(Self {
            connection: Mutex::new(database.connect()?),
            database: database.clone(),
        })
    }

    /// Makes an account.
    pub fn create(&self, name: &str, rps: u32, now: Timestamp) -> Result<Account, AccountError> {
        check_name(name)?;
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(AccountError::Name {
                name: name.to_owned(),
            });
        }
        let made = self.with(|connection| {
            let sql = "INSERT INTO account (name, rps, created_at) VALUES (?1, ?2, ?3)
                ON CONFLICT (name) DO NOTHING";
            let inserted = connection.execute(sql, params![name, rps, now.0])?;
            Ok((inserted == 1).then(|| connection.last_insert_rowid()))
        })?;
        match made {
            Some(id) => Ok(Account {
                id: AccountId(id),
                name: name.to_owned(),
                rps,
                blocked: false,
                created_at: now,
            }),
            None => Err(AccountError::Exists {
                what: "an account",
                name: name.to_owned(),
            }),
        }
    }

    /// Changes an account, named by name or number.
    pub fn set(
        &self,
        account: &str,
        rps: Option<u32>,
        blocked: Option<bool>,
    ) -> Result<Account, AccountError> {
        let found = self.find(account)?;
        self.with(|connection| {
            let sql = "UPDATE account SET rps = ?2, blocked = ?3 WHERE id = ?1";
            let rps = rps.unwrap_or(found.rps);
            let blocked = blocked.unwrap_or(found.blocked);
            connection.execute(sql, params![found.id.0, rps, blocked])
        })?;
        self.find(account)
    }

    /// All accounts, the oldest first.
    pub fn list(&self) -> Result<Vec<Account>, DatabaseError> {
        self.with(all_accounts)
    }

    /// Makes a key and gives its secret, which nobody can read again.
    pub fn create_key(
        &self,
        account: &str,
        name: &str,
        permissions: Permissions,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(ApiKey, Secret), AccountError> {
        check_name(name)?;
        if permissions == Permissions::default() {
            return Err(AccountError::NoPermission);
        }
        let account = self.find(account)?.id;
        let secret = Secret::random().map_err(AccountError::Random)?;
        let made = self.with(|connection| {
            let sql = "INSERT INTO api_key
                    (account, name, hash, predict, read, write, created_at, expires_at)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (account, name) DO NOTHING";
            let inserted = connection.execute(
                sql,
                params![
                    account.0,
                    name,
                    Secret::hash(secret.reveal()),
                    permissions.predict,
                    permissions.read,
                    permissions.write,
                    now.0,
                    expires_at.map(|at| at.0),
                ],
            )?;
            Ok((inserted == 1).then(|| connection.last_insert_rowid()))
        })?;
        let Some(id) = made else {
            return Err(AccountError::Exists {
                what: "a key",
                name: name.to_owned(),
            });
        };
        let key = ApiKey {
            id,
            name: name.to_owned(),
            account,
            permissions,
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        Ok((key, secret))
    }

    /// The keys of an account or of all, the oldest first, each with its account's name.
    pub fn keys(&self, account: Option<&str>) -> Result<Vec<(ApiKey, String)>, AccountError> {
        let account = account.map(|account| self.find(account)).transpose()?;
        let keys = self.with(all_keys)?;
        let of = |key: &ApiKey| {
            account
                .as_ref()
                .is_none_or(|account| account.id == key.account)
        };
        let keys = keys.into_iter().filter(|(key, ..)| of(key));
        Ok(keys.map(|(key, name, _)| (key, name)).collect())
    }

    /// Revokes a key, named by name or number.
    pub fn revoke(
        &self,
        account: Option<&str>,
        key: &str,
        now: Timestamp,
    ) -> Result<ApiKey, AccountError> {
        let number: Option<i64> = key.parse().ok();
        let mut found: Vec<ApiKey> = self
            .keys(account)?
            .into_iter()
            .map(|(key, _)| key)
            .filter(|known| known.name == key || number == Some(known.id))
            .collect();
        let name = key.to_owned();
        let Some(mut key) = found.pop() else {
            return Err(AccountError::Unknown { what: "key", name });
        };
        if !found.is_empty() {
            return Err(AccountError::Ambiguous { name });
        }
        if key.revoked_at.is_none() {
            self.with(|connection| {
                let sql = "UPDATE api_key SET revoked_at = ?2 WHERE id = ?1";
                connection.execute(sql, params![key.id, now.0])
            })?;
            key.revoked_at = Some(now);
        }
        Ok(key)
    }

    fn find(&self, account: &str) -> Result<Account, AccountError> {
        let number: Option<i64> = account.parse().ok();
        let all = self.list()?;
        let found = all.into_iter().find(|known| match number {
            Some(number) => known.id.0 == number,
            None => known.name == account,
        });
        found.ok_or_else(|| AccountError::Unknown {
            what: "account",
            name: account.to_owned(),
        })
    }

    fn with<T>(
        &self,
        call: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DatabaseError> {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        call(&connection).map_err(|error| self.database.error(&error))
    }
}

/// All accounts, the oldest first.
pub(super) fn all_accounts(connection: &Connection) -> Result<Vec<Account>, rusqlite::Error> {
    let sql = "SELECT id, name, rps, blocked, created_at FROM account ORDER BY id";
    let mut read = connection.prepare_cached(sql)?;
    let account = |row: &Row<'_>| {
        Ok(Account {
            id: AccountId(row.get(0)?),
            name: row.get(1)?,
            rps: row.get(2)?,
            blocked: row.get(3)?,
            created_at: Timestamp(row.get(4)?),
        })
    };
    read.query_map([], account)?.collect()
}

/// A key, its account's name, the hash of its secret.
pub(super) type KeyRow = (ApiKey, String, [u8; 32]);

/// All keys, the oldest first.
pub(super) fn all_keys(connection: &Connection) -> Result<Vec<KeyRow>, rusqlite::Error> {
    let sql = "SELECT api_key.id, api_key.name, account, predict, read, write,
            api_key.created_at, expires_at, revoked_at, account.name, hash
        FROM api_key JOIN account ON account.id = account ORDER BY api_key.id";
    let mut read = connection.prepare_cached(sql)?;
    let key = |row: &Row<'_>| {
        let moment =
            |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp));
        let key = ApiKey {
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
        };
        Ok((key, row.get(9)?, row.get(10)?))
    };
    read.query_map([], key)?.collect()
}

/// The number that changes with accounts and keys.
pub(super) fn version(connection: &Connection) -> Result<Option<i64>, rusqlite::Error> {
    let mut read = connection.prepare_cached("SELECT version FROM account_version")?;
    read.query_row([], |row| row.get(0)).optional()
}

fn check_name(name: &str) -> Result<(), AccountError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(AccountError::Name {
        name: name.to_owned(),
    })
}
