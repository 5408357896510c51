//! Asynchronous tasks: create, status, result, cancel, list, delete.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::body::LARGE;
use super::super::error::{Error, ErrorBody};
use super::super::extract::{InPath, InQuery};
use super::super::form::{
    Call, Coming, Predict2RequestData, PredictRequestData, Raw, RawParameters, Repeatable,
    ServicePath, Texts, Whole,
};
use super::super::observe::Made;
use super::super::stopping::Stage;
use super::path::{Routes, only};
use crate::account::{AccountId, Permission};
use crate::database::Timestamp;
use crate::service::{Kind, NoRoom, Request, Service};
use crate::task::{
    BlobError, Content, Deletion, EnqueueError, Idempotency, NewTask, OnCrash, Outcome, Status,
    Task, TaskId,
};

/// Where a waiting task stands in its account's queue, from 1.
const QUEUE_POSITION: HeaderName = HeaderName::from_static("x-queue-position");

/// Longest time a status or result is waited for, in seconds.
const LONGEST_WAIT: u64 = 60;

/// Tasks in a list, unless asked otherwise, and at most.
const LISTED: usize = 100;
const MOST_LISTED: usize = 1000;

/// The routes under a prefix.
pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(only(routes!(create)))
        .routes(only(routes!(create_with_config)))
        .routes(only(routes!(create_with_config_v2)))
        .routes(only(routes!(list)))
        .routes(only(routes!(status, delete)))
        .routes(only(routes!(result)))
        .routes(only(routes!(cancel)))
}

/// A task's state.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AsyncTaskData {
    /// Task identifier.
    task_id: String,
    /// Number of the account on whose behalf the task was created.
    caller_id: i64,
    /// Where it stands.
    #[schema(value_type = TaskStatus)]
    status: &'static str,
    /// Creation time, Unix timestamp in milliseconds.
    created_at: i64,
    /// Completion time, Unix timestamp in milliseconds; null while the task is not finished.
    #[schema(required)]
    completed_at: Option<i64>,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
enum TaskStatus {
    Queued,
    Processing,
    Completed,
    Canceled,
}

/// How long an answer is waited for.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct WaitParameters {
    /// Seconds to wait for the task's end before answering, at most 60.
    #[param(maximum = 60, nullable = false)]
    wait: Option<u64>,
}

/// Which tasks are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListParameters {
    /// Only tasks in this state.
    #[param(nullable = false)]
    status: Option<TaskStatus>,
    /// Only tasks older than this one.
    #[param(
        nullable = false,
        pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    )]
    before: Option<String>,
    /// How many, at most 1000.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<usize>,
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

/// Create a task with a raw body.
#[utoipa::path(
    post,
    path = "/account/{account}/model/{model}/async/predict",
    tag = "tasks",
    operation_id = "createTask",
    params(ServicePath, RawParameters),
    request_body(content = Option<serde_json::Value>, content_type = "application/json", description = "Predict data in the service's own format"),
    responses(
        (status = 200, description = "The task's id", body = String, content_type = "application/json"),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The task could not be stored", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn create(
    State(gateway): State<Arc<Gateway>>,
    Repeatable { call, coming, .. }: Repeatable<Raw>,
) -> Result<Response, Error> {
    enqueue(&gateway, call, coming).await
}

/// Create a task with data and config.
#[utoipa::path(
    post,
    path = "/account/{account}/model/{model}/async/predict-with-config",
    tag = "tasks",
    operation_id = "createTaskWithConfig",
    params(ServicePath),
    request_body(content = PredictRequestData<'static>, content_type = "application/json"),
    responses(
        (status = 200, description = "The task's id", body = String, content_type = "application/json"),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The task could not be stored", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn create_with_config(
    State(gateway): State<Arc<Gateway>>,
    Repeatable { call, coming, .. }: Repeatable<Whole>,
) -> Result<Response, Error> {
    enqueue(&gateway, call, coming).await
}

/// Create a task with data and config as texts.
#[utoipa::path(
    post,
    path = "/account/{account}/model/{model}/async/predict-with-config-v2",
    tag = "tasks",
    operation_id = "createTaskWithConfigV2",
    params(ServicePath),
    request_body(content = Predict2RequestData, content_type = "application/json"),
    responses(
        (status = 200, description = "The task's id", body = String, content_type = "application/json"),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The task could not be stored", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn create_with_config_v2(
    State(gateway): State<Arc<Gateway>>,
    Repeatable { call, coming, .. }: Repeatable<Texts>,
) -> Result<Response, Error> {
    enqueue(&gateway, call, coming).await
}

/// Status of a task.
#[utoipa::path(
    get,
    path = "/account/{account}/async/task/{task}",
    tag = "tasks",
    operation_id = "taskStatus",
    params(
        ("account" = String, Path, description = "The account on whose behalf the task was created"),
        ("task" = String, Path, description = "The task's id"),
        WaitParameters,
    ),
    responses(
        (status = 200, description = "Where the task stands; a waiting task's place in its account's queue is in the header X-Queue-Position", body = AsyncTaskData),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The task could not be read", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn status(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath((account, id)): InPath<(String, String)>,
    parameters: Result<InQuery<WaitParameters>, Error>,
) -> Result<Response, Error> {
    let own = caller.require_own(Permission::Read, &gateway, &account)?;
    let task = read(&gateway, own, &id, parameters).await?;
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

/// Result of a task.
#[utoipa::path(
    get,
    path = "/account/{account}/async/task/{task}/response",
    tag = "tasks",
    operation_id = "taskResult",
    params(
        ("account" = String, Path, description = "The account on whose behalf the task was created"),
        ("task" = String, Path, description = "The task's id"),
        WaitParameters,
    ),
    responses(
        (status = 200, description = "The service's answer, in its media type", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The task is not finished yet"),
        (status = "4XX", description = "The request was refused, or the task failed so", body = ErrorBody),
        (status = "5XX", description = "The task failed so, or could not be read", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn result(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath((account, id)): InPath<(String, String)>,
    parameters: Result<InQuery<WaitParameters>, Error>,
) -> Result<Response, Error> {
    let own = caller.require_own(Permission::Read, &gateway, &account)?;
    let task = read(&gateway, own, &id, parameters).await?;
    let gone = || {
        let message = format!("the result of task `{id}` has expired");
        Error::new(StatusCode::NOT_FOUND, "ASYNC_RESPONSE_HAS_EXPIRED", message)
    };
    match task.outcome {
        None => Ok(StatusCode::NO_CONTENT.into_response()),
        Some(Outcome::Expired) => Err(gone()),
        Some(Outcome::Failed(failure)) => Err(Error::of_failure(failure)),
        Some(Outcome::CanceledByUser) => Err(Error::new(
            StatusCode::NOT_FOUND,
            "ASYNC_TASK_CANCELED",
            format!("task `{id}` was canceled by its user"),
        )),
        Some(Outcome::Answer {
            content,
            media_type,
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
            let answer = answer.map_err(|error| unreadable(&error).because(&error))?;
            let media_type = media_type.unwrap_or_else(|| "application/json".to_owned());
            Ok(([(header::CONTENT_TYPE, media_type)], answer).into_response())
        }
    }
}

/// Cancel a task.
#[utoipa::path(
    post,
    path = "/account/{account}/async/task/{task}/cancel",
    tag = "tasks",
    operation_id = "cancelTask",
    params(
        ("account" = String, Path, description = "The account on whose behalf the task was created"),
        ("task" = String, Path, description = "The task's id"),
    ),
    responses(
        (status = 200, description = "The request is accepted; the status tells what became of the task"),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The request could not be stored", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath((account, id)): InPath<(String, String)>,
) -> Result<StatusCode, Error> {
    let own = caller.require_own(Permission::Write, &gateway, &account)?;
    let task = find(&gateway, own, &id).await?;
    gateway.store.cancel(task.id, Timestamp::now()).await?;
    if !task.status.is_final() {
        gateway.blobs.delete_body(task.id).await;
    }
    Ok(StatusCode::OK)
}

/// Delete a task that has ended, with its result.
#[utoipa::path(
    delete,
    path = "/account/{account}/async/task/{task}",
    tag = "tasks",
    operation_id = "deleteTask",
    params(
        ("account" = String, Path, description = "The account on whose behalf the task was created"),
        ("task" = String, Path, description = "The task's id"),
    ),
    responses(
        (status = 200, description = "It is deleted"),
        (status = "4XX", description = "The request was refused: 409 for a task that waits or runs", body = ErrorBody),
        (status = "5XX", description = "The task could not be deleted", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath((account, id)): InPath<(String, String)>,
) -> Result<StatusCode, Error> {
    let own = caller.require_own(Permission::Write, &gateway, &account)?;
    let task = find(&gateway, own, &id).await?;
    match gateway.store.delete(task.id).await? {
        Deletion::Done(removed) => {
            for lease in removed.blobs {
                gateway.blobs.delete_answer(lease).await;
            }
            Ok(StatusCode::OK)
        }
        Deletion::Unfinished => Err(Error::new(
            StatusCode::CONFLICT,
            "ASYNC_TASK_IS_NOT_FINISHED",
            format!("task `{id}` has not ended; cancel it first (POST …/async/task/{id}/cancel)"),
        )),
        Deletion::Unknown => Err(Error::no_entity("task", &id)),
    }
}

/// List the account's tasks, the newest first.
#[utoipa::path(
    get,
    path = "/account/{account}/async/task",
    tag = "tasks",
    operation_id = "listTasks",
    params(
        ("account" = String, Path, description = "The account on whose behalf the tasks were created"),
        ListParameters,
    ),
    responses(
        (status = 200, description = "Tasks", body = Vec<AsyncTaskData>),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The tasks could not be read", body = ErrorBody),
    ),
    security(("key" = [])),
)]
async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(account): InPath<String>,
    parameters: Result<InQuery<ListParameters>, Error>,
) -> Result<axum::Json<Vec<AsyncTaskData>>, Error> {
    let own = caller.require_own(Permission::Read, &gateway, &account)?;
    let InQuery(parameters) = parameters?;
    let before = match &parameters.before {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            Error::bad_request(format!("`{text}` is no task id")).with("place", "before")
        })?),
    };
    let limit = parameters.limit.unwrap_or(LISTED);
    if !(1..=MOST_LISTED).contains(&limit) {
        let message = format!("`limit` is {limit}; it may be 1 to {MOST_LISTED}");
        return Err(Error::bad_request(message).with("place", "limit"));
    }
    let status = parameters.status.map(Status::from);
    let tasks = gateway.store.list(own, status, before, limit).await?;
    Ok(axum::Json(tasks.iter().map(AsyncTaskData::of).collect()))
}

impl From<TaskStatus> for Status {
    fn from(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Queued => Self::Queued,
            TaskStatus::Processing => Self::Processing,
            TaskStatus::Completed => Self::Completed,
            TaskStatus::Canceled => Self::Canceled,
        }
    }
}

/// Stores a task whose request is checked first: what is wrong with it is told now, not later.
async fn enqueue(gateway: &Gateway, mut call: Call, coming: Coming) -> Result<Response, Error> {
    let (id, caller) = (coming.id, call.caller);
    let was_stored = coming.stored.is_some();
    let made = match check(gateway, &mut call, id, coming.stored.as_ref()).await {
        Ok(()) => new_task(gateway, call, coming).await,
        Err(error) => Err(error),
    };
    let accepted = match made {
        Ok(new) => {
            let in_blob = matches!(new.task.body, Content::Blob { .. });
            let accepted = accept(gateway, caller, new).await;
            if in_blob && !matches!(&accepted, Ok(accepted) if *accepted == id) {
                gateway.blobs.delete_body(id).await;
            }
            accepted.map_err(|error| gateway.refusal(caller, error))?
        }
        Err(error) => {
            if was_stored {
                gateway.blobs.delete_body(id).await;
            }
            return Err(error);
        }
    };
    gateway.metrics.created();
    let body = format!("\"{accepted}\"");
    let answer = ([(header::CONTENT_TYPE, "application/json")], body);
    Ok((Extension(Made(accepted)), answer).into_response())
}

/// A task to be stored, and whether its request was counted.
struct New {
    task: NewTask,
    is_counted: bool,
}

async fn accept(gateway: &Gateway, caller: AccountId, new: New) -> Result<TaskId, EnqueueError> {
    let limit = gateway.limit(caller)?;
    let limit = if new.is_counted {
        limit.counted()
    } else {
        limit
    };
    let now = Timestamp::now();
    gateway.store.enqueue(new.task, limit, now).await
}

/// Whether the service takes the request. A body that was stored is read for it, where it is looked into
/// at all, and goes again at once.
async fn check(
    gateway: &Gateway,
    call: &mut Call,
    id: TaskId,
    stored: Option<&Content>,
) -> Result<(), Error> {
    let Some(content) = stored else {
        call.service.prepare(&call.request).await?;
        return Ok(());
    };
    let is_passed_on = matches!(call.service.kind, Kind::Proxy(_)) && call.request.config.is_none();
    if is_passed_on {
        return Ok(());
    }
    let size = match content {
        Content::Inline(bytes) => bytes.len(),
        Content::Blob { size, .. } => usize::try_from(*size).unwrap_or(usize::MAX),
    };
    let room = gateway.memory.wait(call.caller, size);
    let room = tokio::time::timeout(gateway.settings.timeouts.body(), room).await;
    let holding = room.map_err(|_| gateway.no_room(call.caller, NoRoom::Share))?;
    let loaded = gateway.blobs.load_body(id, content, holding).await;
    let (body, memory) = loaded.map_err(|error| Error::storage(&error))?;
    let request = Request {
        body,
        memory: Some(memory),
        config: call.request.config.take(),
        data_type: call.request.data_type.take(),
    };
    let prepared = call.service.prepare(&request).await;
    (call.request.config, call.request.data_type) = (request.config, request.data_type);
    prepared?;
    Ok(())
}

async fn new_task(gateway: &Gateway, call: Call, coming: Coming) -> Result<New, Error> {
    let Call {
        service,
        caller,
        request,
    } = call;
    let idempotency = coming.key.map(|key| Idempotency {
        key,
        fingerprint: fingerprint(&service, &request, coming.stored.as_ref()),
    });
    let body = if let Some(content) = coming.stored {
        content
    } else {
        let put = gateway.blobs.put_body(coming.id, request.body).await;
        put.map_err(|error| Error::storage(&error))?
    };
    let task = NewTask {
        id: coming.id,
        caller,
        owner: service.owner,
        service: service.name.clone(),
        body,
        config: request.config,
        data_type: request.data_type,
        on_crash: if service.settings.retry_after_crash {
            OnCrash::Retry
        } else {
            OnCrash::Fail
        },
        idempotency,
    };
    Ok(New {
        task,
        is_counted: coming.is_counted,
    })
}

/// Everything that makes a request the same as another. A large body counts by its own hash: it may be
/// in the blob store already.
fn fingerprint(service: &Service, request: &Request, stored: Option<&Content>) -> [u8; 32] {
    let mut hash = Sha256::new();
    let config = request.config.as_deref().map(str::as_bytes);
    let data_type = request.data_type.as_deref().map(str::as_bytes);
    let own: [u8; 32];
    let body = match stored {
        Some(Content::Blob { sha256, .. }) => &sha256[..],
        Some(Content::Inline(body)) => body,
        None if request.body.len() > LARGE => {
            own = Sha256::digest(&request.body).into();
            &own
        }
        None => &request.body,
    };
    let parts = [Some(service.name.as_bytes()), Some(body), config, data_type];
    hash.update(service.owner.0.to_be_bytes());
    for part in parts {
        // Lengths keep the parts apart.
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        hash.update(length.to_be_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.finalize().into()
}

/// A task of the account.
async fn find(gateway: &Gateway, own: AccountId, id: &str) -> Result<Task, Error> {
    let unknown = || Error::no_entity("task", id);
    let parsed: TaskId = id.parse().map_err(|_| unknown())?;
    let task = gateway.store.get(parsed).await?.ok_or_else(unknown)?;
    if task.caller == own {
        Ok(task)
    } else {
        Err(Error::another_account())
    }
}

/// A task of the account, in its final state if it gets there in the time the client waits.
async fn read(
    gateway: &Gateway,
    own: AccountId,
    id: &str,
    parameters: Result<InQuery<WaitParameters>, Error>,
) -> Result<Task, Error> {
    let wait = match &parameters {
        Ok(InQuery(parameters)) => parameters.wait.unwrap_or(0),
        Err(_) => 0,
    };
    if wait == 0 {
        let task = find(gateway, own, id).await?;
        parameters?;
        return Ok(task);
    }
    let deadline = Instant::now() + Duration::from_secs(wait.min(LONGEST_WAIT));
    // Subscribed before the first look: no end falls between the two.
    let mut events = gateway.store.events();
    let mut task = find(gateway, own, id).await?;
    if wait > LONGEST_WAIT {
        let message = format!("`wait` is {wait}; it may be 0 to {LONGEST_WAIT} seconds");
        return Err(Error::bad_request(message).with("place", "wait"));
    }
    let stopping = gateway.stopping.reached(Stage::Draining);
    tokio::pin!(stopping);
    while !task.status.is_final() {
        let heard = tokio::select! {
            heard = tokio::time::timeout_at(deadline, events.recv()) => heard,
            // Whoever waits is told the state now, while there is somebody to tell it.
            () = &mut stopping => return find(gateway, own, id).await,
        };
        match heard {
            Ok(Ok(event)) if event.task != task.id => {}
            // Its end, or too many ends to hear each of them.
            Ok(Ok(_)) => task = find(gateway, own, id).await?,
            Ok(Err(_)) => {
                events = gateway.store.events();
                task = find(gateway, own, id).await?;
            }
            Err(_) => return find(gateway, own, id).await,
        }
    }
    Ok(task)
}

fn unreadable(error: &BlobError) -> Error {
    match error {
        BlobError::Lost | BlobError::Corrupt => Error::new(
            StatusCode::NOT_FOUND,
            "ASYNC_RESPONSE_IS_CORRUPTED",
            "the stored result of the task could not be read",
        ),
        BlobError::Storage(_) => Error::storage(error),
    }
}
