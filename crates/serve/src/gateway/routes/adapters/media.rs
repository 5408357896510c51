//! Shared by the adapters for sounds and pictures: the service of a request, its config and its answer.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::super::Gateway;
use super::super::super::error::GatewayError;
use super::super::super::observe::RequestFacts;
use super::call;
use super::failed::call_error;
use crate::account::AccountId;
use crate::service::meter::ServiceOperation;
use crate::service::{Answer, Refusal, Request, Service, ServiceKind};

/// Returns the service that a request names, if it has a capability.
pub(super) fn service(
    gateway: &Gateway,
    caller: AccountId,
    known: &RequestFacts,
    (model, capability): (Option<&str>, &str),
) -> Result<Arc<Service>, GatewayError> {
    let model = model.ok_or_else(|| Refusal::at("model", "expected `author/service`"))?;
    let (_, service) = call::service(gateway, caller, model)?;
    // It is set once per request.
    let _ = known
        .asked
        .set((Arc::clone(&service), ServiceOperation::Predict));
    if has(&service, capability) {
        return Ok(service);
    }
    let message = format!("this service has not the capability `{capability}`");
    Err(Refusal::at("model", message).into())
}

/// Returns whether a service has a capability.
pub(super) fn has(service: &Service, wanted: &str) -> bool {
    match &service.kind {
        ServiceKind::Device(device) => {
            let mut capabilities = device.description().capabilities.iter();
            capabilities.any(|capability| capability == wanted)
        }
        _ => false,
    }
}

/// Returns the values of a request as a config, over those of the service's default config.
pub(super) async fn config(
    gateway: &Gateway,
    service: &Service,
    own: Map<String, Value>,
) -> Result<String, GatewayError> {
    let default = gateway.configs.default_of(service.id).await?;
    let default = default.and_then(|it| serde_json::from_str::<Map<_, _>>(&it.config).ok());
    let mut config = default.unwrap_or_default();
    config.extend(own);
    Ok(Value::Object(config).to_string())
}

/// Asks a service.
pub(super) async fn predicted(
    service: &Service,
    caller: AccountId,
    request: Request,
) -> Result<Answer, GatewayError> {
    let prepared = service.prepare(&request).await.map_err(call_error)?;
    drop(request);
    let timeout = Some(service.settings.predict_timeout());
    prepared.predict(caller, timeout).await.map_err(call_error)
}
