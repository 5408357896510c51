//! Routes for synchronous predict requests.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::TryStreamExt as _;

use super::super::error::GatewayError;
use super::super::form::{
    JsonForm, Predict2RequestData, PredictRequest, PredictRequestData, RawForm, RawParameters,
    ServicePath, StringForm,
};
use super::super::observe::AnsweredBy;
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use crate::service;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let operations = [
        RouteOperation::post(
            "/account/{account}/model/{model}/predict",
            "predict",
            predict::<RawForm>,
        ),
        RouteOperation::post(
            "/account/{account}/model/{model}/predict-with-config",
            "predictWithConfig",
            predict::<JsonForm>,
        ),
        RouteOperation::post(
            "/account/{account}/model/{model}/predict-with-config-v2",
            "predictWithConfigV2",
            predict::<StringForm>,
        ),
    ];
    let operations = of_forms("Predict", operations).map(|operation| {
        operation
            .answers_as_service("The service's answer, in its media type")
            .answers_as_upstream()
            .fails("The service did not answer")
    });
    Routes::new("predict", &["key"]).add_all(operations)
}

/// Describes the operations of the three forms of a predict request.
pub(super) fn of_forms(
    verb: &str,
    [raw, json, strings]: [RouteOperation; 3],
) -> [RouteOperation; 3] {
    let data = Some("Predict data in the service's own format");
    [
        raw.about(&format!("{verb} with a raw body."))
            .with::<ServicePath>()
            .with::<RawParameters>()
            .may_take(data, BodySchema::plain::<serde_json::Value>()),
        json.about(&format!("{verb} with data and config."))
            .with::<ServicePath>()
            .takes::<PredictRequestData<'static>>(),
        strings
            .about(&format!("{verb} with data and config as strings."))
            .with::<ServicePath>()
            .takes::<Predict2RequestData>(),
    ]
}

/// Answers a predict request.
pub(super) async fn predict<F>(request: PredictRequest<F>) -> Result<Response, GatewayError> {
    let call = request.call;
    let prepared = call.service.prepare(&call.request).await?;
    drop(call.request);
    let limit = call.service.settings.predict_timeout();
    let answer = prepared.predict(call.caller, Some(limit)).await?;
    let (content_type, worker) = (answer.content_type, answer.worker);
    let mut response = match answer.body {
        service::Body::Whole(body) => answered(answer.status, content_type, body),
        service::Body::Stream(chunks) => {
            // The status was already sent, so the error only ends the body and is logged.
            let chunks = chunks.inspect_err(|error| {
                tracing::warn!(%error, "the answer was interrupted");
            });
            answered(answer.status, content_type, Body::from_stream(chunks))
        }
    };
    name_worker(&mut response, worker);
    Ok(response)
}

/// Names the attached instance that answered.
pub(super) fn name_worker(response: &mut Response, worker: Option<String>) {
    if let Some(worker) = worker {
        response.extensions_mut().insert(AnsweredBy(worker));
    }
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
