//! Forms with a file that is too large for memory, and names of files in headers.

use std::fmt::Write as _;

use axum::http::{HeaderMap, header};
use multer::Multipart;

use super::body::IncomingBody;
use super::error::GatewayError;

/// Returns the form in a body that is being received. Its parts are read as they arrive.
pub(super) fn form_of(arriving: IncomingBody, boundary: String) -> Multipart<'static> {
    let pieces = futures_util::stream::try_unfold(arriving, async |mut arriving| {
        let piece = arriving.next().await.map_err(BodyReadError)?;
        Ok::<_, BodyReadError>(piece.map(|piece| (piece, arriving)))
    });
    Multipart::new(Box::pin(pieces), boundary)
}

/// The bytes of a form could not be received.
#[derive(Debug, thiserror::Error)]
#[error("the body could not be read")]
struct BodyReadError(GatewayError);

/// Returns the error of a malformed form, or the error of the body if that failed.
pub(super) fn malformed(error: multer::Error) -> GatewayError {
    match error {
        multer::Error::StreamReadFailed(source) => match source.downcast::<BodyReadError>() {
            Ok(broken) => broken.0,
            Err(other) => GatewayError::bad_request(format!("the form could not be read: {other}")),
        },
        other => GatewayError::bad_request(format!("invalid form: {other}")).with("place", "$"),
    }
}

/// Returns the boundary of a form; `None` if the body is not a form.
pub(super) fn boundary(headers: &HeaderMap) -> Result<Option<String>, GatewayError> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind
        .trim_start()
        .to_ascii_lowercase()
        .starts_with("multipart/")
    {
        return Ok(None);
    }
    let boundary = multer::parse_boundary(kind);
    boundary.map(Some).map_err(|error| {
        GatewayError::bad_request(format!("the form has no boundary: {error}"))
            .with("place", "Content-Type")
    })
}

/// Returns a file's name without directories and without characters that headers cannot hold.
pub(super) fn plain_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let kept = name.chars().filter(|c| !c.is_control()).take(200);
    kept.collect()
}

/// Returns the header that carries a file's name (RFC 6266).
pub(super) fn disposition(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._- ".contains(c);
    let ascii: String = name
        .chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect();
    if ascii == name {
        return format!("attachment; filename=\"{ascii}\"");
    }
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}
