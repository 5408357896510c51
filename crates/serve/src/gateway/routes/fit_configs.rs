//! Routes for training configurations of trainable services and the services derived from them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{self, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::body::read_body;
use super::super::error::GatewayError;
use super::super::extract::InPath;
use super::super::form::ServicePath;
use super::configs::{config_text, invalid_body, require_name, service};
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use crate::account::{AccountId, Permission};
use crate::database::Timestamp;
use crate::service::Service;
use crate::train::{FitConfig, FitOptions, NewFitConfig};

/// Id of the configuration that every trainable service has, with default values only.
const BUILT_IN_CONFIG_ID: i64 = 0;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let path = "/account/{account}/model/{model}/fit-config";
    let operations = [
        RouteOperation::get(path, "listFitConfigs", list)
            .about("Training configurations for services derived from this one.")
            .with::<ServicePath>()
            .answers(
                "Configs, oldest first; a derived service also has those of its base",
                BodySchema::list::<FitConfigData>(),
            )
            .fails("The configs could not be read"),
        RouteOperation::post(path, "createFitConfig", create)
            .about("Store a training configuration.")
            .with::<ServicePath>()
            .takes::<NewFitConfigData>()
            .answers("The stored config", BodySchema::of::<FitConfigData>())
            .refuses("The request was refused: 409 for a service that cannot be trained")
            .breaks("The config could not be stored"),
    ];
    Routes::new("training", &["key"]).add_all(operations)
}

/// A training configuration, as the OpenAPI document describes it. [`FitOptions`] parses it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FitConfigFields)]
#[expect(
    dead_code,
    reason = "it only describes the document; `FitOptions` parses it"
)]
pub(super) struct Fields {
    /// How vectors become labels. By default `logistic`; for fewer than 8 rows per label, the better one of
    /// both in cross-validation.
    method: Option<MethodChoice>,
    /// Strength of the penalty on squared weights: scikit-learn's 1/C. By default chosen by
    /// validation.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    l2: Option<f64>,
    /// Maximum number of iterations of L-BFGS.
    #[schema(minimum = 1, maximum = 100_000)]
    max_iterations: Option<u64>,
    /// Training ends when no component of the mean loss' gradient exceeds this value.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    tolerance: Option<f64>,
    /// Fraction of each label's rows that is reserved for validation.
    #[schema(minimum = 0, maximum = 0.9)]
    validation_fraction: Option<f64>,
    /// Random seed that selects those rows.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    seed: Option<u64>,
    /// Weights of rows by label; an object with a number for each label is accepted, too. Without
    /// it and `l2`, it is chosen by validation.
    class_weights: Option<WeightsChoice>,
    /// Truncate texts that are too long for the model.
    truncate: Option<bool>,
    /// Backend whose model computes embeddings.
    backend: Option<String>,
    /// Precision of that model.
    precision: Option<String>,
}

/// How vectors become labels.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = FitMethod)]
enum MethodChoice {
    Auto,
    Logistic,
    Centroids,
}

/// Weights of rows.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ClassWeights)]
enum WeightsChoice {
    Equal,
    Balanced,
}

/// A training configuration to store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NewFitConfigData {
    /// Name of the config.
    #[schema(pattern = "^[!-~]", max_length = 200)]
    name: String,
    /// Marks the config that clients should start with.
    #[serde(default)]
    is_default: bool,
    /// The config: an object, or JSON as a string.
    #[schema(value_type = Fields)]
    config: Value,
}

/// A training configuration.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct FitConfigData {
    id: FitConfigId,
    name: String,
    /// `true` for the config that clients should start with.
    is_default: bool,
    /// `true` for a stored config, `false` for the built-in one of every trainable service.
    is_manual: bool,
    /// The config as a JSON string.
    config: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "clients read these names")]
struct FitConfigId {
    account_id: i64,
    model_id: i64,
    config_id: i64,
}

impl FitConfigData {
    fn of(owner: AccountId, stored: FitConfig) -> Self {
        Self {
            id: FitConfigId {
                account_id: owner.0,
                model_id: stored.is.service,
                config_id: stored.id,
            },
            name: stored.is.name,
            is_default: stored.is.is_default,
            is_manual: true,
            config: stored.is.config,
        }
    }

    fn built_in(service: &Service, is_default: bool) -> Self {
        Self {
            id: FitConfigId {
                account_id: service.owner.0,
                model_id: service.id,
                config_id: BUILT_IN_CONFIG_ID,
            },
            name: "default".to_owned(),
            is_default,
            is_manual: false,
            config: FitOptions::default().to_json().to_string(),
        }
    }
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
) -> Result<Json<Vec<FitConfigData>>, GatewayError> {
    let service = service(&gateway, caller, Permission::Read, &path)?;
    let derived = gateway.jobs.derived().get(service.id);
    let trainable = service.is_trainable();
    let store = gateway.jobs.store();
    let mut configs = Vec::new();
    if let Some(derived) = &derived {
        let of_base = store.fit_configs(derived.is.base).await?.into_iter();
        configs.extend(of_base.map(|it| FitConfigData::of(derived.is.base_owner, it)));
    }
    let own = store.fit_configs(service.id).await?.into_iter();
    configs.extend(own.map(|it| FitConfigData::of(service.owner, it)));
    if trainable || derived.is_some() {
        let is_default = configs.iter().all(|config| !config.is_default);
        configs.insert(0, FitConfigData::built_in(&service, is_default));
    }
    Ok(Json(configs))
}

async fn create(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
    request: extract::Request,
) -> Result<Json<FitConfigData>, GatewayError> {
    let service = service(&gateway, caller, Permission::Write, &path)?;
    let is_derived = gateway.jobs.derived().get(service.id).is_some();
    let trainable = service.is_trainable();
    if !is_derived && !trainable {
        let message = format!("`{}` cannot be trained", service.label());
        return Err(GatewayError::conflict("SERVICE_IS_NOT_TRAINABLE", message));
    }
    let (body, _memory) = read_body(&gateway, service.owner, request).await?;
    let new: NewFitConfigData =
        serde_json::from_slice(&body).map_err(|error| invalid_body(&error))?;
    require_name(&new.name)?;
    let config = config_text(new.config)?;
    // The configuration of a service of the platform's SDKs is its own.
    if !trainer_of(&gateway, &service).is_some_and(|it| it.trains_like_platform()) {
        FitOptions::read_text(&config)?;
    }
    let new = NewFitConfig {
        service: service.id,
        name: new.name,
        config,
        is_default: new.is_default,
    };
    let store = gateway.jobs.store();
    let stored = store.create_fit_config(new, Timestamp::now()).await?;
    Ok(Json(FitConfigData::of(service.owner, stored)))
}

/// Returns the service whose model trains another one, or itself.
pub(super) fn trainer_of(gateway: &Gateway, service: &Service) -> Option<Arc<Service>> {
    let (owner, number) = match gateway.jobs.derived().get(service.id) {
        Some(derived) => (derived.is.base_owner, derived.is.base),
        None => (service.owner, service.id),
    };
    gateway.services.find(owner, &number.to_string())
}

/// Returns the text of a stored configuration: the service's own, its base's, or the built-in one.
pub(super) async fn stored_config(
    gateway: &Gateway,
    service: &Service,
    base: i64,
    id: i64,
) -> Result<String, GatewayError> {
    if id == BUILT_IN_CONFIG_ID {
        return Ok("{}".to_owned());
    }
    for of in [service.id, base] {
        let configs = gateway.jobs.store().fit_configs(of).await?;
        if let Some(found) = configs.into_iter().find(|config| config.id == id) {
            return Ok(found.is.config);
        }
    }
    Err(GatewayError::no_entity("fit config", &id.to_string()))
}
