//! Routes for service info. The answer has all fields, since clients reject an answer that lacks
//! one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::error::GatewayError;
use super::super::extract::InPath;
use super::super::form::ServicePath;
use super::super::visible;
use super::operation::{BodySchema, REFUSED, RouteOperation};
use super::path::Routes;
use crate::account::Permission;
use crate::service::{Service, ServiceKind};

/// Maximum time to load a session, in seconds.
const LOAD_TIMEOUT_SECONDS: u64 = 300;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let operations = [
        RouteOperation::get("/account/{account}/model/{model}", "serviceInfo", info)
            .about("Info of a service.")
            .with::<ServicePath>()
            .answers("The service", BodySchema::of::<ServiceInfo>())
            .refuses(REFUSED),
        RouteOperation::get("/account/{account}/model", "listServices", list)
            .about("Services of an account that the caller may use.")
            .named::<String>("account", "The services' owner: its name or number")
            .answers("Services", BodySchema::list::<ServiceInfo>())
            .refuses(REFUSED),
    ];
    Routes::new("services", &["key"]).add_all(operations)
}

/// A service.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "clients read these fields")]
pub(super) struct ServiceInfo {
    id: ServiceId,
    model_name: String,
    /// The base service of a derived one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    derived_from: Option<DerivedFrom>,
    /// `true` if an engine can run it; requests are rejected otherwise.
    is_active: bool,
    /// The reason why it is inactive.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    inactive_reason: Option<String>,
    /// Account that owns the image; always the service's own.
    image_account_id: i64,
    composite: bool,
    /// `true` if services can be derived from it and trained.
    fittable: bool,
    favorite: bool,
    restricted_image_access: bool,
    /// `INTERNAL` for models of a package, `EXTERNAL` for another HTTP service.
    hosting_type: &'static str,
    #[schema(value_type = Vec<Object>)]
    persistent_volumes: [(); 0],
    #[schema(value_type = Vec<Object>)]
    data_image_mounts: [(); 0],
    timeouts: ServiceTimeouts,
    resource_limits: ResourceLimits,
    retries_config: RetriesConfig,
    batches_config: BatchesConfig,
    caching: Caching,
    priority_queue: PriorityQueue,
    auto_scaling_configuration: AutoScaling,
    public_settings: PublicSettings,
    billing_settings: BillingSettings,
    http_settings: HttpSettings,
    archive_settings: ArchiveSettings,
}

/// Number of a service and of its account.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ServiceId {
    account_id: i64,
    model_id: i64,
}

/// The service from which another was derived.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DerivedFrom {
    account_id: i64,
    account_name: String,
    model_id: i64,
    model_name: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ServiceTimeouts {
    pod_start_timeout_sec: u64,
    predict_timeout_sec: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceLimits {
    /// Number of threads of a run; `0`: the engine's default.
    cpu_request: String,
    /// Maximum memory of a session's process, in bytes; `0`: unlimited.
    memory_limit: String,
    ephemeral_disk_limit: String,
    /// `true` if a run uses a graphics processor. None is reserved.
    gpu_requested: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RetriesConfig {
    max_retries: u32,
    timeouts_ms: Vec<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BatchesConfig {
    batch_size: usize,
    time_wait_ms: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Caching {
    enabled: bool,
    mongo_uri: &'static str,
    collection_name: &'static str,
    records_limit: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PriorityQueue {
    enabled: bool,
    concurrency_level: usize,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AutoScaling {
    min_instance_count: usize,
    active: bool,
}

/// Access of other accounts.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PublicSettings {
    is_public: bool,
    /// `true` if the registry shows it to accounts that may not call it.
    is_listed: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BillingSettings {
    is_billing_enabled: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HttpSettings {
    is_http_enabled: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ArchiveSettings {
    enabled: bool,
    number_of_archived_requests: u64,
    encryption_enabled: bool,
}

impl ServiceInfo {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "settings allow a timeout of 0 to 1e9 seconds"
    )]
    pub(super) fn of(gateway: &Gateway, service: &Service) -> Self {
        let settings = &service.settings;
        let inactive_reason = service.inactive_reason();
        let attempts = gateway.settings.limits.attempts;
        let derived = gateway.jobs.derived().get(service.id);
        Self {
            id: ServiceId {
                account_id: service.owner.0,
                model_id: service.id,
            },
            model_name: service.name.clone(),
            fittable: service.is_trainable() || derived.is_some(),
            derived_from: derived.map(|derived| DerivedFrom {
                account_id: derived.is.base_owner.0,
                account_name: derived.is.base_owner_name.clone(),
                model_id: derived.is.base,
                model_name: derived.is.base_name.clone(),
            }),
            is_active: inactive_reason.is_none(),
            inactive_reason,
            image_account_id: service.owner.0,
            composite: false,
            favorite: false,
            restricted_image_access: false,
            hosting_type: match service.kind {
                ServiceKind::Device(_) | ServiceKind::Untrained(_) => "INTERNAL",
                ServiceKind::Proxy(_) | ServiceKind::Attached(_) => "EXTERNAL",
            },
            persistent_volumes: [],
            data_image_mounts: [],
            timeouts: ServiceTimeouts {
                pod_start_timeout_sec: LOAD_TIMEOUT_SECONDS,
                predict_timeout_sec: settings.predict_timeout_s.ceil() as u64,
            },
            resource_limits: ResourceLimits {
                cpu_request: settings.threads.to_string(),
                memory_limit: settings.memory_limit.to_string(),
                ephemeral_disk_limit: "0".to_owned(),
                gpu_requested: false,
            },
            retries_config: RetriesConfig {
                max_retries: if settings.retry_after_crash {
                    attempts.saturating_sub(1)
                } else {
                    0
                },
                timeouts_ms: Vec::new(),
            },
            batches_config: BatchesConfig {
                batch_size: settings.batch_max_size,
                time_wait_ms: settings.batch_max_wait_ms,
            },
            caching: Caching {
                enabled: false,
                mongo_uri: "",
                collection_name: "",
                records_limit: 0,
            },
            priority_queue: PriorityQueue {
                enabled: false,
                concurrency_level: settings.instances,
            },
            auto_scaling_configuration: AutoScaling {
                min_instance_count: usize::from(settings.warm_up),
                active: false,
            },
            public_settings: PublicSettings {
                is_public: settings.public,
                is_listed: visible::is_listed(service),
            },
            billing_settings: BillingSettings {
                is_billing_enabled: false,
            },
            http_settings: HttpSettings {
                is_http_enabled: true,
            },
            archive_settings: ArchiveSettings {
                enabled: false,
                number_of_archived_requests: 0,
                encryption_enabled: false,
            },
        }
    }
}

async fn info(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
) -> Result<Json<ServiceInfo>, GatewayError> {
    let caller = caller.require(Permission::Read)?;
    let service = gateway.service_for(caller, &path.account, &path.model);
    let service = service.map_err(|error| error.for_reading("service", &path.model))?;
    Ok(Json(ServiceInfo::of(&gateway, &service)))
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(account): InPath<String>,
) -> Result<Json<Vec<ServiceInfo>>, GatewayError> {
    let caller = caller.require(Permission::Read)?;
    let snapshot = gateway.directory.snapshot();
    let owner = snapshot.account(&account).map(|account| account.id);
    let services = gateway.services.all();
    let may_use = |service: &&Arc<Service>| {
        Some(service.owner) == owner && (service.owner == caller || service.settings.public)
    };
    let found: Vec<ServiceInfo> = services
        .iter()
        .filter(may_use)
        .map(|service| ServiceInfo::of(&gateway, service))
        .collect();
    if found.is_empty() && owner != Some(caller) {
        return Err(GatewayError::not_public());
    }
    Ok(Json(found))
}
