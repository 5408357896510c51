//! Answers a request of a chat adapter: from its body to the service's answer.
//!
//! Invariant: report missing credentials, permission and rate before the body is read, then an
//! unknown service, then other errors of the body.

use std::sync::Arc;

use axum::extract::{FromRequestParts as _, Request as HttpRequest};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;

use super::super::super::Gateway;
use super::super::super::auth::AdapterCaller;
use super::super::super::body::read_body;
use super::super::super::error::GatewayError;
use super::super::super::observe::RequestFacts;
use super::super::predict::{answered, name_worker};
use super::failed::{call_error, unknown_model};
use super::relay::Relay;
use super::split::{BodyFields, ModelId};
use super::tally::UsageTally;
use crate::account::{AccountId, Permission};
use crate::database::Timestamp;
use crate::service::meter::ServiceOperation;
use crate::service::{
    AdapterCall, AdapterMode, Body, BodyReservation, Prepared, Request, Service, json,
};

/// Larger answers are parsed on a blocking thread, in bytes.
const LARGE_ANSWER_BYTES: usize = 1 << 18;

/// A request of an adapter, for one service.
struct AdapterRequest {
    service: Arc<Service>,
    request: Request,
    /// The client wants events.
    streams: bool,
}

/// A request whose key and rate are checked.
pub(in crate::gateway) struct AdmittedRequest {
    pub(in crate::gateway) caller: AccountId,
    pub(in crate::gateway) known: Arc<RequestFacts>,
    pub(in crate::gateway) body: (Bytes, Arc<BodyReservation>),
    /// It is a request of a batch, and gives way to all others.
    pub(in crate::gateway) in_background: bool,
}

/// Checks the key and the rate of a request, then reads its body.
pub(super) async fn admitted(
    gateway: &Arc<Gateway>,
    request: HttpRequest,
) -> Result<AdmittedRequest, GatewayError> {
    let (mut parts, body) = request.into_parts();
    let AdapterCaller(caller) = AdapterCaller::from_request_parts(&mut parts, gateway).await?;
    let caller = caller.require(Permission::Predict)?;
    let limit = gateway.limit(caller)?;
    let admitted = gateway.store.admit(caller, limit, Timestamp::now()).await;
    admitted.map_err(|error| gateway.refusal(caller, error))?;
    let known = parts.extensions.get::<Arc<RequestFacts>>().map(Arc::clone);
    let known = known.unwrap_or_default();
    let request = HttpRequest::from_parts(parts, body);
    Ok(AdmittedRequest {
        caller,
        known,
        body: read_body(gateway, caller, request).await?,
        in_background: false,
    })
}

/// Answers a request of an adapter.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    request: HttpRequest,
    call: AdapterCall,
) -> Result<Response, GatewayError> {
    let admitted = admitted(gateway, request).await?;
    answer_admitted(gateway, admitted, call).await
}

/// Answers a request of an adapter whose key and rate are checked.
pub(super) async fn answer_admitted(
    gateway: &Arc<Gateway>,
    admitted: AdmittedRequest,
    call: AdapterCall,
) -> Result<Response, GatewayError> {
    let AdmittedRequest {
        caller,
        known,
        body,
        in_background,
    } = admitted;
    let mut asked = read(gateway, caller, &known, call, body).await?;
    asked.request.in_background = in_background;
    let AdapterRequest {
        service,
        request,
        streams,
    } = asked;
    let prepared = service.prepare(&request).await.map_err(call_error)?;
    drop(request);
    let tally = UsageTally::new(&gateway.usage, caller, service.id);
    let timeout = if in_background {
        service.settings.async_timeout()
    } else {
        Some(service.settings.predict_timeout())
    };
    if streams {
        let ends = call.mode == AdapterMode::Standard;
        let answering = Box::pin(prepared.predict(caller, timeout));
        let relay = Relay::asked(answering, tally, known.id(), ends);
        return relay.respond().await;
    }
    whole(prepared, (caller, timeout), tally, &known).await
}

/// Answers a client that did not ask for events.
async fn whole(
    prepared: Prepared,
    (caller, timeout): (AccountId, Option<std::time::Duration>),
    mut tally: UsageTally,
    known: &RequestFacts,
) -> Result<Response, GatewayError> {
    let answer = prepared
        .predict(caller, timeout)
        .await
        .map_err(call_error)?;
    tally.answered(&answer);
    let body = match answer.body {
        Body::Whole(body) => body,
        Body::Stream(chunks) => {
            let relay = Relay::passthrough(chunks, answer.content_type, tally, known.id());
            let mut response = relay.respond().await?;
            name_worker(&mut response, answer.worker);
            return Ok(response);
        }
    };
    tally.begins();
    if body.len() <= LARGE_ANSWER_BYTES {
        tally.reported.read_answer(&body);
    } else if answer.spent.is_none() {
        let looked_at = body.clone();
        // The usage is counted even if the client disconnects.
        let looking = tokio::task::spawn_blocking(move || tally.reported.read_answer(&looked_at));
        // The tally counts the result itself.
        let _ = looking.await;
    }
    let mut response = answered(answer.status, answer.content_type, body);
    name_worker(&mut response, answer.worker);
    Ok(response)
}

/// Parses a body into a request for a service.
async fn read(
    gateway: &Gateway,
    caller: AccountId,
    known: &RequestFacts,
    call: AdapterCall,
    (body, memory): (Bytes, Arc<BodyReservation>),
) -> Result<AdapterRequest, GatewayError> {
    let fields = BodyFields::read(&body)?;
    let model = fields.model()?;
    let (id, service) = service(gateway, caller, &model)?;
    // It is set once per request.
    let _ = known
        .asked
        .set((Arc::clone(&service), ServiceOperation::Predict));
    let model = id.model.as_deref();
    let (data, config, streams) = match call.mode {
        AdapterMode::Standard => {
            let streams = fields.stream()?;
            let default = gateway.configs.default_of(service.id).await?;
            let default = default.as_ref().map(|default| default.config.as_str());
            let split = fields.split(call.method, model, default)?;
            (split.data, Some(split.config), streams)
        }
        // All other fields are up to the service.
        AdapterMode::Direct => {
            let streams = matches!(fields.stream(), Ok(true));
            (fields.with_model(model), None, streams)
        }
    };
    drop(fields);
    drop(body);
    Ok(AdapterRequest {
        service,
        request: Request {
            body: memory.keep(data.into_bytes()),
            config,
            data_type: Some(call.data_type().to_owned()),
            accept: None,
            memory: Some(memory),
            in_background: false,
        },
        streams: streams && call.method.streams(),
    })
}

/// Returns the service of a model's id, if the caller may use it and an engine may answer.
pub(super) fn service(
    gateway: &Gateway,
    caller: AccountId,
    model: &str,
) -> Result<(ModelId, Arc<Service>), GatewayError> {
    let id = ModelId::read(model).ok_or_else(|| {
        let expected = "expected author/service, or author/service/model";
        unknown_model(&format!("unknown model {}: {expected}", json::shown(model)))
    })?;
    let found = gateway.service_for(caller, &id.author, &id.service);
    let found = found.map_err(|error| {
        if error.status == StatusCode::BAD_REQUEST {
            return unknown_model(&format!("unknown model {}", json::shown(model)));
        }
        error.with("place", "$.model")
    })?;
    if !found.may_answer() {
        let reason = found.inactive_reason();
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let model = json::shown(model);
        let error = unknown_model(&format!("the model {model} cannot answer{reason}"));
        return Err(error.away(found.is_away()));
    }
    Ok((id, found))
}
