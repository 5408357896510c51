//! Routes for training jobs: state, metrics, cancellation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::response::{Html, IntoResponse};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::error::GatewayError;
use super::super::extract::{InPath, InQuery, digits, list_limit};
use super::super::form::ServicePath;
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use crate::account::{AccountId, Permission, number};
use crate::database::Timestamp;
use crate::train::{Job, JobId, JobState, report_page};

/// Maximum and default number of listed jobs.
const MAX_LISTED_JOBS: usize = 1000;

/// Content security policy of a report, which has styles of its own.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let operations = [
        RouteOperation::get("/account/{account}/job", "listJobs", list)
            .about("List the training jobs of an account.")
            .named::<String>("account", "The jobs' account: its name or number")
            .with::<JobListParameters>()
            .answers("Jobs, newest first", BodySchema::list::<JobData>())
            .fails("The jobs could not be read"),
        RouteOperation::get("/account/{account}/job/{job}", "readJob", read)
            .about("Read a training job.")
            .with::<JobPath>()
            .answers("State of the job", BodySchema::of::<JobData>())
            .fails("The job could not be read"),
        RouteOperation::get(
            "/account/{account}/job/{job}/metrics",
            "jobMetrics",
            metrics,
        )
        .about("Read the quality metrics of a training job's result.")
        .with::<JobPath>()
        .answers(
            "Rows, loss, and for the validation rows: accuracy, macro F1, each label's \
                 precision and recall, the confusion matrix",
            BodySchema::plain::<serde_json::Value>(),
        )
        .refuses("The request was refused: 404 for a job without metrics")
        .breaks("The job could not be read"),
        RouteOperation::get("/account/{account}/job/{job}/report", "jobReport", report)
            .about("Read the report of a training job's result: a page for people.")
            .with::<JobPath>()
            .responds(
                "200",
                "A page without scripts",
                [("text/html; charset=utf-8", BodySchema::plain::<String>())],
            )
            .refuses("The request was refused: 404 for a job without metrics")
            .breaks("The job could not be read"),
        RouteOperation::post("/account/{account}/job/{job}/cancel", "cancelJob", cancel)
            .about("Cancel a training job. A finished job stays unchanged.")
            .with::<JobPath>()
            .answers("The job in its current state", BodySchema::of::<JobData>())
            .fails("The request could not be stored"),
        RouteOperation::get("/account/{account}/model/{model}/last-job", "lastJob", last)
            .about("Read the last training job of a service.")
            .with::<ServicePath>()
            .answers("State of the job", BodySchema::of::<JobData>())
            .refuses("The request was refused: 404 for a service without a job")
            .breaks("The job could not be read"),
    ];
    Routes::new("training", &["key"]).add_all(operations)
}

/// A training job.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = JobData)]
pub(super) struct JobData {
    account_id: i64,
    job_id: i64,
    /// `FIT`.
    job_type: &'static str,
    /// `WAITING`, `RUNNING`, `SUCCESS`, `FAILED` or `CANCELED`.
    state: &'static str,
    /// Same as `state`.
    status: &'static str,
    /// `true` if the state is final.
    done: bool,
    /// `true` if it failed or was canceled.
    error: bool,
    /// Reason of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error_message: Option<String>,
    /// Progress, from 0 to 100.
    percentage: u8,
    /// The service that is trained.
    model_id: i64,
    model_name: String,
    dataset_id: i64,
    /// Number of attempts.
    attempt: u32,
    /// ISO 8601, UTC.
    #[schema(format = DateTime)]
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    completed_at: Option<String>,
    /// Quality of the result, for a job that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    metrics: Option<Box<RawValue>>,
}

/// The part of a list of jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct JobListParameters {
    /// Only jobs older than this one.
    #[param(nullable = false, minimum = 0)]
    #[serde(default, deserialize_with = "digits")]
    before: Option<i64>,
    /// Maximum number of jobs, at most 1000.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    #[serde(default, deserialize_with = "digits")]
    limit: Option<usize>,
}

/// The job in a path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct JobPath {
    /// Account of the job: name or number
    account: String,
    /// Number of the job
    #[param(value_type = i64)]
    job: String,
}

impl From<Job> for JobData {
    fn from(job: Job) -> Self {
        let is_wrong = matches!(job.state, JobState::Failed | JobState::Canceled);
        Self {
            account_id: job.is.account.0,
            job_id: job.id.0,
            job_type: "FIT",
            state: job.state.name(),
            status: job.state.name(),
            done: job.state.is_final(),
            error: is_wrong,
            error_message: match job.state {
                JobState::Canceled => Some("canceled by its user".to_owned()),
                _ => job.error,
            },
            percentage: job.percentage,
            model_id: job.is.service,
            model_name: job.is.service_name,
            dataset_id: job.is.dataset.0,
            attempt: job.attempt,
            created_at: job.created_at.to_iso(),
            started_at: job.started_at.map(Timestamp::to_iso),
            completed_at: job.ended_at.map(Timestamp::to_iso),
            metrics: job
                .metrics
                .and_then(|text| RawValue::from_string(text).ok()),
        }
    }
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(account): InPath<String>,
    parameters: Result<InQuery<JobListParameters>, GatewayError>,
) -> Result<Json<Vec<JobData>>, GatewayError> {
    let own = caller.require_own(Permission::Read, &gateway, &account)?;
    let InQuery(part) = parameters?;
    let limit = list_limit(part.limit, MAX_LISTED_JOBS, MAX_LISTED_JOBS)?;
    let store = gateway.jobs.store();
    let jobs = store.jobs(own, None, part.before.map(JobId), limit).await?;
    Ok(Json(jobs.into_iter().map(JobData::from).collect()))
}

async fn read(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<JobPath>,
) -> Result<Json<JobData>, GatewayError> {
    let own = caller.require_own(Permission::Read, &gateway, &path.account)?;
    Ok(Json(find(&gateway, own, &path.job).await?.into()))
}

async fn metrics(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<JobPath>,
) -> Result<Json<serde_json::Value>, GatewayError> {
    let own = caller.require_own(Permission::Read, &gateway, &path.account)?;
    let job = find(&gateway, own, &path.job).await?;
    metrics_of(&job).map(Json)
}

async fn report(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<JobPath>,
) -> Result<impl IntoResponse, GatewayError> {
    let own = caller.require_own(Permission::Read, &gateway, &path.account)?;
    let job = find(&gateway, own, &path.job).await?;
    let page = report_page(&job.is.service_name, &metrics_of(&job)?);
    Ok(([(CONTENT_SECURITY_POLICY, REPORT_POLICY)], Html(page)))
}

fn metrics_of(job: &Job) -> Result<serde_json::Value, GatewayError> {
    let metrics = job.metrics.as_deref();
    let metrics = metrics.and_then(|text| serde_json::from_str(text).ok());
    metrics.ok_or_else(|| {
        let message = format!(
            "job {} has no metrics: its state is {}",
            job.id.0,
            job.state.name()
        );
        GatewayError::new(StatusCode::NOT_FOUND, "JOB_HAS_NO_METRICS", message)
    })
}

async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<JobPath>,
) -> Result<Json<JobData>, GatewayError> {
    let own = caller.require_own(Permission::Write, &gateway, &path.account)?;
    let job = find(&gateway, own, &path.job).await?;
    let canceled = gateway.jobs.cancel(job.id).await?;
    let canceled = canceled.ok_or_else(|| GatewayError::no_entity("job", &path.job))?;
    Ok(Json(canceled.into()))
}

async fn last(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<ServicePath>,
) -> Result<Json<JobData>, GatewayError> {
    let caller = caller.require(Permission::Read)?;
    let service = gateway.service_for(caller, &path.account, &path.model);
    let service = service.map_err(|error| error.for_reading("service", &path.model))?;
    if service.owner != caller {
        return Err(GatewayError::another_account());
    }
    let jobs = gateway
        .jobs
        .store()
        .jobs(caller, Some(service.id), None, 1)
        .await?;
    let last = jobs.into_iter().next();
    let last = last.ok_or_else(|| {
        let message = format!("`{}` was never trained", service.name);
        GatewayError::new(StatusCode::NOT_FOUND, "SERVICE_HAS_NO_JOB", message)
    })?;
    Ok(Json(last.into()))
}

/// Finds an account's job by its number.
async fn find(gateway: &Gateway, own: AccountId, id: &str) -> Result<Job, GatewayError> {
    let found = match number(id) {
        Some(number) => gateway.jobs.store().job(JobId(number)).await?,
        None => None,
    };
    let found = found.filter(|found| found.is.account == own);
    found.ok_or_else(|| GatewayError::no_entity("job", id))
}
