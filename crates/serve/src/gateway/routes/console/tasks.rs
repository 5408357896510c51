//! Route of the console for tasks: more of each than the API has.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::super::super::Gateway;
use super::super::super::auth::Caller;
use super::super::super::error::GatewayError;
use super::super::super::extract::InQuery;
use super::super::tasks::{ListParameters, TaskPage};
use crate::account::{AccountId, Permission};
use crate::task::{Task, TaskOutcome};

/// A task of the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRow {
    id: String,
    status: &'static str,
    account: String,
    service: String,
    created_at: i64,
    completed_at: Option<i64>,
    attempts: u32,
    /// Size of the answer, in bytes.
    size: Option<u64>,
    media_type: Option<String>,
    /// The error of a failed task.
    error: Option<String>,
    /// The attached instance that answered, or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    /// Canceled by its user.
    canceled: bool,
    expired: bool,
}

/// Lists the tasks of the caller's account, newest first.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InQuery(parameters): InQuery<ListParameters>,
) -> Result<Json<Vec<TaskRow>>, GatewayError> {
    let own = caller.require(Permission::Read)?;
    let page = TaskPage::of(&parameters)?;
    let tasks = gateway
        .store
        .list(own, page.status, page.before, page.limit);
    let tasks = tasks.await?;
    let accounts = gateway.directory.snapshot();
    let name = |id: AccountId| {
        let account = accounts.by_id(id);
        account.map_or_else(String::new, |account| account.name.clone())
    };
    let rows = tasks
        .into_iter()
        .map(|task| TaskRow::of(name(task.owner), task));
    Ok(Json(rows.collect()))
}

impl TaskRow {
    fn of(account: String, task: Task) -> Self {
        let mut row = Self {
            id: task.id.to_string(),
            status: task.status.name(),
            account,
            service: task.service,
            created_at: task.created_at.0,
            completed_at: task.completed_at.map(|at| at.0),
            attempts: task.attempt,
            size: None,
            media_type: None,
            error: None,
            worker: None,
            canceled: false,
            expired: false,
        };
        let worker = task.outcome.as_ref().and_then(TaskOutcome::worker);
        row.worker = worker.map(str::to_owned);
        match task.outcome {
            None => {}
            Some(TaskOutcome::Answer {
                content,
                media_type,
                ..
            }) => {
                row.size = Some(content.size());
                row.media_type = media_type;
            }
            Some(TaskOutcome::Expired) => row.expired = true,
            Some(TaskOutcome::Failed(failure)) => row.error = Some(failure.message),
            Some(TaskOutcome::CanceledByUser) => row.canceled = true,
        }
        row
    }
}
