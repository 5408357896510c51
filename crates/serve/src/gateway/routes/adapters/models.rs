//! Routes that list the services a key may use, as models of the chat-completion interface.
//!
//! Invariant: every listed model can be called by its id and supports at least one adapter method.
//! A key is required.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::super::super::Gateway;
use super::super::super::auth::{AdapterCaller, Viewer};
use super::super::super::error::{Error, ErrorBody};
use super::super::super::extract::InPath;
use super::super::super::visible::usable;
use super::super::path::{Routes, only};
use super::call::service;
use crate::service::{AdapterMethod, Kind, Service};

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    // An id contains slashes, encoded or not. OpenAPI cannot describe such paths.
    Routes::new()
        .routes(only(routes!(list)))
        .routes_at("/models/{*id}", only(routes!(read)))
}

/// A list of models.
#[derive(Debug, Serialize, ToSchema)]
struct ModelList {
    /// `list`.
    object: &'static str,
    data: Vec<Model>,
}

/// A service, as a model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdapterModel)]
struct Model {
    /// `author/service`.
    id: String,
    /// `model`.
    object: &'static str,
    /// Creation time of the service, Unix timestamp in seconds.
    created: i64,
    /// The account that owns the service.
    owned_by: String,
}

impl Model {
    fn of(service: &Service, id: String) -> Self {
        let created = match &service.kind {
            Kind::Device(device) => device.description().created_at,
            Kind::Proxy(upstream) => upstream.since(),
            Kind::Untrained(untrained) => untrained.since,
        };
        Self {
            id,
            object: "model",
            created: created.0.div_euclid(1000),
            owned_by: service.owner_name.clone(),
        }
    }
}

/// List the models that the key may use.
#[utoipa::path(
    get,
    path = "/models",
    tag = "adapters",
    operation_id = "listModels",
    responses(
        (status = 200, description = "Services that support a method of the adapters", body = ModelList),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
    ),
    security(("bearer" = []), ("key" = [])),
)]
async fn list(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
) -> Json<ModelList> {
    let usable = usable(&gateway, Viewer(Some(caller.account)));
    let usable = usable.iter().filter(|service| is_model(service));
    let data = usable.map(|service| Model::of(service, service.label().to_string()));
    Json(ModelList {
        object: "list",
        data: data.collect(),
    })
}

/// Read a model by its id, plain or percent-encoded.
#[utoipa::path(
    get,
    path = "/models/{id}",
    tag = "adapters",
    operation_id = "readModel",
    params(("id" = String, Path, description = "author/service, or author/service/model")),
    responses(
        (status = 200, description = "The model", body = Model),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
    ),
    security(("bearer" = []), ("key" = [])),
)]
async fn read(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
    InPath(id): InPath<String>,
) -> Result<Json<Model>, Error> {
    let (_, service) = service(&gateway, caller.account, &id)?;
    Ok(Json(Model::of(&service, id)))
}

/// Returns `true` if a service supports at least one method of the adapters.
fn is_model(service: &Service) -> bool {
    let mut methods = AdapterMethod::ALL.into_iter();
    service.is_active() && methods.any(|method| service.check_adapter_method(method).is_ok())
}
