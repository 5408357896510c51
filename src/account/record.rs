//! What is kept of accounts, and of what belongs to them beside keys.

use crate::database::Timestamp;

/// As many requests per second as come: what is stored of an account without a limit of its rate. Limits of
/// tasks that follow from it are the system's.
pub const UNLIMITED: u32 = u32::MAX;

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
