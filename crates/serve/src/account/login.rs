//! Logins of browsers: one-time codes, and sessions.
//!
//! A code begins a session of the operator. A key begins a session with the key's permissions,
//! which ends with the key.
//!
//! Invariant: codes and sessions are stored only as hashes, and a code begins one session at most.

use std::sync::Arc;
use std::time::Duration;

use super::accounts::AccountError;
use super::key::Secret;
use super::record::Login;
use super::store::{AccountStore, NewLogin};
use crate::database::{DatabaseResult, Timestamp};

/// Time in which a code can be used.
const CODE_VALIDITY: Duration = Duration::from_hours(24);

/// Maximum number of codes, and of sessions of one key. The oldest ones end.
const MAX_LOGINS: usize = 50;

/// Manages the logins of a store.
pub struct Logins {
    store: Arc<dyn AccountStore>,
}

impl Logins {
    /// Manages the logins of a store.
    pub fn new(store: Arc<dyn AccountStore>) -> Self {
        Self { store }
    }

    /// Creates a code that begins one session of the operator.
    pub async fn create_code(&self, now: Timestamp) -> Result<Secret, AccountError> {
        self.create(true, None, now, CODE_VALIDITY).await
    }

    /// Begins a session of the operator with a code; `None` if the code is unknown, used or expired.
    pub async fn begin_with_code(
        &self,
        code: &str,
        now: Timestamp,
        validity: Duration,
    ) -> Result<Option<Secret>, AccountError> {
        let hash = Secret::hash(code);
        // Read first: a wrong code costs no change of the database.
        let is_known = self.store.login(hash, true, now).await?.is_some();
        if !is_known || !self.store.delete_login(hash).await? {
            return Ok(None);
        }
        self.create(false, None, now, validity).await.map(Some)
    }

    /// Begins a session with the permissions of a valid key, given by its number.
    pub async fn begin_with_key(
        &self,
        key: i64,
        now: Timestamp,
        validity: Duration,
    ) -> Result<Secret, AccountError> {
        self.create(false, Some(key), now, validity).await
    }

    /// Returns the session with this secret, unless it has ended.
    pub async fn session(&self, secret: &str, now: Timestamp) -> DatabaseResult<Option<Login>> {
        self.store.login(Secret::hash(secret), false, now).await
    }

    /// Ends the session with this secret.
    pub async fn end(&self, secret: &str) -> DatabaseResult<()> {
        self.store.delete_login(Secret::hash(secret)).await?;
        Ok(())
    }

    async fn create(
        &self,
        is_code: bool,
        key: Option<i64>,
        now: Timestamp,
        validity: Duration,
    ) -> Result<Secret, AccountError> {
        let prefix = if is_code { "pc" } else { "ps" };
        let secret = Secret::random(prefix).map_err(AccountError::Random)?;
        let expires_at = now.after(validity);
        let login = NewLogin {
            hash: Secret::hash(secret.reveal()),
            is_code,
            login: Login { key, expires_at },
        };
        self.store.create_login(login, MAX_LOGINS, now).await?;
        Ok(secret)
    }
}
