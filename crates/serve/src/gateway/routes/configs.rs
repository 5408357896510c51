//! Routes for predict configs of a service: stored configs that requests select by id.

use std::sync::Arc;

use axum::Json;
use axum::extract::{self, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::body::read_body;
use super::super::error::GatewayError;
use super::super::extract::InPath;
use super::super::form::ServicePath;
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use crate::account::{NewConfig, Permission, PredictConfig, number};
use crate::database::Timestamp;
use crate::service::Service;

/// Maximum length of a config's name, in characters.
const MAX_NAME_LENGTH: usize = 200;

/// Maximum size of a config, in bytes.
const MAX_CONFIG_BYTES: usize = 64 << 10;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let all = "/account/{account}/model/{model}/predict-config";
    let one = "/account/{account}/model/{model}/predict-config/{config}";
    let of_one = |operation: RouteOperation| {
        operation
            .with::<ServicePath>()
            .named::<i64>("config", "The config's number")
    };
    let operations = [
        RouteOperation::get(all, "listPredictConfigs", list)
            .about("List the predict configs of a service.")
            .with::<ServicePath>()
            .answers(
                "Configs, oldest first",
                BodySchema::list::<PredictConfigData>(),
            )
            .fails("The configs could not be read"),
        RouteOperation::post(all, "createPredictConfig", create)
            .about("Store a predict config.")
            .with::<ServicePath>()
            .takes::<NewPredictConfig>()
            .answers("The stored config", BodySchema::of::<PredictConfigData>())
            .fails("The config could not be stored"),
        of_one(RouteOperation::get(one, "readPredictConfig", read))
            .about("Read a predict config.")
            .answers("The config", BodySchema::of::<PredictConfigData>())
            .fails("The config could not be read"),
        of_one(RouteOperation::delete(one, "deletePredictConfig", delete))
            .about("Delete a predict config.")
            .succeeds("The config is deleted")
            .fails("The config could not be deleted"),
    ];
    Routes::new("services", &["key"]).add_all(operations)
}

/// A stored predict config.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PredictConfigData {
    id: PredictConfigId,
    name: String,
    /// `true` for the config that requests use by default.
    is_default: bool,
    /// The config as a JSON string.
    config: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "clients read these names")]
struct PredictConfigId {
    account_id: i64,
    model_id: i64,
    config_id: i64,
}

/// A predict config to store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NewPredictConfig {
    /// Name of the config.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// Make it the config that requests use by default.
    #[serde(default)]
    is_default: bool,
    /// The config: an object, or JSON as a string.
    #[schema(value_type = Object)]
    config: serde_json::Value,
}

impl PredictConfigData {
    fn of(service: &Service, config: &PredictConfig) -> Self {
        Self {
            id: PredictConfigId {
                account_id: service.owner.0,
                model_id: service.id,
                config_id: config.id,
            },
            name: config.name.clone(),
            is_default: config.is_default,
            config: config.config.clone(),
        }
    }
}

/// Returns the service in a path: for its owner, or with `reading` for any account that may use it.
pub(super) fn service(
    gateway: &Gateway,
    caller: Caller,
    permission: Permission,
    path: &ServicePath,
) -> Result<Arc<Service>, GatewayError> {
    let caller = caller.require(permission)?;
    let found = gateway.service_for(caller, &path.account, &path.model);
    let found = found.map_err(|error| error.for_reading("service", &path.model))?;
    if permission == Permission::Write && found.owner != caller {
        return Err(GatewayError::another_account());
    }
    Ok(found)
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
) -> Result<Json<Vec<PredictConfigData>>, GatewayError> {
    let service = service(&gateway, caller, Permission::Read, &path)?;
    let configs = gateway.configs.list(service.id).await?;
    let data = configs.iter();
    Ok(Json(
        data.map(|config| PredictConfigData::of(&service, config))
            .collect(),
    ))
}

async fn create(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
    request: extract::Request,
) -> Result<Json<PredictConfigData>, GatewayError> {
    let service = service(&gateway, caller, Permission::Write, &path)?;
    let (body, _memory) = read_body(&gateway, service.owner, request).await?;
    let new: NewPredictConfig =
        serde_json::from_slice(&body).map_err(|error| invalid_body(&error))?;
    require_name(&new.name)?;
    let text = config_text(new.config)?;
    let base = gateway.services.base_of(&service);
    let models = service.device().or_else(|| base.as_ref()?.device());
    if let Some(device) = models {
        device.check_config(&text)?;
    }
    let config = NewConfig {
        service: service.id,
        name: new.name,
        config: text,
        is_default: new.is_default,
    };
    let stored = gateway.configs.create(config, Timestamp::now()).await?;
    Ok(Json(PredictConfigData::of(&service, &stored)))
}

async fn read(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath((account, model, config)): InPath<(String, String, String)>,
) -> Result<Json<PredictConfigData>, GatewayError> {
    let path = ServicePath { account, model };
    let service = service(&gateway, caller, Permission::Read, &path)?;
    let found = match number(&config) {
        Some(id) => gateway.configs.get(service.id, id).await?,
        None => None,
    };
    let found = found.ok_or_else(|| GatewayError::no_entity("predict config", &config))?;
    Ok(Json(PredictConfigData::of(&service, &found)))
}

async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath((account, model, config)): InPath<(String, String, String)>,
) -> Result<StatusCode, GatewayError> {
    let path = ServicePath { account, model };
    let service = service(&gateway, caller, Permission::Write, &path)?;
    let deleted = match number(&config) {
        Some(id) => gateway.configs.delete(service.id, id).await?,
        None => false,
    };
    if deleted {
        Ok(StatusCode::OK)
    } else {
        Err(GatewayError::no_entity("predict config", &config))
    }
}

/// Returns the JSON text of a config that was sent as an object or as a string.
pub(super) fn config_text(config: serde_json::Value) -> Result<String, GatewayError> {
    let wrong = |message: String| GatewayError::bad_request(message).with("place", "$.config");
    let text = match config {
        serde_json::Value::String(text) => {
            let parsed: serde_json::Value = serde_json::from_str(&text)
                .map_err(|error| wrong(format!("invalid JSON: {error}")))?;
            if !parsed.is_object() {
                return Err(wrong("expected a JSON object in the string".to_owned()));
            }
            text
        }
        object @ serde_json::Value::Object(_) => object.to_string(),
        _ => return Err(wrong("expected an object, or JSON as a string".to_owned())),
    };
    if text.len() > MAX_CONFIG_BYTES {
        let message = format!("the config is too long: expected at most {MAX_CONFIG_BYTES} bytes");
        return Err(wrong(message));
    }
    Ok(text)
}

/// Checks the name of a config.
pub(super) fn require_name(name: &str) -> Result<(), GatewayError> {
    if name.trim().is_empty() || name.chars().count() > MAX_NAME_LENGTH {
        let message = format!("invalid name: expected 1 to {MAX_NAME_LENGTH} characters");
        return Err(GatewayError::bad_request(message).with("place", "$.name"));
    }
    Ok(())
}

/// Returns the error of a body that does not match its schema.
pub(super) fn invalid_body(error: &serde_json::Error) -> GatewayError {
    GatewayError::bad_request(format!("invalid body: {error}")).with("place", "$")
}
