//! Routes of the console for logins: begin a session with a code or a key, end it, read it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::SET_COOKIE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::super::super::Gateway;
use super::super::super::auth::{self, Caller, OperatorCaller};
use super::super::super::cookie::{self, CONSOLE_HEADER, SessionCookie};
use super::super::super::error::GatewayError;
use super::accounts::account_error;
use super::read_json;
use crate::account::Permission;
use crate::database::Timestamp;

/// The secret with which a session begins: one of both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginRequest {
    /// A code of a link.
    code: Option<String>,
    /// An API key.
    key: Option<String>,
}

/// An account of the operator's choice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountChoice {
    account: String,
}

/// Who is logged in.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionData {
    account: String,
    account_id: i64,
    is_operator: bool,
    /// `predict`, `read`, `write`, or some of them.
    permissions: Vec<&'static str>,
    version: &'static str,
}

/// Begins a session.
pub(super) async fn log_in(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Response, GatewayError> {
    let (parts, body) = request.into_parts();
    // A form of another site cannot send the header, so it cannot log a browser in.
    if !parts.headers.contains_key(CONSOLE_HEADER) {
        return Err(GatewayError::not_of_console());
    }
    let given: LoginRequest = read_json(&gateway, body).await?;
    let (now, validity) = (
        Timestamp::now(),
        gateway.settings.console.session_validity(),
    );
    let begun = match (given.code, given.key) {
        (Some(code), None) => {
            let begun = gateway.logins.begin_with_code(&code, now, validity).await;
            begun.map_err(account_error)?.ok_or_else(unknown_code)?
        }
        (None, Some(key)) => {
            let caller = auth::accept(key.trim(), &parts, &gateway).await?;
            let key = caller.key.ok_or_else(GatewayError::unknown_key)?;
            let begun = gateway.logins.begin_with_key(key, now, validity).await;
            begun.map_err(account_error)?
        }
        _ => return Err(GatewayError::bad_request("expected `code` or `key`").with("place", "$")),
    };
    let begun = SessionCookie {
        secret: begun.reveal(),
        account: None,
    };
    Ok(with_cookie(&parts, begun, validity.as_secs()))
}

/// Ends the session.
pub(super) async fn log_out(
    State(gateway): State<Arc<Gateway>>,
    _caller: Caller,
    request: Request,
) -> Result<Response, GatewayError> {
    let (parts, _) = request.into_parts();
    if let Some(cookie) = cookie::session(&parts) {
        gateway.logins.end(cookie.secret).await?;
    }
    let none = SessionCookie {
        secret: "",
        account: None,
    };
    Ok(with_cookie(&parts, none, 0))
}

/// Changes the account whose tasks, trainings and services the operator sees and uses.
///
/// The path is beside that of the login, so that the cookie is for the same paths.
pub(super) async fn choose(
    State(gateway): State<Arc<Gateway>>,
    _: OperatorCaller,
    request: Request,
) -> Result<Response, GatewayError> {
    let (parts, body) = request.into_parts();
    let AccountChoice { account } = read_json(&gateway, body).await?;
    let snapshot = gateway.directory.snapshot();
    let chosen = snapshot.account(&account);
    let chosen = chosen.ok_or_else(|| GatewayError::no_entity("account", &account))?;
    let now = Timestamp::now();
    let secret = cookie::session(&parts).map(|cookie| cookie.secret);
    let secret = secret.ok_or_else(GatewayError::session_ended)?;
    let session = gateway.logins.session(secret, now).await?;
    let session = session.ok_or_else(GatewayError::session_ended)?;
    let chosen = SessionCookie {
        secret,
        account: Some(chosen.id),
    };
    let seconds = now.until(session.expires_at).as_secs();
    Ok(with_cookie(&parts, chosen, seconds))
}

/// Returns who is logged in.
pub(super) async fn session(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
) -> Result<Json<SessionData>, GatewayError> {
    let snapshot = gateway.directory.snapshot();
    let account = snapshot.by_id(caller.account);
    let account = account.ok_or_else(GatewayError::session_ended)?;
    let mut permissions = vec![
        ("predict", Permission::Predict),
        ("read", Permission::Read),
        ("write", Permission::Write),
    ];
    permissions.retain(|(_, permission)| caller.permissions.allow(*permission));
    Ok(Json(SessionData {
        account: account.name.clone(),
        account_id: account.id.0,
        is_operator: caller.key.is_none(),
        permissions: permissions.into_iter().map(|(name, _)| name).collect(),
        version: env!("CARGO_PKG_VERSION"),
    }))
}

fn with_cookie(parts: &Parts, session: SessionCookie<'_>, seconds: u64) -> Response {
    let cookie = cookie::set(parts, session, seconds);
    (StatusCode::OK, [(SET_COOKIE, cookie)]).into_response()
}

fn unknown_code() -> GatewayError {
    GatewayError::new(
        StatusCode::UNAUTHORIZED,
        "mlp.gateway.login_code_not_found",
        "the link was already used or has expired; `pkgtool keys link` prints a new one",
    )
}
