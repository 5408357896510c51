//! API keys: secrets, their hashes, and permissions.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::record::AccountId;
use crate::database::Timestamp;

/// An operation that a key may permit.
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
    /// Number of the key.
    pub id: i64,
    /// Name of the key, unique in its account.
    pub name: String,
    /// Account of the key.
    pub account: AccountId,
    /// Permissions of the key.
    pub permissions: Permissions,
    /// Creation time.
    pub created_at: Timestamp,
    /// Expiry time.
    pub expires_at: Option<Timestamp>,
    /// Revocation time.
    pub revoked_at: Option<Timestamp>,
}

impl ApiKey {
    /// Returns whether the key is neither expired nor revoked.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now) && self.revoked_at.is_none()
    }
}

/// The secret text of a key or a login. Its `Debug` output is redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Permissions {
    /// All permissions.
    pub const ALL: Self = Self {
        predict: true,
        read: true,
        write: true,
    };

    /// Returns `true` if these include `permission`.
    pub fn allow(self, permission: Permission) -> bool {
        match permission {
            Permission::Predict => self.predict,
            Permission::Read => self.read || self.write,
            Permission::Write => self.write,
        }
    }
}

/// The text is not a permission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown permission `{0}`: expected predict, read or write")]
pub struct UnknownPermission(String);

/// Format: `predict,read,write`, or some of them.
impl FromStr for Permissions {
    type Err = UnknownPermission;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut permissions = Self::default();
        for name in text.split(',').map(str::trim) {
            match name {
                "predict" => permissions.predict = true,
                "read" => permissions.read = true,
                "write" => permissions.write = true,
                other => return Err(UnknownPermission(other.to_owned())),
            }
        }
        Ok(permissions)
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.predict, "predict"),
            (self.read, "read"),
            (self.write, "write"),
        ];
        let names: Vec<&str> = all
            .iter()
            .filter_map(|(has, name)| has.then_some(*name))
            .collect();
        f.write_str(&names.join(","))
    }
}

impl Secret {
    /// Puts public text before the secret.
    pub(super) fn prefixed(self, text: &str) -> Self {
        Self(format!("{text}{}", self.0))
    }

    /// Generates a secret of 256 random bits, with a prefix that says its purpose.
    pub(super) fn random(prefix: &str) -> Result<Self, String> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(|error| error.to_string())?;
        let bits = BASE64_URL_SAFE_NO_PAD.encode(bits);
        Ok(Self(format!("{prefix}_{bits}")))
    }

    /// Returns the hash that is stored. The secret is random and too long to guess, so a slow hash
    /// is unnecessary.
    pub(super) fn hash(secret: &str) -> [u8; 32] {
        Sha256::digest(secret.as_bytes()).into()
    }

    /// Returns the text itself, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
