//! Route for an account's usage: requests, tokens and CPU time, by service and day.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::error::GatewayError;
use super::super::extract::{InPath, InQuery};
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use crate::account::{self, Counted, Permission};
use crate::database::{Day, Timestamp};

/// Default length of the period, in days before the last one.
const DEFAULT_DAYS: u32 = 30;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let operation = RouteOperation::get("/account/{account}/usage", "readUsage", read)
        .about("Read an account's usage through the chat adapters.")
        .named::<String>("account", "The key's own account: its name or number")
        .with::<Days>()
        .answers(
            "Requests and tokens by day and service",
            BodySchema::of::<Told>(),
        )
        .fails("The usage could not be read");
    Routes::new("usage", &["key"]).add(operation)
}

/// The requested period.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Days {
    /// First day, in UTC; default: 30 days before the last.
    #[param(nullable = false, format = Date, example = "2026-11-01")]
    from: Option<String>,
    /// Last day, in UTC; default: today.
    #[param(nullable = false, format = Date, example = "2026-11-30")]
    to: Option<String>,
}

/// Usage of an account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccountUsage)]
struct Told {
    /// First day of the period.
    from: String,
    /// Last day of the period.
    to: String,
    /// Usage by day and service, in this order. Days without requests are omitted.
    usage: Vec<OfService>,
    /// Sum of all entries.
    total: Sum,
    /// CPU seconds of the models that ran the account's requests.
    #[serde(rename = "cpuSeconds")]
    cpu_seconds: f64,
    /// CPU seconds by day. Days without any are omitted.
    cpu: Vec<CpuOfDay>,
    /// Current storage of the account, in bytes.
    stored: StoredBytes,
}

/// CPU time of a day.
#[derive(Debug, Serialize, ToSchema)]
struct CpuOfDay {
    /// The day, in UTC.
    date: String,
    seconds: f64,
}

/// Storage of an account, in bytes.
#[derive(Debug, Serialize, ToSchema)]
struct StoredBytes {
    /// Bodies, configs and answers.
    tasks: u64,
    datasets: u64,
    /// Trained packages.
    packages: u64,
    /// Cached vectors of trainings.
    caches: u64,
    total: u64,
    /// Maximum storage; null: unlimited.
    #[schema(required)]
    limit: Option<u64>,
}

/// Usage of a service on a day.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ServiceUsage)]
struct OfService {
    /// The day, in UTC.
    date: String,
    id: UsedServiceId,
    /// Name of the service's owner.
    account: String,
    /// Name of the service.
    model: String,
    #[serde(flatten)]
    sum: Sum,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct UsedServiceId {
    account_id: i64,
    model_id: i64,
}

/// Number of answered requests, and of tokens as far as services report them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsageSum)]
struct Sum {
    requests: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    /// Prompt tokens that came from a cache.
    cached_tokens: u64,
}

impl From<Counted> for Sum {
    fn from(counted: Counted) -> Self {
        Self {
            requests: counted.requests,
            prompt_tokens: counted.prompt,
            completion_tokens: counted.completion,
            cached_tokens: counted.cached,
        }
    }
}

impl From<account::Usage> for OfService {
    fn from(usage: account::Usage) -> Self {
        Self {
            date: usage.day.to_iso(),
            id: UsedServiceId {
                account_id: usage.owner.0,
                model_id: usage.service,
            },
            account: usage.owner_name,
            model: usage.service_name,
            sum: usage.counted.into(),
        }
    }
}

async fn read(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(account): InPath<String>,
    InQuery(days): InQuery<Days>,
) -> Result<Json<Told>, GatewayError> {
    let account = caller.require_own(Permission::Read, &gateway, &account)?;
    let to = match days.to {
        Some(to) => day(&to, "to")?,
        None => Timestamp::now().day(),
    };
    let from = match days.from {
        Some(from) => day(&from, "from")?,
        None => to.before(DEFAULT_DAYS),
    };
    let usage = gateway.usage.of(account, from, to).await?;
    let cpu = gateway.usage.cpu_of(account, from, to).await?;
    let stored = gateway.stored(account).await?;
    let limit = gateway.settings.limits.stored_bytes;
    let mut total = Counted::default();
    for of_service in &usage {
        total.add(of_service.counted);
    }
    Ok(Json(Told {
        from: from.to_iso(),
        to: to.to_iso(),
        usage: usage.into_iter().map(OfService::from).collect(),
        total: total.into(),
        cpu_seconds: seconds(cpu.iter().map(|used| used.micros).sum()),
        cpu: cpu
            .iter()
            .map(|used| CpuOfDay {
                date: used.day.to_iso(),
                seconds: seconds(used.micros),
            })
            .collect(),
        stored: StoredBytes {
            tasks: stored.tasks,
            datasets: stored.datasets,
            packages: stored.packages,
            caches: stored.caches,
            total: stored.total(),
            limit: (limit > 0).then_some(limit),
        },
    }))
}

fn seconds(micros: u64) -> f64 {
    std::time::Duration::from_micros(micros).as_secs_f64()
}

fn day(text: &str, place: &str) -> Result<Day, GatewayError> {
    Day::from_iso(text).ok_or_else(|| {
        let message = "expected a day such as 2026-11-30";
        GatewayError::bad_request(message).with("place", place)
    })
}
