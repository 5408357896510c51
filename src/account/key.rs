//! API keys: secrets, their hashes, and what they permit.

use std::fmt;

use super::AccountId;
use crate::database::Timestamp;

/// What a key may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Model requests.
    Predict,
    /// Read data.
    Read,
    /// Change data; includes reading.
    Write,
}

/// The permissions of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Model requests.
    pub predict: bool,
    /// Read data.
    pub read: bool,
    /// Change data; includes reading.
    pub write: bool,
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its number.
    pub id: i64,
    /// Its name, unique in its account.
    pub name: String,
    /// Its account.
    pub account: AccountId,
    /// What it permits.
    pub permissions: Permissions,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is unknown.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// The text that a client sends as its key. Never printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Permissions {
    /// All of them.
    pub const ALL: Self = Self {
        predict: true,
        read: true,
        write: true,
    };

    /// Whether these include `permission`.
    pub fn allow(self, permission: Permission) -> bool {
        match permission {
            Permission::Predict => self.predict,
            Permission::Read => self.read || self.write,
            Permission::Write => self.write,
        }
    }
}

impl Secret {
    /// The text itself, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
