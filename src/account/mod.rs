//! Accounts and what belongs to them: API keys, the numbers of their services, predict configs.
//!
//! Invariant: a key's secret is shown once and stored only as a hash. Knows nothing of HTTP and of
//! tasks.

mod accounts;
mod configs;
mod directory;
mod key;

pub use accounts::{AccountError, Accounts};
pub use configs::{PredictConfig, PredictConfigs, ServiceNumbers};
pub use directory::{Directory, Snapshot};
pub use key::{ApiKey, Permission, Permissions, Secret, UnknownPermission};

use crate::database::Timestamp;

/// An account's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub i64);

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its number.
    pub id: AccountId,
    /// Its name: letters, digits, `-`, `_`, `.`; not digits only.
    pub name: String,
    /// Requests per second; limits of tasks follow from it.
    pub rps: u32,
    /// Blocked accounts get 402.
    pub blocked: bool,
    /// When it was made.
    pub created_at: Timestamp,
}
