//! Routes that list the services a key may use, as models of the chat-completion interface.
//!
//! Invariant: every listed model can be called by its id and supports at least one adapter method.
//! A key is required.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::super::Gateway;
use super::super::super::auth::{AdapterCaller, Viewer};
use super::super::super::error::GatewayError;
use super::super::super::extract::InPath;
use super::super::super::visible::usable;
use super::super::operation::{BodySchema, REFUSED, RouteOperation};
use super::super::path::Routes;
use super::call::service;
use super::{images, media, speech, transcription};
use crate::service::{AdapterMethod, Service, ServiceKind};

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    // An id contains slashes, encoded or not. OpenAPI cannot describe such paths.
    let read = RouteOperation::get("/models/{id}", "readModel", read)
        .about("Read a model by its id, plain or percent-encoded.")
        .named::<String>("id", "author/service, or author/service/model")
        .answers("The model", BodySchema::of::<AdapterModel>())
        .refuses(REFUSED);
    let list = RouteOperation::get("/models", "listModels", list)
        .about("List the models that the key may use.")
        .answers(
            "Services that support a method of the adapters",
            BodySchema::of::<ModelList>(),
        )
        .refuses(REFUSED);
    Routes::new("adapters", &["bearer", "key"])
        .add(list)
        .add_at("/models/{*id}", read)
}

/// A list of models.
#[derive(Debug, Serialize, ToSchema)]
struct ModelList {
    /// `list`.
    object: &'static str,
    data: Vec<AdapterModel>,
}

/// A service, as a model.
#[derive(Debug, Serialize, ToSchema)]
struct AdapterModel {
    /// `author/service`.
    id: String,
    /// `model`.
    object: &'static str,
    /// Creation time of the service, Unix timestamp in seconds.
    created: i64,
    /// The account that owns the service.
    owned_by: String,
}

impl AdapterModel {
    fn of(service: &Service, id: String) -> Self {
        let created = match &service.kind {
            ServiceKind::Device(device) => device.description().created_at,
            ServiceKind::Proxy(upstream) => upstream.since(),
            ServiceKind::Attached(attached) => attached.since(),
            ServiceKind::Untrained(untrained) => untrained.since,
        };
        Self {
            id,
            object: "model",
            created: created.0.div_euclid(1000),
            owned_by: service.owner_name.clone(),
        }
    }
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
) -> Json<ModelList> {
    let usable = usable(&gateway, Viewer(Some(caller.account)));
    let usable = usable.iter().filter(|service| is_model(service));
    let data = usable.map(|service| AdapterModel::of(service, service.label().to_string()));
    Json(ModelList {
        object: "list",
        data: data.collect(),
    })
}

async fn read(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
    InPath(id): InPath<String>,
) -> Result<Json<AdapterModel>, GatewayError> {
    let (_, service) = service(&gateway, caller.account, &id)?;
    Ok(Json(AdapterModel::of(&service, id)))
}

/// Returns `true` if a service supports at least one method of the adapters.
fn is_model(service: &Service) -> bool {
    let mut methods = AdapterMethod::ALL.into_iter();
    let answers = methods.any(|method| service.check_adapter_method(method).is_ok());
    let media = [
        transcription::CAPABILITY,
        speech::CAPABILITY,
        images::CAPABILITY,
    ];
    let mut of_media = media.into_iter();
    let sounds = of_media.any(|capability| media::has(service, capability));
    service.is_active() && (answers || sounds)
}
