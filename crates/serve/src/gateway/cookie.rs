//! The cookie of a browser's session, and the checks that keep other sites from using it.
//!
//! Invariant: a request that a page of another site caused has no session, and one that changes
//! anything needs a header that such a page cannot send.

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use super::error::GatewayError;
use crate::account::{AccountId, number};

/// The header that the console's pages send with every change. It is not among the headers that
/// pages of other origins may send.
pub(super) const CONSOLE_HEADER: HeaderName = HeaderName::from_static("x-pkgtool-console");

/// Start of the cookie's name. Browsers send cookies to all ports of a host, so the name has the
/// port.
const COOKIE_PREFIX: &str = "pkgtool_session";

/// The header in which browsers say which site caused a request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The session that a cookie names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SessionCookie<'c> {
    /// The secret of the session.
    pub(super) secret: &'c str,
    /// The account that the operator has chosen.
    pub(super) account: Option<AccountId>,
}

/// Returns the session of a request's cookie.
pub(super) fn session(parts: &Parts) -> Option<SessionCookie<'_>> {
    let name = name(parts);
    let cookies = parts.headers.get_all(header::COOKIE).into_iter();
    let mut pairs = cookies
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(known, _)| *known == name)?;
    let (secret, account) = match value.split_once('.') {
        Some((secret, account)) => (secret, number(account).map(AccountId)),
        None => (value, None),
    };
    (!secret.is_empty()).then_some(SessionCookie { secret, account })
}

/// Checks that a page of the console may have sent the request.
pub(super) fn check(parts: &Parts) -> Result<(), GatewayError> {
    let site = parts.headers.get(FETCH_SITE);
    let is_own = site.is_none_or(|site| site == "same-origin" || site == "none");
    let reads = [Method::GET, Method::HEAD].contains(&parts.method);
    if is_own && (reads || parts.headers.contains_key(CONSOLE_HEADER)) {
        return Ok(());
    }
    Err(GatewayError::not_of_console())
}

/// Returns the value of `Set-Cookie` that begins a session, or ends it if the secret is empty.
///
/// Without a path, a browser takes the directory of the request, which may be a proxy's prefix.
pub(super) fn set(parts: &Parts, session: SessionCookie<'_>, seconds: u64) -> HeaderValue {
    let name = name(parts);
    let secure = if is_encrypted(&parts.headers) {
        "; Secure"
    } else {
        ""
    };
    let SessionCookie { secret, account } = session;
    let account = account.map_or_else(String::new, |account| format!(".{}", account.0));
    let cookie =
        format!("{name}={secret}{account}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    // Secrets are ASCII.
    HeaderValue::from_str(&cookie).unwrap_or(HeaderValue::from_static(""))
}

/// Returns whether the page came by HTTPS, as the browser says, even if a proxy ends TLS.
fn is_encrypted(headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN);
    origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// Returns the cookie's name for the host that the browser asked.
fn name(parts: &Parts) -> String {
    let host = parts.headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(Authority::as_str));
    let port = host.and_then(|host| host.rsplit_once(':'));
    match port {
        Some((_, port)) if port.bytes().all(|it| it.is_ascii_digit()) => {
            format!("{COOKIE_PREFIX}_{port}")
        }
        _ => COOKIE_PREFIX.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/login");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn a_session_belongs_to_a_port() {
        let cookies = "a=1; pkgtool_session_8080=ps_a; pkgtool_session_80=ps_b.12";
        let of = |host: &str| {
            let parts = parts("GET", &[("host", host), ("cookie", cookies)]);
            session(&parts).map(|it| (it.secret.to_owned(), it.account))
        };
        assert_eq!(of("localhost:8080"), Some(("ps_a".to_owned(), None)));
        let account = Some(AccountId(12));
        assert_eq!(of("[::1]:80"), Some(("ps_b".to_owned(), account)));
        assert_eq!(of("localhost:81"), None);
        assert_eq!(of("localhost"), None);
    }

    #[test]
    fn changes_need_the_header_and_other_sites_get_nothing() {
        let may = |method: &str, headers: &[(&str, &str)]| check(&parts(method, headers)).is_ok();
        let console = ("x-pkgtool-console", "1");
        assert!(may("GET", &[]));
        assert!(may("GET", &[("sec-fetch-site", "same-origin")]));
        assert!(may("GET", &[("sec-fetch-site", "none")]));
        assert!(!may("GET", &[("sec-fetch-site", "same-site")]));
        assert!(!may("GET", &[("sec-fetch-site", "cross-site")]));
        assert!(!may("POST", &[]));
        assert!(!may("DELETE", &[("sec-fetch-site", "same-origin")]));
        assert!(may("POST", &[console]));
        assert!(!may("POST", &[console, ("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn the_cookie_is_secure_behind_https() {
        let cookie = |headers: &[(&str, &str)]| {
            let session = SessionCookie {
                secret: "ps_a",
                account: None,
            };
            let set = set(&parts("POST", headers), session, 60);
            set.to_str().expect("text").to_owned()
        };
        let plain = "pkgtool_session=ps_a; Max-Age=60; HttpOnly; SameSite=Strict";
        assert_eq!(cookie(&[]), plain);
        assert_eq!(cookie(&[("origin", "http://a")]), plain);
        assert_eq!(
            cookie(&[("origin", "https://a")]),
            format!("{plain}; Secure")
        );
    }
}
