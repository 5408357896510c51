//! Routes for training: derive a service from another, and start training jobs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{self, FromRequestParts as _, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::body::read_body;
use super::super::error::GatewayError;
use super::super::extract::{InPath, InQuery};
use super::super::form::ServicePath;
use super::configs::{config_text, invalid_body, service};
use super::fit_configs::{Fields, stored_config, trainer_of};
use super::jobs::JobData;
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use super::services::ServiceInfo;
use crate::account::{AccountId, NewConfig, Permission};
use crate::database::Timestamp;
use crate::service::{Listed, Service, ServiceKind, Untrained};
use crate::train::{Dataset, DatasetId, FitOptions, JobCreation, NewDerived, NewJob};

/// Maximum length of a derived service's name.
const MAX_NAME_LENGTH: usize = 100;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let fits = [
        (
            RouteOperation::post("/account/{account}/model/{model}/fit", "fitService", fit),
            "Start to train a derived service on a dataset. The training configuration is given \
             in full, or\nby its number.",
        ),
        (
            RouteOperation::post(
                "/account/{account}/model/{model}/fit-v2",
                "fitServiceV2",
                fit,
            ),
            "Start to train a derived service, with the configuration as a string.",
        ),
    ];
    let fits = fits.map(|(operation, summary)| {
        operation
            .about(summary)
            .with::<ServicePath>()
            .takes::<FitRequest>()
            .answers("The job, stored on disk", BodySchema::of::<JobData>())
            .refuses(
                "The request was refused: 409 for a service that was not derived, or that is \
                 being trained",
            )
            .breaks("The job could not be stored")
    });
    let derive = RouteOperation::post(
        "/account/{account}/model/{model}/derived",
        "deriveService",
        derive,
    )
    .about(
        "Derive a trainable service from one that embeds texts or images. It belongs to the \
         key's\naccount.",
    )
    .with::<ServicePath>()
    .with::<DeriveParameters>()
    .may_take(None, BodySchema::optional::<DeriveRequest>())
    .answers("The new service", BodySchema::of::<ServiceInfo>())
    .refuses("The request was refused: 409 if the service cannot be trained, or the name is taken")
    .breaks("The service could not be stored");
    Routes::new("training", &["key"]).add(derive).add_all(fits)
}

/// Properties of a derived service, in the query.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DeriveParameters {
    /// Name: letters `a` to `z`, digits, `_` and `-`. It overrides the name in the body.
    #[param(
        nullable = false,
        pattern = "^([a-z_][a-z0-9_-]*|[0-9]+[a-z_-][a-z0-9_-]*)$",
        max_length = 100
    )]
    name: Option<String>,
    /// Hide the service from other accounts in the registry.
    #[param(nullable = false)]
    hidden: Option<bool>,
}

/// Properties of a derived service, in the body.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct DeriveRequest {
    /// Name of the service to train.
    #[schema(
        nullable = false,
        pattern = "^([a-z_][a-z0-9_-]*|[0-9]+[a-z_-][a-z0-9_-]*)$",
        max_length = 100
    )]
    name: Option<String>,
    /// Hide the service from other accounts in the registry.
    #[schema(nullable = false)]
    hidden: Option<bool>,
}

/// Dataset and configuration of a training: exactly one of `config` and `configId`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct FitRequest {
    /// A training configuration; a string in `fit-v2`.
    #[schema(value_type = Option<Fields>)]
    #[serde(default)]
    config: Option<Value>,
    /// Number of a stored configuration.
    #[serde(default)]
    config_id: Option<i64>,
    /// Number of the dataset.
    dataset_id: i64,
}

async fn derive(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
    request: extract::Request,
) -> Result<Json<ServiceInfo>, GatewayError> {
    let caller = caller.require(Permission::Write)?;
    let base = gateway.service_for(caller, &path.account, &path.model);
    let base = base.map_err(|error| error.for_reading("service", &path.model))?;
    if !base.is_trainable() {
        let message = match base.kind {
            ServiceKind::Attached(_) => "no attached worker of it can be trained",
            _ => "it embeds neither texts nor images",
        };
        let message = format!("`{}` cannot be trained: {message}", base.label());
        return Err(GatewayError::conflict("SERVICE_IS_NOT_TRAINABLE", message));
    }
    let (mut parts, body) = request.into_parts();
    let query = InQuery::<DeriveParameters>::from_request_parts(&mut parts, &gateway).await;
    let InQuery(query) = query?;
    let request = extract::Request::from_parts(parts, body);
    let (body, _memory) = read_body(&gateway, caller, request).await?;
    let body: DeriveRequest = if body.trim_ascii().is_empty() {
        DeriveRequest::default()
    } else {
        serde_json::from_slice::<Option<_>>(&body)
            .map_err(|error| invalid_body(&error))?
            .unwrap_or_default()
    };
    let name = query.name.or(body.name).unwrap_or_default();
    let hidden = query.hidden.or(body.hidden).unwrap_or(false);
    require_name(&name)?;
    let service = new_service(&gateway, caller, &base, (&name, hidden)).await?;
    Ok(Json(ServiceInfo::of(&gateway, &service)))
}

/// Stores a derived service with the predict configs of its base, and adds it to the services.
async fn new_service(
    gateway: &Gateway,
    owner: AccountId,
    base: &Service,
    (name, hidden): (&str, bool),
) -> Result<Arc<Service>, GatewayError> {
    let taken = || {
        let message = format!("the account has a service `{name}` already; choose another name");
        GatewayError::conflict("SERVICE_NAME_IS_TAKEN", message)
    };
    if gateway.services.find(owner, name).is_some() {
        return Err(taken());
    }
    let owner_name = {
        let accounts = gateway.directory.snapshot();
        let account = accounts.by_id(owner).map(|account| account.name.clone());
        account.unwrap_or_default()
    };
    let now = Timestamp::now();
    let number = gateway.configs.service_number(owner, name).await?;
    let new = NewDerived {
        service: number,
        owner,
        owner_name: owner_name.clone(),
        name: name.to_owned(),
        base_owner: base.owner,
        base_owner_name: base.owner_name.clone(),
        base: base.id,
        base_name: base.name.clone(),
        hidden,
    };
    let derived = gateway.jobs.store().create_derived(new, now).await?;
    let derived = Arc::new(derived.ok_or_else(taken)?);
    for config in gateway.configs.list(base.id).await?.iter() {
        let config = NewConfig {
            service: number,
            name: config.name.clone(),
            config: inherited(&config.config),
            is_default: config.is_default,
        };
        gateway.configs.create(config, now).await?;
    }
    gateway.jobs.derived().add(&derived);
    if let Err(error) = gateway.jobs.serve_results_of(owner, &owner_name) {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let message = "the service's directory could not be created";
        return Err(GatewayError::new(status, "INTERNAL_ERROR", message).because(&error));
    }
    let settings = gateway.current().service(&owner_name, name);
    let mut settings = settings.unwrap_or_default();
    if hidden && settings.listed == Listed::Auto {
        settings.listed = Listed::No;
    }
    gateway.services.add_untrained(Service {
        id: number,
        owner,
        meter: gateway.engines.meters().of(&owner_name, name),
        owner_name,
        name: name.to_owned(),
        settings,
        kind: ServiceKind::Untrained(Arc::new(Untrained {
            base_owner: base.owner,
            base: base.id,
            since: now,
        })),
    });
    gateway
        .services
        .find(owner, name)
        .ok_or_else(|| GatewayError::no_service(name))
}

async fn fit(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
    request: extract::Request,
) -> Result<Json<JobData>, GatewayError> {
    let gateway = &*gateway;
    let service = service(gateway, caller, Permission::Write, &path)?;
    let derived = gateway.jobs.derived().get(service.id);
    if derived.is_none() && !service.trains_like_platform() {
        let message = format!(
            "`{}` was not derived from a trainable service; POST …/derived creates one that can be trained",
            service.label()
        );
        return Err(GatewayError::conflict("SERVICE_IS_NOT_DERIVED", message));
    }
    let base = derived.map_or(service.id, |derived| derived.is.base);
    // A training stores a package and runs a model.
    let limit = gateway.limit(service.owner);
    limit.map_err(|error| gateway.refusal(service.owner, error))?;
    gateway.room(service.owner).await?;
    let (body, _memory) = read_body(gateway, service.owner, request).await?;
    let asked: FitRequest = serde_json::from_slice(&body).map_err(|error| invalid_body(&error))?;
    let config = match (asked.config.filter(|it| !it.is_null()), asked.config_id) {
        (Some(config), None) => config_text(config)?,
        (None, Some(id)) => stored_config(gateway, &service, base, id).await?,
        (None, None) => return Err(config_count_error("neither")),
        (Some(_), Some(_)) => return Err(config_count_error("both")),
    };
    let dataset = gateway
        .jobs
        .store()
        .dataset(DatasetId(asked.dataset_id))
        .await?;
    let dataset = dataset.filter(|found| found.is.account == service.owner);
    let dataset =
        dataset.ok_or_else(|| GatewayError::no_entity("dataset", &asked.dataset_id.to_string()))?;
    let trainer = trainer_of(gateway, &service);
    // The configuration of a service of the platform's SDKs is its own.
    let config = if trainer.as_ref().is_some_and(|it| it.trains_like_platform()) {
        config
    } else {
        let mut options = FitOptions::read_text(&config)?;
        choose_model(gateway, &service, &mut options).await?;
        check_base(trainer.as_deref(), &dataset, &options)?;
        options.to_json().to_string()
    };
    let job = NewJob {
        account: service.owner,
        service: service.id,
        service_name: service.name.clone(),
        dataset: dataset.id,
        config,
    };
    match gateway
        .jobs
        .store()
        .create_job(job, Timestamp::now())
        .await?
    {
        JobCreation::Done(job) => {
            gateway.jobs.wake();
            Ok(Json((*job).into()))
        }
        JobCreation::Busy(job) => {
            let message = format!(
                "job {} trains the service; wait for its end or cancel it (POST …/job/{}/cancel)",
                job.0, job.0
            );
            Err(GatewayError::conflict("SERVICE_IS_BEING_TRAINED", message))
        }
        JobCreation::NoDataset => Err(GatewayError::no_entity(
            "dataset",
            &asked.dataset_id.to_string(),
        )),
    }
}

/// Selects the model to train with. By default the training uses the service's default predict
/// config, as its requests do.
async fn choose_model(
    gateway: &Gateway,
    service: &Service,
    options: &mut FitOptions,
) -> Result<(), GatewayError> {
    if options.backend.is_some() || options.precision.is_some() {
        return Ok(());
    }
    let default = gateway.configs.default_of(service.id).await?;
    let default = default.and_then(|it| serde_json::from_str::<Value>(&it.config).ok());
    let default = default.unwrap_or_default();
    let text = |key: &str| default.get(key).and_then(Value::as_str).map(str::to_owned);
    options.backend = text("backend");
    options.precision = text("precision");
    Ok(())
}

/// Returns the parts of a predict config that also apply to the derived service. Its package has
/// its own components, and fixes how vectors are computed.
fn inherited(config: &str) -> String {
    let Ok(Value::Object(mut members)) = serde_json::from_str(config) else {
        return "{}".to_owned();
    };
    for key in ["component", "method", "pooling", "normalize"] {
        members.remove(key);
    }
    Value::Object(members).to_string()
}

/// Checks the base service now, to report errors early.
fn check_base(
    base: Option<&Service>,
    dataset: &Dataset,
    options: &FitOptions,
) -> Result<(), GatewayError> {
    let Some(device) = base.and_then(Service::device) else {
        // The base may be served again by the time the job runs; otherwise the job fails.
        return Ok(());
    };
    let config = options.predict_config().to_string();
    let checked = device.encoder(dataset.is.content_kind(), &config);
    checked.map(drop).map_err(GatewayError::from)
}

/// Checks the name of a derived service, which is also the folder of its package. The model token
/// has `_` for each `-`.
fn require_name(name: &str) -> Result<(), GatewayError> {
    let may_be =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let is_sound = !is_number && !name.starts_with('-') && name.bytes().all(may_be);
    if name.len() <= MAX_NAME_LENGTH && is_sound {
        return Ok(());
    }
    let message = format!(
        "`name` is {}; the name of a service to be trained has 1 to {MAX_NAME_LENGTH} characters, letters a to z, \
         digits, `_` and `-`, does not begin with `-`, and is not digits only",
        crate::service::json::shown(name)
    );
    Err(GatewayError::bad_request(message).with("place", "name"))
}

fn config_count_error(given: &str) -> GatewayError {
    let message = format!("expected exactly one of `config` and `configId`, got {given}");
    GatewayError::bad_request(message).with("place", "$")
}
