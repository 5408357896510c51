//! Authentication: finds the key of a request or the session of a browser, its account and its
//! permissions.
//!
//! Handlers take a [`Caller`], [`AdapterCaller`] or [`Viewer`] as an extractor.
//!
//! Invariant: a request is rejected for the first of these that fails: a missing key, a blocked
//! account, a missing permission, no access to the account. Only then does the answer depend on
//! whether the requested item exists.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};

use super::Gateway;
use super::connections::Connected;
use super::cookie;
use super::error::GatewayError;
use super::observe::{KeyOwner, RequestFacts};
use super::settings::LOCAL_ACCOUNT;
use crate::account::{Account, AccountId, ApiKey, Permission, Permissions, Snapshot};
use crate::database::Timestamp;

/// The header that carries the key.
const API_KEY: HeaderName = HeaderName::from_static("mlp-api-key");

/// The authenticated account of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    /// The account; for the operator the one that they have chosen.
    pub(super) account: AccountId,
    pub(super) permissions: Permissions,
    /// Number of the key; `None` for the operator, whose browser logged in with a link.
    pub(super) key: Option<i64>,
}

impl Caller {
    /// Returns the account if the key has the permission.
    pub(super) fn require(self, permission: Permission) -> Result<AccountId, GatewayError> {
        if self.permissions.allow(permission) {
            return Ok(self.account);
        }
        Err(GatewayError::permission(match permission {
            Permission::Predict => "predict",
            Permission::Read => "read",
            Permission::Write => "write",
        }))
    }

    /// Returns the account if the key has the permission and the path names that account.
    pub(super) fn require_own(
        self,
        permission: Permission,
        gateway: &Gateway,
        account: &str,
    ) -> Result<AccountId, GatewayError> {
        let own = self.require(permission)?;
        let snapshot = gateway.directory.snapshot();
        match snapshot.account(account) {
            Some(named) if named.id == own => Ok(own),
            _ => Err(GatewayError::another_account()),
        }
    }
}

impl FromRequestParts<Arc<Gateway>> for Caller {
    type Rejection = GatewayError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        match secret(&parts.headers) {
            Some(secret) => accept(secret, parts, gateway).await,
            None => accept_session(parts, gateway, GatewayError::no_key).await,
        }
    }
}

/// The operator: a browser that logged in with a link.
#[derive(Debug)]
pub(super) struct OperatorCaller;

impl FromRequestParts<Arc<Gateway>> for OperatorCaller {
    type Rejection = GatewayError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let caller = Caller::from_request_parts(parts, gateway).await?;
        match caller.key {
            None => Ok(Self),
            Some(_) => Err(GatewayError::not_the_operator()),
        }
    }
}

/// The authenticated account of a chat adapter request: `Authorization` takes precedence over
/// `MLP-API-KEY`.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdapterCaller(pub(super) Caller);

impl FromRequestParts<Arc<Gateway>> for AdapterCaller {
    type Rejection = GatewayError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let headers = &parts.headers;
        // `Authorization` takes precedence even if it is empty.
        let secret = if headers.contains_key(header::AUTHORIZATION) {
            authorization(headers)
        } else {
            api_key(headers)
        };
        match secret {
            Some(secret) => accept(secret, parts, gateway).await,
            None => accept_session(parts, gateway, GatewayError::no_authorization).await,
        }
        .map(Self)
    }
}

/// Authenticates a key; fails if it is unknown or its account is blocked.
pub(super) async fn accept(
    secret: &str,
    parts: &Parts,
    gateway: &Arc<Gateway>,
) -> Result<Caller, GatewayError> {
    let look = |snapshot: &Snapshot| {
        let (key, account) = snapshot.authenticate(secret, Timestamp::now())?;
        Some(admit(gateway, parts, key, account))
    };
    if let Some(accepted) = look(&gateway.directory.snapshot()) {
        return accepted;
    }
    // The key may have been created a moment ago.
    gateway.directory.refresh_for(secret).await;
    look(&gateway.directory.snapshot()).unwrap_or_else(|| Err(GatewayError::unknown_key()))
}

/// Authenticates the session of a browser. A request without a session gets the error `missing`.
async fn accept_session(
    parts: &Parts,
    gateway: &Arc<Gateway>,
    missing: fn() -> GatewayError,
) -> Result<Caller, GatewayError> {
    let cookie = cookie::session(parts).filter(|_| gateway.settings.console.enabled);
    let cookie = cookie.ok_or_else(missing)?;
    cookie::check(parts)?;
    let now = Timestamp::now();
    let session = gateway.logins.session(cookie.secret, now).await?;
    let session = session.ok_or_else(GatewayError::session_ended)?;
    let snapshot = gateway.directory.snapshot();
    if let Some(id) = session.key {
        let found = snapshot.key(id, now);
        let (key, account) = found.ok_or_else(GatewayError::session_ended)?;
        return admit(gateway, parts, key, account);
    }
    let chosen = cookie.account.and_then(|id| snapshot.by_id(id));
    let account = chosen.or_else(|| snapshot.account(LOCAL_ACCOUNT));
    let account = account.ok_or_else(GatewayError::session_ended)?;
    let key = ApiKey {
        // Keys have positive numbers.
        id: 0,
        name: "console".to_owned(),
        account: account.id,
        permissions: Permissions::ALL,
        created_at: now,
        expires_at: Some(session.expires_at),
        revoked_at: None,
    };
    Ok(Caller {
        key: None,
        ..count(gateway, parts, &key, account)?
    })
}

/// Returns the caller of a known key, unless its account is blocked or at its limit.
fn admit(
    gateway: &Gateway,
    parts: &Parts,
    key: &ApiKey,
    account: &Account,
) -> Result<Caller, GatewayError> {
    if account.blocked {
        note_owner(parts, key, account);
        return Err(GatewayError::blocked());
    }
    count(gateway, parts, key, account)
}

/// Returns the caller of a key, unless its account is at its limit.
fn count(
    gateway: &Gateway,
    parts: &Parts,
    key: &ApiKey,
    account: &Account,
) -> Result<Caller, GatewayError> {
    let known = note_owner(parts, key, account);
    if let Some(connected) = parts.extensions.get::<Arc<Connected>>() {
        connected.open.showed_key();
    }
    count_in_flight(gateway, known, key)?;
    Ok(Caller {
        account: account.id,
        permissions: key.permissions,
        key: Some(key.id),
    })
}

/// Notes for the log who sent a request.
fn note_owner<'p>(
    parts: &'p Parts,
    key: &ApiKey,
    account: &Account,
) -> Option<&'p Arc<RequestFacts>> {
    let known = parts.extensions.get::<Arc<RequestFacts>>()?;
    // It is set once per request.
    let _ = known.caller.set(KeyOwner {
        id: account.id,
        account: account.name.clone(),
        key: key.name.clone(),
    });
    Some(known)
}

/// Counts a request as in flight for its key, once per request.
fn count_in_flight(
    gateway: &Gateway,
    known: Option<&Arc<RequestFacts>>,
    key: &ApiKey,
) -> Result<(), GatewayError> {
    let Some(known) = known.filter(|known| known.place.get().is_none()) else {
        return Ok(());
    };
    let limits = &gateway.settings.limits;
    let place = gateway.in_flight.begin(key.id, key.account, limits);
    let place = place.map_err(|met| {
        let who = format_args!("key {} of account {}", key.name, key.account.0).to_string();
        gateway.limit_met(met.limit, &who);
        GatewayError::too_many_requests(met)
    })?;
    // It was empty above, and one task answers a request.
    let _ = known.place.set(place);
    Ok(())
}

/// The viewer of a page that needs no key: the account of a valid key, if one is sent. An invalid
/// key counts as no key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Viewer(pub(super) Option<AccountId>);

impl FromRequestParts<Arc<Gateway>> for Viewer {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let caller = Caller::from_request_parts(parts, gateway).await;
        Ok(Self(caller.ok().map(|caller| caller.account)))
    }
}

/// Returns the key of a request: from `MLP-API-KEY`, else from `Authorization`, with or without
/// `Bearer`.
fn secret(headers: &HeaderMap) -> Option<&str> {
    api_key(headers).or_else(|| authorization(headers))
}

fn api_key(headers: &HeaderMap) -> Option<&str> {
    text(headers, &API_KEY)
}

fn authorization(headers: &HeaderMap) -> Option<&str> {
    let value = text(headers, &header::AUTHORIZATION)?;
    match value.split_once(char::is_whitespace) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => {
            let key = key.trim();
            (!key.is_empty()).then_some(key)
        }
        _ if value.eq_ignore_ascii_case("bearer") => None,
        _ => Some(value),
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let value = headers.get(name)?;
    // Keys are ASCII: other text is replaced by an invalid key.
    let value = value.to_str().unwrap_or("?").trim();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &'static str)]) -> Option<String> {
        let headers = headers.iter();
        let headers: HeaderMap = headers
            .map(|(name, value)| {
                let name = HeaderName::from_static(name);
                (name, axum::http::HeaderValue::from_static(value))
            })
            .collect();
        secret(&headers).map(str::to_owned)
    }

    #[test]
    fn keys_are_found_where_clients_put_them() {
        let found = |headers: &[(&'static str, &'static str)], key: &str| {
            assert_eq!(of(headers).as_deref(), Some(key), "{headers:?}");
        };
        found(&[("mlp-api-key", "k")], "k");
        found(&[("authorization", "k")], "k");
        found(&[("authorization", "Bearer k")], "k");
        found(&[("authorization", "bEARER  k ")], "k");
        found(
            &[("mlp-api-key", "own"), ("authorization", "Bearer k")],
            "own",
        );
        found(&[("mlp-api-key", " "), ("authorization", "Bearer k")], "k");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("authorization", "Bearer ")]), None);
    }
}
