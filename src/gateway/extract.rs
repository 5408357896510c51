//! Parts of a request, each with an error of ours if it is wrong.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
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
