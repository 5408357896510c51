//! Routes for batches: create, list, read, cancel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::super::Gateway;
use super::super::super::auth::AdapterCaller;
use super::super::super::error::GatewayError;
use super::super::super::extract::{InPath, InQuery, digits};
use super::super::operation::{BodySchema, RouteOperation};
use super::super::path::Routes;
use super::call::{self, AdmittedRequest};
use super::listed::{batch_id, cut, file_id, page, read_batch_id, read_file_id, seconds};
use super::responses;
use crate::account::{AccountId, Permission};
use crate::batch::{BatchCreation, BatchEndpoint, LineFault, NewBatch, StoredBatch};
use crate::database::Timestamp;
use crate::service::{AdapterCall, AdapterMethod, AdapterMode, Refusal};
use pkgtool_text::chat::{RequestLimits, read_json};

/// The only time that a client can give a batch, and its length.
const WINDOW: &str = "24h";
const WINDOW_TIME: Duration = Duration::from_hours(24);

/// Limits of a batch's metadata.
const MAX_METADATA: usize = 16;
const MAX_METADATA_KEY: usize = 64;
const MAX_METADATA_VALUE: usize = 512;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let id = |operation: RouteOperation| operation.named::<String>("batch", "The batch's id");
    let operations = [
        RouteOperation::post("/batches", "createBatch", create)
            .about("Run the requests of a file when nothing else runs.")
            .takes::<BatchBody>()
            .answers("The batch", BodySchema::of::<BatchData>())
            .fails("The batch could not be stored"),
        RouteOperation::get("/batches", "listBatches", list)
            .about("List batches, newest first.")
            .with::<BatchParameters>()
            .answers("Batches", BodySchema::of::<BatchList>())
            .fails("The batches could not be read"),
        id(RouteOperation::get("/batches/{batch}", "readBatch", read))
            .about("Read a batch.")
            .answers("The batch", BodySchema::of::<BatchData>())
            .fails("The batch could not be read"),
        id(RouteOperation::post(
            "/batches/{batch}/cancel",
            "cancelBatch",
            cancel,
        ))
        .about("Cancel a batch. Its files contain the answers until then.")
        .answers("The batch", BodySchema::of::<BatchData>())
        .fails("The batch could not be canceled"),
    ];
    Routes::new("adapters", &["bearer", "key"]).add_all(operations)
}

/// A request to create a batch.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = BatchRequest)]
struct BatchBody {
    /// The file with the requests.
    input_file_id: String,
    /// `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings` or `/v1/responses`.
    endpoint: String,
    /// `24h`: what has not run by then is not run.
    completion_window: String,
    /// Notes: up to 16 texts.
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

/// Parameters of a list of batches.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct BatchParameters {
    /// Batches after this one.
    #[param(nullable = false)]
    after: Option<String>,
    /// Maximum number of batches.
    #[param(nullable = false, minimum = 1, maximum = 10_000)]
    #[serde(default, deserialize_with = "digits")]
    limit: Option<usize>,
}

/// A batch. Times are Unix timestamps in seconds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Batch)]
struct BatchData {
    id: String,
    /// `batch`.
    object: &'static str,
    endpoint: &'static str,
    /// Faults of the input.
    errors: Option<BatchFaults>,
    input_file_id: String,
    completion_window: &'static str,
    /// `validating`, `failed`, `in_progress`, `finalizing`, `completed`, `expired`, `cancelling` or
    /// `cancelled`.
    status: &'static str,
    /// The file with the answers.
    output_file_id: Option<String>,
    /// The file with the requests that failed or did not run.
    error_file_id: Option<String>,
    created_at: i64,
    in_progress_at: Option<i64>,
    expires_at: i64,
    finalizing_at: Option<i64>,
    completed_at: Option<i64>,
    failed_at: Option<i64>,
    expired_at: Option<i64>,
    cancelling_at: Option<i64>,
    cancelled_at: Option<i64>,
    request_counts: BatchCounts,
    #[schema(value_type = Object)]
    metadata: BTreeMap<String, String>,
}

/// Faults of a batch's input.
#[derive(Debug, Serialize, ToSchema)]
struct BatchFaults {
    /// `list`.
    object: &'static str,
    data: Vec<BatchFault>,
}

/// A fault of a batch's input.
#[derive(Debug, Serialize, ToSchema)]
struct BatchFault {
    /// A code for programs.
    code: String,
    /// A message for people.
    message: String,
    /// The faulty field.
    param: Option<String>,
    /// Number of the line, from 1.
    line: Option<u64>,
}

/// Numbers of a batch's requests.
#[derive(Debug, Serialize, ToSchema)]
struct BatchCounts {
    total: u64,
    completed: u64,
    failed: u64,
}

/// A list of batches.
#[derive(Debug, Serialize, ToSchema)]
struct BatchList {
    /// `list`.
    object: &'static str,
    data: Vec<BatchData>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

impl From<LineFault> for BatchFault {
    fn from(fault: LineFault) -> Self {
        Self {
            code: fault.code,
            message: fault.message,
            param: fault.param,
            line: fault.line,
        }
    }
}

impl From<StoredBatch> for BatchData {
    fn from(batch: StoredBatch) -> Self {
        use crate::batch::BatchState::{Canceled, Completed, Expired, Failed};
        let ended_as = |state| {
            let ended = batch.ended_at.filter(|_| batch.state == state);
            ended.map(seconds)
        };
        let faults: Vec<BatchFault> = batch.faults.into_iter().map(BatchFault::from).collect();
        Self {
            id: batch_id(batch.id),
            object: "batch",
            endpoint: batch.is.endpoint.path(),
            errors: (!faults.is_empty()).then_some(BatchFaults {
                object: "list",
                data: faults,
            }),
            input_file_id: file_id(batch.is.input),
            completion_window: WINDOW,
            status: batch.state.name(),
            output_file_id: batch.output.map(file_id),
            error_file_id: batch.failures.map(file_id),
            created_at: seconds(batch.created_at),
            in_progress_at: batch.began_at.map(seconds),
            expires_at: seconds(batch.is.expires_at),
            finalizing_at: batch.finalizing_at.map(seconds),
            completed_at: ended_as(Completed),
            failed_at: ended_as(Failed),
            expired_at: ended_as(Expired),
            cancelling_at: batch.canceling_at.map(seconds),
            cancelled_at: ended_as(Canceled),
            request_counts: BatchCounts {
                total: batch.lines,
                completed: batch.completed,
                failed: batch.failed,
            },
            metadata: serde_json::from_str(&batch.is.metadata).unwrap_or_default(),
        }
    }
}

/// Answers a request of a batch, in the same way as a single request of its endpoint.
pub(in crate::gateway) async fn answer_batch_request(
    gateway: &Arc<Gateway>,
    request: AdmittedRequest,
    endpoint: BatchEndpoint,
) -> Result<Response, GatewayError> {
    let method = match endpoint {
        BatchEndpoint::Chat => AdapterMethod::Chat,
        BatchEndpoint::Completion => AdapterMethod::Completion,
        BatchEndpoint::Embeddings => AdapterMethod::Embeddings,
        BatchEndpoint::Responses => return responses::answer_admitted(gateway, request).await,
    };
    let mode = AdapterMode::Standard;
    call::answer_admitted(gateway, request, AdapterCall { method, mode }).await
}

async fn create(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Json<BatchData>, GatewayError> {
    let admitted = call::admitted(&gateway, request).await?;
    let own = admitted.caller;
    let (body, _memory) = admitted.body;
    let asked = read_json(&body, &RequestLimits::default());
    let asked = asked.map_err(|fault| Refusal::at("$", fault.to_string()))?;
    let asked: BatchBody = serde_json::from_value(asked)
        .map_err(|error| Refusal::at("$", format!("invalid batch: {error}")))?;
    let input = read_file_id(&asked.input_file_id)
        .map_err(|error| error.with("place", "$.input_file_id"))?;
    let endpoint = BatchEndpoint::from_path(&asked.endpoint).ok_or_else(|| {
        let known = BatchEndpoint::ALL.map(|endpoint| format!("`{}`", endpoint.path()));
        Refusal::at("$.endpoint", format!("expected {}", known.join(", ")))
    })?;
    if asked.completion_window != WINDOW {
        let expected = format!("expected `{WINDOW}`");
        return Err(Refusal::at("$.completion_window", expected).into());
    }
    let metadata = asked.metadata.unwrap_or_default();
    let fits = |(key, value): (&String, &String)| {
        key.chars().count() <= MAX_METADATA_KEY && value.chars().count() <= MAX_METADATA_VALUE
    };
    if metadata.len() > MAX_METADATA || !metadata.iter().all(fits) {
        let expected = format!(
            "expected at most {MAX_METADATA} keys of {MAX_METADATA_KEY} characters with texts of {MAX_METADATA_VALUE}"
        );
        return Err(Refusal::at("$.metadata", expected).into());
    }
    let now = Timestamp::now();
    let new = NewBatch {
        account: own,
        endpoint,
        input,
        // Serializing strings does not fail.
        metadata: serde_json::to_string(&metadata).unwrap_or_default(),
        expires_at: now.after(WINDOW_TIME),
    };
    let most = gateway.settings.batches.open;
    match gateway.batches.create_batch(new, most, now).await? {
        BatchCreation::Done(batch) => {
            gateway.batches_changed.send_modify(|count| *count += 1);
            Ok(Json(BatchData::from(*batch)))
        }
        BatchCreation::NoInput => {
            Err(GatewayError::no_entity("file", &asked.input_file_id)
                .with("place", "$.input_file_id"))
        }
        BatchCreation::TooMany => {
            let message = format!(
                "the account has reached its limit of {most} open batches; wait for the end of one, cancel \
                 one, or raise `batches.open`"
            );
            Err(GatewayError::conflict("TOO_MANY_BATCHES", message))
        }
    }
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
    InQuery(query): InQuery<BatchParameters>,
) -> Result<Json<BatchList>, GatewayError> {
    let own = caller.require(Permission::Predict)?;
    let after = query.after.as_deref().map(read_batch_id).transpose()?;
    let page = page(after.map(|after| after.0), query.limit, false)?;
    let mut batches = gateway.batches.batches(own, page).await?;
    let has_more = cut(&mut batches, page);
    let data: Vec<BatchData> = batches.into_iter().map(BatchData::from).collect();
    Ok(Json(BatchList {
        object: "list",
        first_id: data.first().map(|batch| batch.id.clone()),
        last_id: data.last().map(|batch| batch.id.clone()),
        data,
        has_more,
    }))
}

async fn read(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
    InPath(id): InPath<String>,
) -> Result<Json<BatchData>, GatewayError> {
    let own = caller.require(Permission::Predict)?;
    Ok(Json(find(&gateway, own, &id).await?.into()))
}

async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
    InPath(id): InPath<String>,
) -> Result<Json<BatchData>, GatewayError> {
    let own = caller.require(Permission::Predict)?;
    let found = find(&gateway, own, &id).await?;
    let canceled = gateway.batches.cancel(found.id, Timestamp::now()).await?;
    gateway.batches_changed.send_modify(|count| *count += 1);
    let canceled = canceled.ok_or_else(|| GatewayError::no_entity("batch", &id))?;
    Ok(Json(canceled.into()))
}

/// Finds an account's batch by its id.
async fn find(gateway: &Gateway, own: AccountId, id: &str) -> Result<StoredBatch, GatewayError> {
    let found = gateway.batches.batch(read_batch_id(id)?).await?;
    let found = found.filter(|found| found.is.account == own);
    found.ok_or_else(|| GatewayError::no_entity("batch", id))
}
