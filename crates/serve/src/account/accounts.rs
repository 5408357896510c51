//! Accounts and keys for the command line: checks names, and creates, changes and finds them.

use std::sync::Arc;

use super::key::{ApiKey, Permissions, Secret};
use super::number::number;
use super::record::{Account, AccountId};
use super::store::{AccountStore, NewKey};
use super::token::{ANY_SERVICE, NewWorkerToken, WorkerToken};
use crate::database::{DatabaseError, DatabaseResult, Timestamp};

/// Maximum length of the name of an account or key.
const MAX_NAME_LENGTH: usize = 64;

/// Manages the accounts and keys of a store.
pub struct Accounts {
    store: Arc<dyn AccountStore>,
}

/// An account or key could not be created or changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AccountError {
    /// The name is invalid.
    #[error(
        "invalid name `{name}`: expected 1 to {MAX_NAME_LENGTH} letters, digits, `-`, `_` and `.`, but not \
         digits only"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("{what} `{name}` already exists")]
    Exists {
        /// `an account`, `a key` or `a token`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The name or number is unknown.
    #[error("unknown {what} `{name}`; `pkgtool {what}s list` shows all")]
    Unknown {
        /// `account` or `key`.
        what: &'static str,
        /// The name or number.
        name: String,
    },
    /// The number of the token is unknown.
    #[error("unknown token `{0}`; `pkgtool workers token list` shows all")]
    UnknownToken(i64),
    /// Several accounts have a key of this name.
    #[error(
        "several accounts have a key `{name}`; choose one with --account, or give the key's number"
    )]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// The key would have no permissions.
    #[error("a key needs at least one permission: predict, read, write")]
    NoPermission,
    /// The system provides no randomness.
    #[error("the system provides no random bits: {0}")]
    Random(String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl Accounts {
    /// Manages the accounts of a store.
    pub fn new(store: Arc<dyn AccountStore>) -> Self {
        Self { store }
    }

    /// Creates an account.
    pub async fn create(
        &self,
        name: &str,
        rps: u32,
        now: Timestamp,
    ) -> Result<Account, AccountError> {
        check_name(name)?;
        let made = self.store.create_account(name, rps, now).await?;
        made.ok_or_else(|| AccountError::Exists {
            what: "an account",
            name: name.to_owned(),
        })
    }

    /// Changes an account, given by name or number.
    pub async fn set(
        &self,
        account: &str,
        rps: Option<u32>,
        blocked: Option<bool>,
    ) -> Result<Account, AccountError> {
        let found = self.find(account).await?;
        let changed = self.store.change_account(found.id, rps, blocked).await?;
        changed.ok_or_else(|| unknown_account(account))
    }

    /// Returns all accounts, oldest first.
    pub async fn list(&self) -> DatabaseResult<Vec<Account>> {
        self.store.accounts().await
    }

    /// Creates a key and returns its secret, which cannot be read again.
    pub async fn create_key(
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
        let account = self.find(account).await?.id;
        let secret = Secret::random("pk").map_err(AccountError::Random)?;
        let key = NewKey {
            account,
            name: name.to_owned(),
            hash: Secret::hash(secret.reveal()),
            permissions,
            expires_at,
        };
        match self.store.create_key(key, now).await? {
            Some(key) => Ok((key, secret)),
            None => Err(AccountError::Exists {
                what: "a key",
                name: name.to_owned(),
            }),
        }
    }

    /// Returns the keys of one account or of all, oldest first, each with its account's name.
    pub async fn keys(&self, account: Option<&str>) -> Result<Vec<(ApiKey, String)>, AccountError> {
        let account = self.number_of(account).await?;
        let keys = self.store.keys().await?.into_iter();
        let of_it = keys.filter(|stored| account.is_none_or(|id| id == stored.key.account));
        Ok(of_it
            .map(|stored| (stored.key, stored.account_name))
            .collect())
    }

    /// Returns the number of an account, if one is given.
    async fn number_of(&self, account: Option<&str>) -> Result<Option<AccountId>, AccountError> {
        match account {
            Some(account) => Ok(Some(self.find(account).await?.id)),
            None => Ok(None),
        }
    }

    /// Revokes a key, given by name or number.
    pub async fn revoke(
        &self,
        account: Option<&str>,
        key: &str,
        now: Timestamp,
    ) -> Result<ApiKey, AccountError> {
        let number = number(key);
        let all = self.keys(account).await?.into_iter();
        let mut found: Vec<ApiKey> = all
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
            self.store.revoke_key(key.id, now).await?;
            key.revoked_at = Some(now);
        }
        Ok(key)
    }

    /// Creates a token of a service and returns its text, which cannot be read again.
    pub async fn create_worker_token(
        &self,
        account: &str,
        service: &str,
        name: &str,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(WorkerToken, Secret), AccountError> {
        check_name(name)?;
        if service != ANY_SERVICE {
            check_name(service)?;
        }
        let account = self.find(account).await?;
        let secret =
            WorkerToken::text("wt", &account.name, service).map_err(AccountError::Random)?;
        let token = NewWorkerToken {
            account: account.id,
            service: service.to_owned(),
            name: name.to_owned(),
            hash: Secret::hash(secret.reveal()),
            expires_at,
        };
        match self.store.create_worker_token(token, now).await? {
            Some(token) => Ok((token, secret)),
            None => Err(AccountError::Exists {
                what: "a token",
                name: name.to_owned(),
            }),
        }
    }

    /// Returns the tokens of workers of one account or of all, oldest first, each with its account's name.
    pub async fn worker_tokens(
        &self,
        account: Option<&str>,
    ) -> Result<Vec<(WorkerToken, String)>, AccountError> {
        let account = self.number_of(account).await?;
        let tokens = self.store.worker_tokens().await?.into_iter();
        let of_it = tokens.filter(|stored| account.is_none_or(|id| id == stored.token.account));
        Ok(of_it
            .map(|stored| (stored.token, stored.account_name))
            .collect())
    }

    /// Revokes a token by its number.
    pub async fn revoke_worker_token(
        &self,
        token: i64,
        now: Timestamp,
    ) -> Result<WorkerToken, AccountError> {
        let all = self.worker_tokens(None).await?.into_iter();
        let found = all.map(|(token, _)| token).find(|known| known.id == token);
        let mut found = found.ok_or(AccountError::UnknownToken(token))?;
        if found.revoked_at.is_none() {
            self.store.revoke_worker_token(token, now).await?;
            found.revoked_at = Some(now);
        }
        Ok(found)
    }

    /// Finds an account by its name or number.
    pub async fn find(&self, account: &str) -> Result<Account, AccountError> {
        let number = number(account);
        let all = self.list().await?;
        let found = all.into_iter().find(|known| match number {
            Some(number) => known.id.0 == number,
            None => known.name == account,
        });
        found.ok_or_else(|| unknown_account(account))
    }
}

fn unknown_account(account: &str) -> AccountError {
    AccountError::Unknown {
        what: "account",
        name: account.to_owned(),
    }
}

fn check_name(name: &str) -> Result<(), AccountError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // Digits would be read as a number.
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    if (1..=MAX_NAME_LENGTH).contains(&name.len()) && name.bytes().all(allowed) && !is_number {
        return Ok(());
    }
    Err(AccountError::Name {
        name: name.to_owned(),
    })
}
