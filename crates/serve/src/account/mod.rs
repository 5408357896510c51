//! Accounts and their data: API keys, tokens of workers, logins of browsers, numbers of services, predict configs, usage.
//!
//! The module knows nothing of HTTP and tasks.
//!
//! Invariant: a key's secret is shown once and stored only as a hash.

mod accounts;
mod configs;
mod cpu;
mod directory;
mod key;
mod login;
mod number;
mod record;
mod sql;
mod store;
mod strangers;
mod token;
mod usage;

pub use accounts::{AccountError, Accounts};
pub use configs::PredictConfigs;
pub use cpu::{CpuCounts, CpuUsed};
pub use directory::{Directory, Snapshot};
pub use key::{ApiKey, Permission, Permissions, Secret, UnknownPermission};
pub use login::Logins;
pub use number::number;
pub use record::{Account, AccountId, Counted, Login, PredictConfig, UNLIMITED, Usage, UsageKey};
pub(crate) use sql::SqlAccounts;
pub use store::{AccountStore, NewConfig, NewKey, NewLogin, StoredKey};
pub use token::{ANY_SERVICE, NewWorkerToken, StoredWorkerToken, WorkerToken};
pub use usage::UsageCounts;
