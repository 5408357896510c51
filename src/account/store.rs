//! The seam between accounts and what keeps them.

use super::cpu::CpuUsed;
use super::key::{ApiKey, Permissions};
use super::record::{Account, AccountId, Counted, PredictConfig, Usage, UsageKey};
use crate::database::{DatabaseError, Day, Timestamp};

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its account.
    pub account: AccountId,
    /// Its name.
    pub name: String,
    /// The hash of its secret.
    pub hash: [u8; 32],
    /// What it permits.
    pub permissions: Permissions,
    /// From when on it is unknown.
    pub expires_at: Option<Timestamp>,
}

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// The key.
    pub key: ApiKey,
    /// Its account's name.
    pub account_name: String,
    /// The hash of its secret.
    pub hash: [u8; 32],
}

/// A predict config to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewConfig {
    /// Its service's number.
    pub service: i64,
    /// Its name.
    pub name: String,
    /// The config, JSON text.
    pub config: String,
    /// Whether it is taken where a request names none. It takes the place of the default before it.
    pub is_default: bool,
}

/// Keeps accounts, keys, the numbers of services, predict configs and usage. Every method is atomic, and what it
/// changes is durable when it returns; a future that is dropped has made its change or never will. Time is
/// an argument. Whether a name may be one, and what users are told, is not known here.
#[async_trait::async_trait]
pub trait AccountStore: Send + Sync {
    /// Makes an account; `None` if there is one of this name.
    async fn create_account(
        &self,
        name: &str,
        rps: u32,
        now: Timestamp,
    ) -> Result<Option<Account>, DatabaseError>;

    /// Changes what is given of an account; `None` if there is no such account.
    async fn change_account(
        &self,
        account: AccountId,
        rps: Option<u32>,
        blocked: Option<bool>,
    ) -> Result<Option<Account>, DatabaseError>;

    /// All accounts, the oldest first.
    async fn accounts(&self) -> Result<Vec<Account>, DatabaseError>;

    /// Makes a key; `None` if its account has one of this name.
    async fn create_key(
        &self,
        key: NewKey,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, DatabaseError>;

    /// All keys, the oldest first, those too that are revoked or have expired.
    async fn keys(&self) -> Result<Vec<StoredKey>, DatabaseError>;

    /// Revokes the key of a number; one that is revoked stays as it is.
    async fn revoke_key(&self, key: i64, now: Timestamp) -> Result<(), DatabaseError>;

    /// A number that every change of accounts and keys changes, whoever makes it. Asked often: it must be
    /// cheap.
    async fn version(&self) -> Result<i64, DatabaseError>;

    /// The lasting number of an account's service: a new one if it has none yet.
    async fn service_number(&self, owner: AccountId, name: &str) -> Result<i64, DatabaseError>;

    /// The predict configs of a service, the oldest first.
    async fn configs(&self, service: i64) -> Result<Vec<PredictConfig>, DatabaseError>;

    /// Stores a predict config.
    async fn create_config(
        &self,
        config: NewConfig,
        now: Timestamp,
    ) -> Result<PredictConfig, DatabaseError>;

    /// Deletes a predict config of a service; `false` if there is none.
    async fn delete_config(&self, service: i64, id: i64) -> Result<bool, DatabaseError>;

    /// Adds to what accounts used; all of it or nothing.
    async fn add_usage(&self, used: &[(UsageKey, Counted)]) -> Result<(), DatabaseError>;

    /// What an account used from one day to another, both included, in the order of days, owners and
    /// services. What was used of a service that has no number is not told.
    async fn usage(
        &self,
        account: AccountId,
        from: Day,
        to: Day,
    ) -> Result<Vec<Usage>, DatabaseError>;

    /// Adds to the CPU time that accounts used; all of it or nothing.
    async fn add_cpu(&self, used: &[CpuUsed]) -> Result<(), DatabaseError>;

    /// The CPU time that an account, or each of all, used from one day to another, both included, in the order
    /// of days and accounts.
    async fn cpu(
        &self,
        account: Option<AccountId>,
        from: Day,
        to: Day,
    ) -> Result<Vec<CpuUsed>, DatabaseError>;

    /// Forgets at most so many counts of days before one, the oldest first, and gives how many.
    async fn forget_usage(&self, before: Day, most: usize) -> Result<usize, DatabaseError>;
}
