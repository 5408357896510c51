//! What an account used: requests and tokens, by service and day.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::error::{Error, ErrorBody};
use super::super::extract::{InPath, InQuery};
use super::path::{Routes, only};
use crate::account::{self, Counted, Permission};
use crate::database::{Day, Timestamp};

/// Days that are told where the query names none, beside the last.
const DAYS: u32 = 30;

/// The routes under a prefix.
pub(super) fn routes() -> Routes {
    Routes::new().routes(only(routes!(read)))
}

/// The days that are asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Days {
    /// The first day, in UTC; without it 30 days before the last.
    #[param(nullable = false, format = Date, example = "2026-11-01")]
    from: Option<String>,
    /// The last day, in UTC; without it today.
    #[param(nullable = false, format = Date, example = "2026-11-30")]
    to: Option<String>,
}

/// What an account used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccountUsage)]
struct Told {
    /// The first day that was asked for.
    from: String,
    /// The last day.
    to: String,
    /// By day and service, in this order. Of days without requests there is nothing.
    usage: Vec<OfService>,
    /// All of it.
    total: Sum,
    /// CPU seconds that the models of the account's requests took, in sum.
    #[serde(rename = "cpuSeconds")]
    cpu_seconds: f64,
    /// The same by day. Of days without any there is nothing.
    cpu: Vec<CpuOfDay>,
    /// Bytes that the account has stored now.
    stored: StoredBytes,
}

/// CPU time of a day.
#[derive(Debug, Serialize, ToSchema)]
struct CpuOfDay {
    /// The day, in UTC.
    date: String,
    seconds: f64,
}

/// Bytes that an account has stored.
#[derive(Debug, Serialize, ToSchema)]
struct StoredBytes {
    /// Bodies, configs and answers.
    tasks: u64,
    datasets: u64,
    /// Packages that were trained.
    packages: u64,
    /// Vectors that trainings keep.
    caches: u64,
    total: u64,
    /// What it may have; null: any number.
    #[schema(required)]
    limit: Option<u64>,
}

/// What was used of a service on a day.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ServiceUsage)]
struct OfService {
    /// The day, in UTC.
    date: String,
    id: ServiceId,
    /// The name of the service's owner.
    account: String,
    /// The service's name.
    model: String,
    #[serde(flatten)]
    sum: Sum,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsedServiceId)]
struct ServiceId {
    account_id: i64,
    model_id: i64,
}

/// Requests that were answered, and tokens as far as services say them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsageSum)]
struct Sum {
    requests: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    /// Of the prompts' tokens, those that were known from before.
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
            id: ServiceId {
                account_id: usage.owner.0,
                model_id: usage.service,
            },
            account: usage.owner_name,
            model: usage.service_name,
            sum: usage.counted.into(),
        }
    }
}

/// What the account used through the chat adapters.
#[utoipa::path(
    get,
    path = "/account/{account}/usage",
    tag = "usage",
    operation_id = "readUsage",
    params(
        ("account" = String, Path, description = "The key's own account: its name or number"),
        Days,
    ),
    responses(
        (status = 200, description = "Requests and tokens by day and service", body = Told),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The usage could not be read", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn read(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(account): InPath<String>,
    InQuery(days): InQuery<Days>,
) -> Result<Json<Told>, Error> {
    let account = caller.require_own(Permission::Read, &gateway, &account)?;
    let to = match days.to {
        Some(to) => day(&to, "to")?,
        None => Timestamp::now().day(),
    };
    let from = match days.from {
        Some(from) => day(&from, "from")?,
        None => to.before(DAYS),
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

fn day(text: &str, place: &str) -> Result<Day, Error> {
    Day::from_iso(text).ok_or_else(|| {
        let message = "a day belongs here, such as 2026-11-30";
        Error::bad_request(message).with("place", place)
    })
}
