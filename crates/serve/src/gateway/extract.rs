//! Extractors for the path and query of a request, with the gateway's own errors.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::de::{DeserializeOwned, Error as _, Unexpected};
use serde::{Deserialize as _, Deserializer};

use super::Gateway;
use super::error::GatewayError;
use crate::account::number;

/// Parameters of the path.
#[derive(Debug)]
pub(super) struct InPath<T>(pub(super) T);

/// Parameters of the query.
#[derive(Debug)]
pub(super) struct InQuery<T>(pub(super) T);

/// Deserializes a number of a query: ASCII digits only.
pub(super) fn digits<'de, N, D>(query: D) -> Result<Option<N>, D::Error>
where
    N: TryFrom<i64>,
    D: Deserializer<'de>,
{
    let Some(text) = Option::<String>::deserialize(query)? else {
        return Ok(None);
    };
    let read = number(&text).and_then(|number| N::try_from(number).ok());
    let expected = &"a number of digits only";
    read.map(Some)
        .ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), expected))
}

/// Checks the number of entries that a request wants from a list.
pub(super) fn list_limit(
    wanted: Option<usize>,
    default: usize,
    most: usize,
) -> Result<usize, GatewayError> {
    let wanted = wanted.unwrap_or(default);
    if (1..=most).contains(&wanted) {
        return Ok(wanted);
    }
    let message = format!("`limit` is {wanted}; it must be 1 to {most}");
    Err(GatewayError::bad_request(message).with("place", "limit"))
}

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Gateway>> for InPath<T> {
    type Rejection = GatewayError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let found: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, gateway).await;
        match found {
            Ok(Path(found)) => Ok(Self(found)),
            Err(error) => Err(GatewayError::bad_request(error.body_text()).with("place", "path")),
        }
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Gateway>> for InQuery<T> {
    type Rejection = GatewayError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let found: Result<Query<T>, QueryRejection> =
            Query::from_request_parts(parts, gateway).await;
        match found {
            Ok(Query(found)) => Ok(Self(found)),
            Err(error) => Err(GatewayError::bad_request(error.body_text()).with("place", "query")),
        }
    }
}
