//! What is kept of accounts, and of what belongs to them beside keys.

use crate::database::{Day, Timestamp};

/// As many requests per second as come: what is stored of an account without a limit of its rate. Limits of
/// tasks that follow from it are the system's.
pub const UNLIMITED: u32 = u32::MAX;

/// Most that a count may be: what every reader of JSON holds exactly.
pub(crate) const MOST: u64 = (1 << 53) - 1;

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
    /// Requests per second, or [`UNLIMITED`]; limits of tasks follow from it.
    pub rps: u32,
    /// Blocked accounts get 402.
    pub blocked: bool,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A stored predict config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictConfig {
    /// Its number.
    pub id: i64,
    /// Its service's number.
    pub service: i64,
    /// Its name.
    pub name: String,
    /// The config, JSON text.
    pub config: String,
    /// Whether it is taken where a request names none.
    pub is_default: bool,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// An account's use of a service on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UsageKey {
    /// The account that asked.
    pub account: AccountId,
    /// The service's number.
    pub service: i64,
    /// The day.
    pub day: Day,
}

/// How much was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests that were answered.
    pub requests: u64,
    /// Tokens of prompts.
    pub prompt: u64,
    /// Tokens of answers.
    pub completion: u64,
    /// Tokens of prompts that were known from before.
    pub cached: u64,
}

/// What an account used of a service on a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The day.
    pub day: Day,
    /// The service's number.
    pub service: i64,
    /// The service's name.
    pub service_name: String,
    /// The service's owner.
    pub owner: AccountId,
    /// The owner's name.
    pub owner_name: String,
    /// How much.
    pub counted: Counted,
}

impl Counted {
    /// Adds more, as far as can be counted.
    pub fn add(&mut self, more: Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more).min(MOST);
        add(&mut self.requests, more.requests);
        add(&mut self.prompt, more.prompt);
        add(&mut self.completion, more.completion);
        add(&mut self.cached, more.cached);
    }
}
