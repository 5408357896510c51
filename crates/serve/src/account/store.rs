//! The interface between the account module and its database.

use super::cpu::CpuUsed;
use super::key::{ApiKey, Permissions};
use super::record::{Account, AccountId, Counted, Login, PredictConfig, Usage, UsageKey};
use super::token::{NewWorkerToken, StoredWorkerToken, WorkerToken};
use crate::database::{DatabaseResult, Day, Timestamp};

/// A key to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Account of the key.
    pub account: AccountId,
    /// Name of the key.
    pub name: String,
    /// Hash of the secret.
    pub hash: [u8; 32],
    /// Permissions of the key.
    pub permissions: Permissions,
    /// Expiry time.
    pub expires_at: Option<Timestamp>,
}

/// A login to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLogin {
    /// Hash of the secret.
    pub hash: [u8; 32],
    /// A code that can be used once, in place of a session.
    pub is_code: bool,
    /// The login.
    pub login: Login,
}

/// A key with its hash, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// The key.
    pub key: ApiKey,
    /// Name of the key's account.
    pub account_name: String,
    /// Hash of the secret.
    pub hash: [u8; 32],
}

/// A predict config to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewConfig {
    /// Number of the service.
    pub service: i64,
    /// Name of the config.
    pub name: String,
    /// The config as JSON text.
    pub config: String,
    /// Makes it the config that requests use by default, instead of the current default.
    pub is_default: bool,
}

/// Stores accounts, keys, numbers of services, predict configs and usage.
///
/// Every method is atomic, and its changes are durable when it returns. A dropped future has made
/// its change completely or not at all. Time is an argument. Callers check names and write
/// messages.
#[async_trait::async_trait]
pub trait AccountStore: Send + Sync {
    /// Returns whether other servers use the same store.
    fn is_shared(&self) -> bool {
        false
    }

    /// Creates an account; returns `None` if the name is taken.
    async fn create_account(
        &self,
        name: &str,
        rps: u32,
        now: Timestamp,
    ) -> DatabaseResult<Option<Account>>;

    /// Changes the given values of an account; returns `None` if it does not exist.
    async fn change_account(
        &self,
        account: AccountId,
        rps: Option<u32>,
        blocked: Option<bool>,
    ) -> DatabaseResult<Option<Account>>;

    /// Returns all accounts, oldest first.
    async fn accounts(&self) -> DatabaseResult<Vec<Account>>;

    /// Creates a key; returns `None` if its account has a key of this name.
    async fn create_key(&self, key: NewKey, now: Timestamp) -> DatabaseResult<Option<ApiKey>>;

    /// Returns all keys, oldest first, including revoked and expired ones.
    async fn keys(&self) -> DatabaseResult<Vec<StoredKey>>;

    /// Revokes a key by its number; a revoked key stays unchanged.
    async fn revoke_key(&self, key: i64, now: Timestamp) -> DatabaseResult<()>;

    /// Creates a token; returns `None` if its service has a token of this name. One that was revoked is replaced.
    async fn create_worker_token(
        &self,
        token: NewWorkerToken,
        now: Timestamp,
    ) -> DatabaseResult<Option<WorkerToken>>;

    /// Returns all tokens of workers, oldest first, including revoked and expired ones.
    async fn worker_tokens(&self) -> DatabaseResult<Vec<StoredWorkerToken>>;

    /// Revokes a token by its number; a revoked token stays unchanged.
    async fn revoke_worker_token(&self, token: i64, now: Timestamp) -> DatabaseResult<()>;

    /// Creates a login. Removes expired ones, and the oldest of the same key beyond `most`.
    async fn create_login(
        &self,
        login: NewLogin,
        most: usize,
        now: Timestamp,
    ) -> DatabaseResult<()>;

    /// Returns the login with this hash, unless it has expired.
    async fn login(
        &self,
        hash: [u8; 32],
        is_code: bool,
        now: Timestamp,
    ) -> DatabaseResult<Option<Login>>;

    /// Deletes the login with this hash; returns `false` if it does not exist. Of several callers,
    /// one gets `true`.
    async fn delete_login(&self, hash: [u8; 32]) -> DatabaseResult<bool>;

    /// Returns a number that changes with every change of accounts, keys and tokens, by any process. It is
    /// called often and must be cheap.
    async fn version(&self) -> DatabaseResult<i64>;

    /// Returns the permanent number of an account's service, and assigns one if necessary.
    async fn service_number(&self, owner: AccountId, name: &str) -> DatabaseResult<i64>;

    /// Returns the predict configs of a service, oldest first.
    async fn configs(&self, service: i64) -> DatabaseResult<Vec<PredictConfig>>;

    /// Stores a predict config.
    async fn create_config(
        &self,
        config: NewConfig,
        now: Timestamp,
    ) -> DatabaseResult<PredictConfig>;

    /// Deletes a predict config of a service; returns `false` if it does not exist.
    async fn delete_config(&self, service: i64, id: i64) -> DatabaseResult<bool>;

    /// Adds usage of accounts; all of it or nothing.
    async fn add_usage(&self, used: &[(UsageKey, Counted)]) -> DatabaseResult<()>;

    /// Returns the usage of an account in a period, first and last day included, ordered by day,
    /// owner and service. Usage of a service without a number is omitted.
    async fn usage(&self, account: AccountId, from: Day, to: Day) -> DatabaseResult<Vec<Usage>>;

    /// Adds CPU time of accounts; all of it or nothing.
    async fn add_cpu(&self, used: &[CpuUsed]) -> DatabaseResult<()>;

    /// Returns the CPU time of one account or of all in a period, first and last day included,
    /// ordered by day and account.
    async fn cpu(
        &self,
        account: Option<AccountId>,
        from: Day,
        to: Day,
    ) -> DatabaseResult<Vec<CpuUsed>>;

    /// Deletes at most `most` records of days before `before`, oldest first, and returns how many.
    async fn forget_usage(&self, before: Day, most: usize) -> DatabaseResult<usize>;
}
