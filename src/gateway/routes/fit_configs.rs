//! Training configurations, of services that can be trained and of those derived from them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{self, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::body::read_body;
use super::super::error::{Error, ErrorBody};
use super::super::extract::InPath;
use super::super::form::ServicePath;
use super::configs::{config_text, require_name, service, wrong};
use super::path::{Routes, only};
use crate::account::{AccountId, Permission};
use crate::database::Timestamp;
use crate::service::Service;
use crate::train::{FitConfig, FitOptions, NewFitConfig};

/// The configuration that every trainable service has: all as it is by default.
const BUILT_IN: i64 = 0;

/// The routes under a prefix.
pub(super) fn routes() -> Routes {
    Routes::new().routes(only(routes!(list, create)))
}

/// A training configuration, as the document has it. [`FitOptions`] reads it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FitConfigFields)]
#[expect(dead_code, reason = "it is read elsewhere; this describes it")]
pub(super) struct Fields {
    /// Strength of the penalty on squared weights: scikit-learn's 1/C. Without it, it is chosen by the kept rows.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    l2: Option<f64>,
    /// Most iterations of L-BFGS.
    #[schema(minimum = 1, maximum = 100_000)]
    max_iterations: Option<u64>,
    /// It ends where no part of the gradient of the mean loss is greater.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    tolerance: Option<f64>,
    /// The part of each label's rows that is kept to measure by.
    #[schema(minimum = 0, maximum = 0.9)]
    validation_fraction: Option<f64>,
    /// Decides which rows those are.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    seed: Option<u64>,
    /// How much rows count by their labels; an object with a number for each label is taken, too. Without it and
    /// `l2` it is chosen by the kept rows.
    class_weights: Option<Weights>,
    /// Cut texts that are too long for the model.
    truncate: Option<bool>,
    /// The backend whose model embeds.
    backend: Option<String>,
    /// Its precision.
    precision: Option<String>,
}

/// How much rows count.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ClassWeights)]
enum Weights {
    Equal,
    Balanced,
}

/// A training configuration to be stored.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NewFitConfigData {
    /// Its name.
    #[schema(pattern = "^[!-~]", max_length = 200)]
    name: String,
    /// Whether it is the one to begin with.
    #[serde(default)]
    is_default: bool,
    /// The config: an object, or the text of one.
    #[schema(value_type = Fields)]
    config: Value,
}

/// A training configuration.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct FitConfigData {
    id: FitConfigId,
    name: String,
    /// Whether it is the one to begin with.
    is_default: bool,
    /// Whether somebody stored it; the one that every trainable service has was not.
    is_manual: bool,
    /// The config, JSON as a text.
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
                config_id: BUILT_IN,
            },
            name: "default".to_owned(),
            is_default,
            is_manual: false,
            config: FitOptions::default().to_json().to_string(),
        }
    }
}

/// Training configurations for services derived from this one.
#[utoipa::path(
    get,
    path = "/account/{account}/model/{model}/fit-config",
    tag = "training",
    operation_id = "listFitConfigs",
    params(ServicePath),
    responses(
        (status = 200, description = "Configs, the oldest first; a derived service has those of its base too", body = Vec<FitConfigData>),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The configs could not be read", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
) -> Result<Json<Vec<FitConfigData>>, Error> {
    let service = service(&gateway, caller, Permission::Read, &path)?;
    let derived = gateway.jobs.derived().get(service.id);
    let trainable = service.device().is_some_and(|device| device.is_trainable());
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

/// Store a training configuration.
#[utoipa::path(
    post,
    path = "/account/{account}/model/{model}/fit-config",
    tag = "training",
    operation_id = "createFitConfig",
    params(ServicePath),
    request_body(content = NewFitConfigData, content_type = "application/json"),
    responses(
        (status = 200, description = "The stored config", body = FitConfigData),
        (status = "4XX", description = "The request was refused: 409 for a service that cannot be trained", body = ErrorBody),
        (status = "5XX", description = "The config could not be stored", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn create(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
    request: extract::Request,
) -> Result<Json<FitConfigData>, Error> {
    let service = service(&gateway, caller, Permission::Write, &path)?;
    let is_derived = gateway.jobs.derived().get(service.id).is_some();
    let trainable = service.device().is_some_and(|device| device.is_trainable());
    if !is_derived && !trainable {
        let message = format!("`{}` cannot be trained", service.label());
        return Err(Error::new(
            StatusCode::CONFLICT,
            "SERVICE_IS_NOT_TRAINABLE",
            message,
        ));
    }
    let (body, _memory) = read_body(&gateway, service.owner, request).await?;
    let new: NewFitConfigData = serde_json::from_slice(&body).map_err(|error| wrong(&error))?;
    require_name(&new.name)?;
    let config = config_text(new.config)?;
    FitOptions::read_text(&config)?;
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

/// The text of a stored configuration: the service's own, its base's, or the one that all have.
pub(super) async fn stored_config(
    gateway: &Gateway,
    service: &Service,
    base: i64,
    id: i64,
) -> Result<String, Error> {
    if id == BUILT_IN {
        return Ok("{}".to_owned());
    }
    for of in [service.id, base] {
        let configs = gateway.jobs.store().fit_configs(of).await?;
        if let Some(found) = configs.into_iter().find(|config| config.id == id) {
            return Ok(found.is.config);
        }
    }
    Err(Error::no_entity("fit config", &id.to_string()))
}
