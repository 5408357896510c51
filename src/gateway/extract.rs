//! Parts of a request, each with an error of ours if it is wrong.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header;
use axum::http::request::Parts;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::Gateway;
use super::error::Error;

/// Parameters in the path.
#[derive(Debug)]
pub(super) struct InPath<T>(pub(super) T);

/// Parameters in the query.
#[derive(Debug)]
pub(super) struct InQuery<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Gateway>> for InPath<T> {
    type Rejection = Error;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let found: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, gateway).await;
        match found {
            Ok(Path(found)) => Ok(Self(found)),
            Err(error) => Err(Error::bad_request(error.body_text()).with("place", "path")),
        }
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Gateway>> for InQuery<T> {
    type Rejection = Error;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let found: Result<Query<T>, QueryRejection> =
            Query::from_request_parts(parts, gateway).await;
        match found {
            Ok(Query(found)) => Ok(Self(found)),
            Err(error) => Err(Error::bad_request(error.body_text()).with("place", "query")),
        }
    }
}

/// Reads the whole body of a request. Called once it is clear that the request may be made: a stranger's
/// body is not read.
pub(super) async fn read_body(gateway: &Gateway, request: Request) -> Result<Bytes, Error> {
    let settings = gateway.current();
    let limit = settings.limits.body_bytes;
    let patience = settings.timeouts.body();
    drop(settings);
    let declared = request.headers().get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|declared| declared > limit as u64) {
        return Err(Error::too_large(limit));
    }
    let read = Limited::new(request.into_body(), limit).collect();
    let read = tokio::time::timeout(patience, read).await;
    match read {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::too_large(limit)),
        Ok(Err(error)) => Err(Error::bad_request(format!(
            "the body could not be read: {error}"
        ))),
        Err(_) => Err(Error::new(
            StatusCode::REQUEST_TIMEOUT,
            "REQUEST_BODY_TIMEOUT",
            "the body did not arrive in time",
        )),
    }
}
