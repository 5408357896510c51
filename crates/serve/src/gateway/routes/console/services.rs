//! Routes of the console for services: their state, and what a form for their requests needs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::super::Gateway;
use super::super::super::auth::{Caller, Viewer};
use super::super::super::error::GatewayError;
use super::super::super::extract::InPath;
use super::super::super::form::ServicePath;
use super::super::super::visible::{VisibleService, visible};
use crate::account::AccountId;
use crate::service::{AdapterMethod, Device, Service, ServiceKind};
use pkgtool_media::MediaKind;
use pkgtool_media::answer::TypedAnswerKind;
use pkgtool_media::recipe::ModelRecipe;
use pkgtool_model::Dim;

/// A service in the list.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceSummary {
    account: String,
    name: String,
    /// Its name in the registry.
    shown: String,
    state: &'static str,
    /// The reason why it is inactive.
    reason: Option<String>,
    /// The kinds of requests that it takes, the usual one first.
    forms: Vec<&'static str>,
    capabilities: Vec<String>,
    backends: Vec<String>,
    waiting: usize,
    running: usize,
    trained: bool,
}

/// Returns the services that the caller may use or see.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
) -> Result<Json<Vec<ServiceSummary>>, GatewayError> {
    summaries(&gateway, caller.account).await.map(Json)
}

/// Returns the services that an account sees, sorted by owner and name.
pub(super) async fn summaries(
    gateway: &Arc<Gateway>,
    account: AccountId,
) -> Result<Vec<ServiceSummary>, GatewayError> {
    let seen = visible(gateway, Viewer(Some(account)));
    // The first request reads the headers of models and their recipes.
    let read = move || seen.iter().map(ServiceSummary::of).collect();
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|error| GatewayError::stopping().because(&error))
}

/// Returns what a form for a service needs.
pub(super) async fn one(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
) -> Result<Json<Value>, GatewayError> {
    let seen = visible(&gateway, Viewer(Some(caller.account)));
    let mut seen = seen.into_iter();
    let found = seen.find(|seen| {
        (&seen.service.owner_name, &seen.service.name) == (&path.account, &path.model)
    });
    let found = found.ok_or_else(|| GatewayError::no_entity("service", &path.model))?;
    let read = tokio::task::spawn_blocking(move || details(&found)).await;
    read.map(Json)
        .map_err(|error| GatewayError::stopping().because(&error))
}

impl ServiceSummary {
    fn of(seen: &VisibleService) -> Self {
        let service = &*seen.service;
        let reason = service.inactive_reason();
        let mut summary = Self {
            account: service.owner_name.clone(),
            name: service.name.clone(),
            shown: seen.name.clone(),
            state: if reason.is_none() {
                "ready"
            } else {
                "inactive"
            },
            reason,
            forms: forms(service),
            capabilities: Vec::new(),
            backends: Vec::new(),
            waiting: 0,
            running: 0,
            trained: false,
        };
        match &service.kind {
            ServiceKind::Device(device) => {
                let description = device.description();
                summary.capabilities.clone_from(&description.capabilities);
                summary.backends.clone_from(&description.backends);
                summary.trained = !description.labels.is_empty();
                let mut sessions = 0;
                for endpoint in device.endpoints() {
                    let activity = endpoint.activity();
                    summary.waiting += activity.waiting;
                    summary.running += activity.running;
                    sessions += activity.sessions;
                }
                if sessions > 0 && summary.reason.is_none() {
                    summary.state = "loaded";
                }
            }
            ServiceKind::Attached(attached) => {
                (summary.waiting, summary.running) = attached.activity();
            }
            ServiceKind::Proxy(_) => {
                summary.state = if summary.reason.is_none() {
                    "proxy"
                } else {
                    "inactive"
                }
            }
            ServiceKind::Untrained(_) => summary.state = "untrained",
        }
        summary
    }
}

/// Returns the kinds of requests, the usual one first.
fn forms(service: &Service) -> Vec<&'static str> {
    let ServiceKind::Device(device) = &service.kind else {
        return match service.kind {
            // Whether another process chats is not known here.
            ServiceKind::Proxy(_) | ServiceKind::Attached(_) => vec!["json", "chat"],
            _ => Vec::new(),
        };
    };
    let description = device.description();
    let mut forms = Vec::new();
    let recipe = device.recipes(None).into_iter().next();
    if !description.labels.is_empty() {
        forms.push(if description.takes.is_some() {
            "picture"
        } else {
            "texts"
        });
    } else if let Some(recipe) = recipe {
        forms.push(match (recipe.fitted.takes, recipe.fitted.answer) {
            (MediaKind::Picture, _) => "picture",
            (MediaKind::Sound, _) => "sound",
            (MediaKind::Text, TypedAnswerKind::Picture) => "painting",
            (MediaKind::Text, _) => "speech",
        });
    }
    if device.adapts(AdapterMethod::Chat) {
        // Chats about pictures come first: they take text alone, too.
        forms.insert(0, "chat");
    }
    if description.embeds_texts {
        forms.push("texts");
    }
    forms.push("tensors");
    forms
}

fn details(seen: &VisibleService) -> Value {
    let service = &*seen.service;
    let summary = ServiceSummary::of(seen);
    let ServiceKind::Device(device) = &service.kind else {
        return json!({"summary": summary});
    };
    let description = device.description();
    json!({
        "summary": summary,
        "family": description.family,
        "size": description.size,
        "license": description.license,
        "bytes": description.size_bytes,
        "labels": description.labels,
        "seesPictures": device.sees_pictures(),
        "variants": variants(device),
        "methods": methods(device),
        "recipes": device.recipes(None).into_iter().map(recipe).collect::<Vec<_>>(),
        "defaultBackend": description.default_backend,
        "defaultPrecision": description.default_precision,
    })
}

/// Returns the variants, each with whether an engine here runs it.
fn variants(device: &Device) -> Vec<Value> {
    let description = device.description();
    let mut variants = Vec::new();
    for backend in &description.backends {
        for (precision, quantized) in description.precisions_of(backend) {
            let mut methods = description.signatures.iter();
            let first =
                methods.find(|method| method.backend == *backend && method.precision == *precision);
            variants.push(json!({
                "backend": backend,
                "precision": precision,
                "quantized": quantized,
                "reason": first.and_then(|method| method.not_runnable.clone()),
            }));
        }
    }
    variants
}

/// Returns the methods with their inputs.
fn methods(device: &Device) -> Vec<Value> {
    let methods = device.description().signatures.iter();
    methods
        .map(|method| {
            let inputs = method.inputs.iter().map(|input| {
                let dims = input.dims.as_ref();
                json!({
                    "name": input.name,
                    "dtype": input.dtype.to_string(),
                    "text": input.to_string(),
                    "shape": dims.map(|dims| dims.iter().map(Dim::config_size).collect::<Vec<_>>()),
                })
            });
            json!({
                "backend": method.backend,
                "precision": method.precision,
                "component": method.component,
                "method": method.method,
                "inputs": inputs.collect::<Vec<_>>(),
            })
        })
        .collect()
}

fn recipe(recipe: &ModelRecipe) -> Value {
    let settings = recipe.settings();
    let settings = settings
        .map(|(name, value, kind)| json!({"name": name, "value": value, "schema": kind.schema()}));
    let fitted = &recipe.fitted;
    json!({
        "name": fitted.name,
        "summary": fitted.summary,
        "source": fitted.source,
        "answer": fitted.answer,
        "settings": settings.collect::<Vec<_>>(),
    })
}
