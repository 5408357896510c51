//! Routes for the workers of an account: list them, and drain them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::error::GatewayError;
use super::super::extract::InPath;
use super::operation::{BodySchema, REFUSED, RouteOperation};
use super::path::Routes;
use crate::account::Permission;
use crate::worker::WorkerInfo;
use pkgtool_gate::host::InstanceState;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let operations = [
        RouteOperation::get("/account/{account}/worker", "listWorkers", list)
            .about("Workers that are attached to services of an account.")
            .named::<String>("account", "The key's own account: its name or number")
            .answers("Workers", BodySchema::list::<WorkerData>())
            .refuses(REFUSED),
        RouteOperation::post(
            "/account/{account}/worker/{worker}/drain",
            "drainWorker",
            drain,
        )
        .about("Send a worker no more requests. Requests in flight end.")
        .with::<WorkerPath>()
        .answers("The worker", BodySchema::of::<WorkerData>())
        .refuses(REFUSED),
        RouteOperation::post(
            "/account/{account}/worker/{worker}/resume",
            "resumeWorker",
            resume,
        )
        .about("Send a drained worker requests again.")
        .with::<WorkerPath>()
        .answers("The worker", BodySchema::of::<WorkerData>())
        .refuses(REFUSED),
    ];
    Routes::new("workers", &["key"]).add_all(operations)
}

/// An attached worker.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WorkerData {
    /// Number of the worker. It changes when the worker attaches again.
    id: u64,
    /// Machine and number of the worker, as answers name it.
    name: String,
    /// Its service; `*` for a machine that takes packages, whose services have workers of their own.
    service: String,
    /// Name of its token.
    token: String,
    /// `serving` or `draining`.
    state: &'static str,
    /// The program that it runs, if it says so.
    #[schema(required)]
    image: Option<String>,
    /// The address that it calls from.
    #[schema(required)]
    address: Option<String>,
    /// Seconds since it attached.
    attached_s: u64,
    /// Milliseconds since its last message.
    silent_ms: u64,
    /// Requests in flight.
    in_flight: usize,
    /// Maximum number of requests in flight.
    capacity: usize,
    /// Requests that it answered.
    answered: u64,
}

/// The worker in a path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct WorkerPath {
    /// The key's own account: its name or number
    account: String,
    /// Number of the worker
    worker: String,
}

impl From<WorkerInfo> for WorkerData {
    fn from(worker: WorkerInfo) -> Self {
        let activity = worker.activity;
        Self {
            id: worker.number,
            name: worker.label,
            service: worker.service,
            token: worker.token,
            state: match activity.state {
                InstanceState::Serving => "serving",
                InstanceState::Draining | InstanceState::Gone => "draining",
            },
            image: worker.image,
            address: worker.peer.map(|peer| peer.to_string()),
            attached_s: worker.attached.as_secs(),
            silent_ms: u64::try_from(activity.silent.as_millis()).unwrap_or(u64::MAX),
            in_flight: activity.in_flight,
            capacity: activity.capacity,
            answered: activity.answered,
        }
    }
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(account): InPath<String>,
) -> Result<Json<Vec<WorkerData>>, GatewayError> {
    let owner = caller.require_own(Permission::Read, &gateway, &account)?;
    let all = gateway.workers.list().into_iter();
    let own = all.filter(|worker| worker.account == owner);
    Ok(Json(own.map(WorkerData::from).collect()))
}

async fn drain(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<WorkerPath>,
) -> Result<Json<WorkerData>, GatewayError> {
    change(&gateway, caller, &path, true)
}

async fn resume(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<WorkerPath>,
) -> Result<Json<WorkerData>, GatewayError> {
    change(&gateway, caller, &path, false)
}

fn change(
    gateway: &Gateway,
    caller: Caller,
    path: &WorkerPath,
    drain: bool,
) -> Result<Json<WorkerData>, GatewayError> {
    let owner = caller.require_own(Permission::Write, gateway, &path.account)?;
    let number = path.worker.parse().ok();
    let changed = number.and_then(|number| gateway.workers.drain(owner, number, drain));
    let changed = changed.ok_or_else(|| GatewayError::no_entity("worker", &path.worker))?;
    Ok(Json(changed.into()))
}
