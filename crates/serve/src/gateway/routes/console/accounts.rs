//! Routes of the console for accounts and keys, for the operator.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::super::super::Gateway;
use super::super::super::auth::OperatorCaller;
use super::super::super::error::GatewayError;
use super::read_json;
use crate::account::{Account, AccountError, ApiKey, UNLIMITED};
use crate::database::Timestamp;

/// An account.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AccountRow {
    id: i64,
    name: String,
    /// Requests per second; null: unlimited.
    rps: Option<u32>,
    blocked: bool,
    created_at: i64,
}

/// A key, without its secret.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeyRow {
    id: i64,
    name: String,
    account: String,
    permissions: String,
    created_at: i64,
    expires_at: Option<i64>,
    revoked: bool,
}

/// An account to create, or to change if it has `blocked`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountChange {
    name: String,
    /// Requests per second; 0: unlimited.
    rps: Option<u32>,
    blocked: Option<bool>,
}

/// A key to create.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKeyRequest {
    account: String,
    name: String,
    /// Such as `predict,read`.
    permissions: String,
    /// Days after which it expires.
    days: Option<u32>,
}

/// A key to revoke.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Revocation {
    id: i64,
}

/// The secret of a new key.
#[derive(Debug, Serialize)]
pub(super) struct CreatedKey {
    secret: String,
}

/// Lists the accounts.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    _: OperatorCaller,
) -> Result<Json<Vec<AccountRow>>, GatewayError> {
    let accounts = gateway.accounts.list().await?;
    Ok(Json(accounts.into_iter().map(AccountRow::from).collect()))
}

/// Creates or changes an account.
pub(super) async fn change(
    State(gateway): State<Arc<Gateway>>,
    _: OperatorCaller,
    body: Body,
) -> Result<Json<AccountRow>, GatewayError> {
    let change: AccountChange = read_json(&gateway, body).await?;
    let rps = change.rps.map(|rps| if rps == 0 { UNLIMITED } else { rps });
    let accounts = &gateway.accounts;
    let changed = if change.blocked.is_some() {
        accounts.set(&change.name, rps, change.blocked).await
    } else {
        let rps = rps.unwrap_or(UNLIMITED);
        accounts.create(&change.name, rps, Timestamp::now()).await
    };
    let account = changed.map_err(account_error)?;
    gateway.directory.refresh_soon();
    Ok(Json(account.into()))
}

/// Lists the keys of all accounts.
pub(super) async fn keys(
    State(gateway): State<Arc<Gateway>>,
    _: OperatorCaller,
) -> Result<Json<Vec<KeyRow>>, GatewayError> {
    let keys = gateway.accounts.keys(None).await.map_err(account_error)?;
    Ok(Json(keys.into_iter().map(KeyRow::of).collect()))
}

/// Creates a key.
pub(super) async fn create_key(
    State(gateway): State<Arc<Gateway>>,
    _: OperatorCaller,
    body: Body,
) -> Result<Json<CreatedKey>, GatewayError> {
    let new: NewKeyRequest = read_json(&gateway, body).await?;
    let permissions = new.permissions.parse();
    let permissions = permissions
        .map_err(|error| GatewayError::bad_request(format!("{error}")).with("place", "$"))?;
    let now = Timestamp::now();
    let day = std::time::Duration::from_hours(24);
    let expires_at = new.days.map(|days| now.after(day.saturating_mul(days)));
    let made = gateway
        .accounts
        .create_key(&new.account, &new.name, permissions, expires_at, now);
    let (_, secret) = made.await.map_err(account_error)?;
    Ok(Json(CreatedKey {
        secret: secret.reveal().to_owned(),
    }))
}

/// Revokes a key.
pub(super) async fn revoke_key(
    State(gateway): State<Arc<Gateway>>,
    _: OperatorCaller,
    body: Body,
) -> Result<StatusCode, GatewayError> {
    let Revocation { id } = read_json(&gateway, body).await?;
    let id = id.to_string();
    let revoked = gateway.accounts.revoke(None, &id, Timestamp::now());
    revoked.await.map_err(account_error)?;
    gateway.directory.refresh_soon();
    Ok(StatusCode::OK)
}

/// Returns the error of a change of accounts and keys.
pub(super) fn account_error(error: AccountError) -> GatewayError {
    match error {
        AccountError::Database(error) => error.into(),
        AccountError::Exists { .. } => GatewayError::conflict("ENTITY_EXISTS", error.to_string()),
        AccountError::Unknown { what, name } => GatewayError::no_entity(what, &name),
        error => GatewayError::bad_request(error.to_string()).with("place", "$"),
    }
}

impl From<Account> for AccountRow {
    fn from(account: Account) -> Self {
        Self {
            id: account.id.0,
            name: account.name,
            rps: Some(account.rps).filter(|rps| *rps != UNLIMITED),
            blocked: account.blocked,
            created_at: account.created_at.0,
        }
    }
}

impl KeyRow {
    fn of((key, account): (ApiKey, String)) -> Self {
        Self {
            id: key.id,
            name: key.name,
            account,
            permissions: key.permissions.to_string(),
            created_at: key.created_at.0,
            expires_at: key.expires_at.map(|at| at.0),
            revoked: key.revoked_at.is_some(),
        }
    }
}
