//! Routes for synchronous predict requests.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::TryStreamExt as _;
use utoipa_axum::routes;

use super::super::error::{Error, ErrorBody};
use super::super::form::{
    JsonForm, Predict2RequestData, PredictCall, PredictRequest, PredictRequestData, RawForm,
    RawParameters, ServicePath, StringForm,
};
use super::path::{Routes, only};
use crate::service;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(only(routes!(raw)))
        .routes(only(routes!(with_config)))
        .routes(only(routes!(with_config_v2)))
}

/// Predict with a raw body.
#[utoipa::path(
    post,
    path = "/account/{account}/model/{model}/predict",
    tag = "predict",
    operation_id = "predict",
    params(ServicePath, RawParameters),
    request_body(content = Option<serde_json::Value>, content_type = "application/json", description = "Predict data in the service's own format"),
    responses(
        (status = 200, description = "The service's answer, in its media type", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The service answered without a body, which a proxy's upstream may do"),
        (status = "2XX", description = "Another success of a proxy's upstream", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("key" = [])),
)]
pub(super) async fn raw(
    PredictRequest { call, .. }: PredictRequest<RawForm>,
) -> Result<Response, Error> {
    answer(call).await
}

/// Predict with data and config.
#[utoipa::path(
    post,
    path = "/account/{account}/model/{model}/predict-with-config",
    tag = "predict",
    operation_id = "predictWithConfig",
    params(ServicePath),
    request_body(content = PredictRequestData<'static>, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer, in its media type", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The service answered without a body, which a proxy's upstream may do"),
        (status = "2XX", description = "Another success of a proxy's upstream", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn with_config(
    PredictRequest { call, .. }: PredictRequest<JsonForm>,
) -> Result<Response, Error> {
    answer(call).await
}

/// Predict with data and config as strings.
#[utoipa::path(
    post,
    path = "/account/{account}/model/{model}/predict-with-config-v2",
    tag = "predict",
    operation_id = "predictWithConfigV2",
    params(ServicePath),
    request_body(content = Predict2RequestData, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer, in its media type", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The service answered without a body, which a proxy's upstream may do"),
        (status = "2XX", description = "Another success of a proxy's upstream", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn with_config_v2(
    PredictRequest { call, .. }: PredictRequest<StringForm>,
) -> Result<Response, Error> {
    answer(call).await
}

async fn answer(call: PredictCall) -> Result<Response, Error> {
    let prepared = call.service.prepare(&call.request).await?;
    drop(call.request);
    let limit = call.service.settings.predict_timeout();
    let answer = prepared.predict(call.caller, Some(limit)).await?;
    let content_type = answer.content_type;
    Ok(match answer.body {
        service::Body::Whole(body) => answered(answer.status, content_type, body),
        service::Body::Stream(chunks) => {
            // The status was already sent, so the error only ends the body and is logged.
            let chunks = chunks.inspect_err(|error| {
                tracing::warn!(%error, "the answer was interrupted");
            });
            answered(answer.status, content_type, Body::from_stream(chunks))
        }
    })
}

/// Returns a service's answer as a response. Some statuses have no body.
pub(super) fn answered(status: u16, content_type: String, body: impl Into<Body>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
        return status.into_response();
    }
    let content_type = [(header::CONTENT_TYPE, content_type)];
    (status, content_type, body.into()).into_response()
}
