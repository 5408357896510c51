//! Records of accounts, predict configs and usage.

use crate::database::{Day, Timestamp};

/// The stored rate of an account without a limit of requests per second. Its limits of tasks, which
/// derive from the rate, are the system's.
pub const UNLIMITED: u32 = u32::MAX;

/// Maximum of a count: the largest integer that every JSON parser represents exactly.
pub(crate) const MAX_COUNT: u64 = (1 << 53) - 1;

/// Number of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub i64);

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Number of the account.
    pub id: AccountId,
    /// Name of the account: letters, digits, `-`, `_`, `.`; not only digits.
    pub name: String,
    /// Requests per second, or [`UNLIMITED`]. Limits of tasks derive from it.
    pub rps: u32,
    /// Requests of a blocked account get status 402.
    pub blocked: bool,
    /// Creation time.
    pub created_at: Timestamp,
}

/// A login of a browser, without its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Login {
    /// The key with which a session began; `None` for the operator's sessions and for codes.
    pub key: Option<i64>,
    /// Expiry time.
    pub expires_at: Timestamp,
}

/// A stored predict config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictConfig {
    /// Number of the config.
    pub id: i64,
    /// Number of the service.
    pub service: i64,
    /// Name of the config.
    pub name: String,
    /// The config as JSON text.
    pub config: String,
    /// `true` for the config that requests use by default.
    pub is_default: bool,
    /// Creation time.
    pub created_at: Timestamp,
}

/// Identifies an account's usage of a service on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UsageKey {
    /// The account that sent the requests.
    pub account: AccountId,
    /// Number of the service.
    pub service: i64,
    /// The day.
    pub day: Day,
}

/// Counts of usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Answered requests.
    pub requests: u64,
    /// Tokens of prompts.
    pub prompt: u64,
    /// Tokens of answers.
    pub completion: u64,
    /// Tokens of prompts that came from a cache.
    pub cached: u64,
}

/// An account's usage of a service on a day, with names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The day.
    pub day: Day,
    /// Number of the service.
    pub service: i64,
    /// Name of the service.
    pub service_name: String,
    /// Owner of the service.
    pub owner: AccountId,
    /// Name of the owner.
    pub owner_name: String,
    /// Counts of usage.
    pub counted: Counted,
}

impl Counted {
    /// Adds counts; saturates at 2^53 - 1.
    pub fn add(&mut self, more: Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more).min(MAX_COUNT);
        add(&mut self.requests, more.requests);
        add(&mut self.prompt, more.prompt);
        add(&mut self.completion, more.completion);
        add(&mut self.cached, more.cached);
    }
}
