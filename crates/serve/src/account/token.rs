//! Tokens by which instances of services attach to the gateway.

use super::key::Secret;
use super::record::AccountId;
use crate::database::Timestamp;

/// The service of a token whose machines take the packages of the gateway.
pub const ANY_SERVICE: &str = "*";

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerToken {
    /// Its number.
    pub id: i64,
    /// Its name, unique for its service.
    pub name: String,
    /// The account that owns the service.
    pub account: AccountId,
    /// Name of the service.
    pub service: String,
    /// Creation time.
    pub created_at: Timestamp,
    /// Expiry time.
    pub expires_at: Option<Timestamp>,
    /// Revocation time.
    pub revoked_at: Option<Timestamp>,
}

/// A token to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorkerToken {
    /// The account that owns the service.
    pub account: AccountId,
    /// Name of the service.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Hash of the token.
    pub hash: [u8; 32],
    /// Expiry time.
    pub expires_at: Option<Timestamp>,
}

/// A token with its hash, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredWorkerToken {
    /// The token.
    pub token: WorkerToken,
    /// Name of its account.
    pub account_name: String,
    /// Its hash.
    pub hash: [u8; 32],
}

impl WorkerToken {
    /// Returns whether the token is neither expired nor revoked.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now) && self.revoked_at.is_none()
    }

    /// Creates the text of a token: account, service and a secret with a prefix that says its purpose.
    pub(crate) fn text(purpose: &str, account: &str, service: &str) -> Result<Secret, String> {
        let secret = Secret::random(purpose)?;
        Ok(secret.prefixed(&format!("{account}.{service}.")))
    }
}
