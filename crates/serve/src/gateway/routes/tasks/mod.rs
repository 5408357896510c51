//! Routes for asynchronous tasks: create, status, result, cancel, list, delete.

mod creation;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::error::GatewayError;
use super::super::extract::{InPath, InQuery, digits, list_limit};
use super::super::form::{JsonForm, RawForm, StringForm, TaskRequest};
use super::super::stopping::ShutdownStage;
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use super::predict::{name_worker, of_forms};
use crate::account::{AccountId, Permission};
use crate::database::Timestamp;
use crate::task::{BlobError, Deletion, Status, Task, TaskId, TaskOutcome};

/// Header with the position of a waiting task in its account's queue, from 1.
const QUEUE_POSITION: HeaderName = HeaderName::from_static("x-queue-position");

/// Maximum time of a long poll for a status or result, in seconds.
const MAX_WAIT_SECONDS: u64 = 60;

/// Default and maximum number of listed tasks.
const DEFAULT_LISTED_TASKS: usize = 100;
const MAX_LISTED_TASKS: usize = 1000;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let one = "/account/{account}/async/task/{task}";
    let creations = [
        RouteOperation::post(
            "/account/{account}/model/{model}/async/predict",
            "createTask",
            create::<RawForm>,
        ),
        RouteOperation::post(
            "/account/{account}/model/{model}/async/predict-with-config",
            "createTaskWithConfig",
            create::<JsonForm>,
        ),
        RouteOperation::post(
            "/account/{account}/model/{model}/async/predict-with-config-v2",
            "createTaskWithConfigV2",
            create::<StringForm>,
        ),
    ];
    let creations = of_forms("Create a task", creations).map(|operation| {
        operation
            .answers("The task's id", BodySchema::plain::<String>())
            .fails("The task could not be stored")
    });
    let operations = [
        RouteOperation::get("/account/{account}/async/task", "listTasks", list)
            .about("List the account's tasks, newest first.")
            .named::<String>(
                "account",
                "The account on whose behalf the tasks were created",
            )
            .with::<ListParameters>()
            .answers("Tasks", BodySchema::list::<AsyncTaskData>())
            .fails("The tasks could not be read"),
        RouteOperation::get(one, "taskStatus", status)
            .about("Read the status of a task.")
            .with::<TaskPath>()
            .with::<WaitParameters>()
            .answers(
                "State of the task; the header X-Queue-Position has a waiting task's position in \
                 its account's queue",
                BodySchema::of::<AsyncTaskData>(),
            )
            .fails("The task could not be read"),
        RouteOperation::delete(one, "deleteTask", delete)
            .about("Delete a finished task and its result.")
            .with::<TaskPath>()
            .succeeds("The task is deleted")
            .refuses("The request was refused: 409 for a task that waits or runs")
            .breaks("The task could not be deleted"),
        RouteOperation::get(
            "/account/{account}/async/task/{task}/response",
            "taskResult",
            result,
        )
        .about("Read the result of a task.")
        .with::<TaskPath>()
        .with::<WaitParameters>()
        .answers_as_service("The service's answer, in its media type")
        .responds("204", "The task is not finished yet", [])
        .refuses("The request was refused, or the task failed with this status")
        .breaks("The task failed with this status, or could not be read"),
        RouteOperation::post(
            "/account/{account}/async/task/{task}/cancel",
            "cancelTask",
            cancel,
        )
        .about("Cancel a task.")
        .with::<TaskPath>()
        .succeeds("The request is accepted; read the status to see its effect")
        .fails("The request could not be stored"),
    ];
    Routes::new("tasks", &["key"])
        .add_all(creations)
        .add_all(operations)
}

/// A task's state.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AsyncTaskData {
    /// Task identifier.
    task_id: String,
    /// Number of the account on whose behalf the task was created.
    caller_id: i64,
    /// State of the task.
    #[schema(value_type = TaskState)]
    status: &'static str,
    /// Creation time, Unix timestamp in milliseconds.
    created_at: i64,
    /// Completion time, Unix timestamp in milliseconds; null while the task is not finished.
    #[schema(required)]
    completed_at: Option<i64>,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schema(as = TaskStatus)]
enum TaskState {
    Queued,
    Processing,
    Completed,
    Canceled,
}

/// The task in a path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct TaskPath {
    /// The account on whose behalf the task was created
    account: String,
    /// Id of the task
    task: String,
}

/// Parameters of a long poll.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct WaitParameters {
    /// Seconds to wait for the task's end before answering, at most 60.
    #[param(maximum = 60, nullable = false)]
    #[serde(default, deserialize_with = "digits")]
    wait: Option<u64>,
}

/// Filters of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParameters {
    /// Only tasks in this state.
    #[param(nullable = false)]
    status: Option<TaskState>,
    /// Only tasks older than this one.
    #[param(
        nullable = false,
        pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    )]
    before: Option<String>,
    /// Maximum number of tasks, at most 1000.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    #[serde(default, deserialize_with = "digits")]
    limit: Option<usize>,
}

/// A checked filter: the part of the list that is wanted.
pub(super) struct TaskPage {
    pub(super) status: Option<Status>,
    pub(super) before: Option<TaskId>,
    pub(super) limit: usize,
}

impl TaskPage {
    /// Checks the filters.
    pub(super) fn of(parameters: &ListParameters) -> Result<Self, GatewayError> {
        let before = match &parameters.before {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                let message = format!("invalid task id `{text}`");
                GatewayError::bad_request(message).with("place", "before")
            })?),
        };
        let limit = list_limit(parameters.limit, DEFAULT_LISTED_TASKS, MAX_LISTED_TASKS)?;
        Ok(Self {
            status: parameters.status.map(Status::from),
            before,
            limit,
        })
    }
}

impl AsyncTaskData {
    fn of(task: &Task) -> Self {
        Self {
            task_id: task.id.to_string(),
            caller_id: task.caller.0,
            status: task.status.name(),
            created_at: task.created_at.0,
            completed_at: task.completed_at.map(|at| at.0),
        }
    }
}

async fn create<F>(
    State(gateway): State<Arc<Gateway>>,
    TaskRequest { call, coming, .. }: TaskRequest<F>,
) -> Result<Response, GatewayError> {
    creation::enqueue(&gateway, call, coming).await
}

/// The task of the path, in its final state or after the wait that the client asked for.
struct AwaitedTask {
    /// Its id as in the path.
    id: String,
    task: Task,
}

impl FromRequestParts<Arc<Gateway>> for AwaitedTask {
    type Rejection = GatewayError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let caller = Caller::from_request_parts(parts, gateway).await?;
        let InPath(path) = InPath::<TaskPath>::from_request_parts(parts, gateway).await?;
        let wait = InQuery::from_request_parts(parts, gateway).await;
        let task = read(gateway, caller, &path, wait).await?;
        Ok(Self {
            id: path.task,
            task,
        })
    }
}

async fn status(
    State(gateway): State<Arc<Gateway>>,
    AwaitedTask { task, .. }: AwaitedTask,
) -> Result<Response, GatewayError> {
    let mut response = axum::Json(AsyncTaskData::of(&task)).into_response();
    if task.status == Status::Queued
        && let Some(before) = gateway.store.place(task.id).await?
    {
        response
            .headers_mut()
            .insert(QUEUE_POSITION, (before + 1).into());
    }
    Ok(response)
}

async fn result(
    State(gateway): State<Arc<Gateway>>,
    AwaitedTask { id, task }: AwaitedTask,
) -> Result<Response, GatewayError> {
    let gone = || {
        let message = format!("the result of task `{id}` has expired");
        GatewayError::new(StatusCode::NOT_FOUND, "ASYNC_RESPONSE_HAS_EXPIRED", message)
    };
    match task.outcome {
        None => Ok(StatusCode::NO_CONTENT.into_response()),
        Some(TaskOutcome::Expired) => Err(gone()),
        Some(TaskOutcome::Failed(failure)) => Err(GatewayError::of_failure(failure)),
        Some(TaskOutcome::CanceledByUser) => Err(GatewayError::new(
            StatusCode::NOT_FOUND,
            "ASYNC_TASK_CANCELED",
            format!("task `{id}` was canceled by its user"),
        )),
        Some(TaskOutcome::Answer {
            content,
            media_type,
            worker,
            attempt,
            expires_at,
        }) => {
            if expires_at.is_some_and(|at| at <= Timestamp::now()) {
                return Err(gone());
            }
            let lease = crate::task::Lease {
                task: task.id,
                attempt,
            };
            let answer = gateway.blobs.answer(lease, &content).await;
            let answer = answer.map_err(unreadable)?;
            let mut response = match media_type {
                Some(media_type) => ([(header::CONTENT_TYPE, media_type)], answer).into_response(),
                None => json(answer),
            };
            name_worker(&mut response, worker);
            Ok(response)
        }
    }
}

/// Returns a JSON answer. An empty answer, which a proxy's upstream may give, has no media type.
/// Its status is not 204, which means that the task is not finished yet.
fn json(answer: Bytes) -> Response {
    if answer.is_empty() {
        return StatusCode::OK.into_response();
    }
    ([(header::CONTENT_TYPE, "application/json")], answer).into_response()
}

async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<TaskPath>,
) -> Result<StatusCode, GatewayError> {
    let task = find_to_change(&gateway, caller, &path).await?;
    gateway.store.cancel(task.id, Timestamp::now()).await?;
    if !task.status.is_final() {
        gateway.blobs.delete_body(task.id).await;
    }
    Ok(StatusCode::OK)
}

async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<TaskPath>,
) -> Result<StatusCode, GatewayError> {
    let task = find_to_change(&gateway, caller, &path).await?;
    let id = &path.task;
    match gateway.store.delete(task.id).await? {
        Deletion::Done(removed) => {
            for lease in removed.blobs {
                gateway.blobs.delete_answer(lease).await;
            }
            Ok(StatusCode::OK)
        }
        Deletion::Unfinished => Err(GatewayError::conflict(
            "ASYNC_TASK_IS_NOT_FINISHED",
            format!("task `{id}` has not ended; cancel it first (POST …/async/task/{id}/cancel)"),
        )),
        Deletion::Unknown => Err(GatewayError::no_entity("task", id)),
    }
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(account): InPath<String>,
    parameters: Result<InQuery<ListParameters>, GatewayError>,
) -> Result<axum::Json<Vec<AsyncTaskData>>, GatewayError> {
    let own = caller.require_own(Permission::Read, &gateway, &account)?;
    let InQuery(parameters) = parameters?;
    let page = TaskPage::of(&parameters)?;
    let tasks = gateway
        .store
        .list(own, page.status, page.before, page.limit);
    let tasks = tasks.await?;
    Ok(axum::Json(tasks.iter().map(AsyncTaskData::of).collect()))
}

impl From<TaskState> for Status {
    fn from(status: TaskState) -> Self {
        match status {
            TaskState::Queued => Self::Queued,
            TaskState::Processing => Self::Processing,
            TaskState::Completed => Self::Completed,
            TaskState::Canceled => Self::Canceled,
        }
    }
}

/// Finds a task of the account.
async fn find(gateway: &Gateway, own: AccountId, id: &str) -> Result<Task, GatewayError> {
    let unknown = || GatewayError::no_entity("task", id);
    let parsed: TaskId = id.parse().map_err(|_| unknown())?;
    let task = gateway.store.get(parsed).await?.ok_or_else(unknown)?;
    if task.caller == own {
        Ok(task)
    } else {
        Err(GatewayError::another_account())
    }
}

/// Finds the task of the path, for a caller who may change it.
async fn find_to_change(
    gateway: &Gateway,
    caller: Caller,
    path: &TaskPath,
) -> Result<Task, GatewayError> {
    let own = caller.require_own(Permission::Write, gateway, &path.account)?;
    find(gateway, own, &path.task).await
}

/// Reads a task of the account. Waits for its final state as long as the client asked.
async fn read(
    gateway: &Gateway,
    caller: Caller,
    path: &TaskPath,
    parameters: Result<InQuery<WaitParameters>, GatewayError>,
) -> Result<Task, GatewayError> {
    let own = caller.require_own(Permission::Read, gateway, &path.account)?;
    let id = &path.task;
    let wait = match &parameters {
        Ok(InQuery(parameters)) => parameters.wait.unwrap_or(0),
        Err(_) => 0,
    };
    if wait == 0 {
        let task = find(gateway, own, id).await?;
        parameters?;
        return Ok(task);
    }
    let deadline = Instant::now() + Duration::from_secs(wait.min(MAX_WAIT_SECONDS));
    let task = find(gateway, own, id).await?;
    if wait > MAX_WAIT_SECONDS {
        let message = format!("`wait` is {wait}; it must be 0 to {MAX_WAIT_SECONDS} seconds");
        return Err(GatewayError::bad_request(message).with("place", "wait"));
    }
    if task.status.is_final() {
        return Ok(task);
    }
    let waiter = gateway.waiters.wait_for(task.id);
    let stopping = gateway.stopping.reached(ShutdownStage::Draining);
    tokio::pin!(stopping);
    loop {
        // Subscribe before reading, so that no end is missed in between.
        let end = waiter.end();
        let task = find(gateway, own, id).await?;
        if task.status.is_final() {
            return Ok(task);
        }
        tokio::select! {
            () = end => {}
            () = tokio::time::sleep_until(deadline) => return find(gateway, own, id).await,
            // A stopping server returns the current state while it still can.
            () = &mut stopping => return find(gateway, own, id).await,
        }
    }
}

fn unreadable(error: BlobError) -> GatewayError {
    match error {
        BlobError::Lost | BlobError::Corrupt => GatewayError::new(
            StatusCode::NOT_FOUND,
            "ASYNC_RESPONSE_IS_CORRUPTED",
            "the stored result of the task could not be read",
        )
        .because(&error),
        BlobError::Storage(_) => error.into(),
    }
}
