//! Creates tasks: checks the request with the service, then stores it.
//!
//! Errors of the request are reported now, not when the task runs.
//!
//! Invariant: a body in the blob store belongs to a task. It is deleted if the request is rejected.

use axum::Extension;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use crate::account::AccountId;
use crate::database::Timestamp;
use crate::gateway::Gateway;
use crate::gateway::body::LARGE_BODY_BYTES;
use crate::gateway::error::GatewayError;
use crate::gateway::form::{PendingTask, PredictCall};
use crate::gateway::observe::CreatedTask;
use crate::service::{OutOfBodyMemory, Request, Service, ServiceKind};
use crate::task::{EnqueueError, Idempotency, NewTask, OnCrash, StoredContent, TaskId};

/// Checks a request and stores it as a task.
pub(super) async fn enqueue(
    gateway: &Gateway,
    mut call: PredictCall,
    coming: PendingTask,
) -> Result<Response, GatewayError> {
    let (id, caller) = (coming.id, call.caller);
    let was_stored = coming.stored.is_some();
    let made = match check(gateway, &mut call, id, coming.stored.as_ref()).await {
        Ok(()) => new_task(gateway, call, coming).await,
        Err(error) => Err(error),
    };
    let accepted = match made {
        Ok(new) => {
            let in_blob = matches!(new.task.body, StoredContent::Blob { .. });
            let accepted = accept(gateway, caller, new).await;
            if in_blob && !matches!(&accepted, Ok(accepted) if *accepted == id) {
                gateway.blobs.delete_body(id).await;
            }
            accepted?
        }
        Err(error) => {
            if was_stored {
                gateway.blobs.delete_body(id).await;
            }
            return Err(error);
        }
    };
    gateway.metrics.task_created();
    let body = format!("\"{accepted}\"");
    let answer = ([(header::CONTENT_TYPE, "application/json")], body);
    Ok((Extension(CreatedTask(accepted)), answer).into_response())
}

/// A task to store, and whether its request already counted toward the rate limit.
struct CheckedTask {
    task: NewTask,
    is_counted: bool,
}

async fn accept(
    gateway: &Gateway,
    caller: AccountId,
    new: CheckedTask,
) -> Result<TaskId, GatewayError> {
    let refusal = |error| gateway.refusal(caller, error);
    let mut limit = gateway.limit(caller).map_err(refusal)?;
    if new.is_counted {
        limit = limit.counted();
    }
    if limit.quota.bytes > 0 {
        let beside = gateway.stored_beside_tasks(caller).await?;
        limit.quota.other_bytes = beside.beside_tasks();
        if beside.caches > 0 {
            let first = gateway
                .store
                .enqueue(new.task.clone(), limit, Timestamp::now());
            match first.await {
                Err(EnqueueError::TooManyBytes { .. }) => gateway.drop_caches(caller).await,
                accepted => return accepted.map_err(refusal),
            }
            limit.quota.other_bytes = beside.beside_tasks() - beside.caches;
        }
    }
    let accepted = gateway.store.enqueue(new.task, limit, Timestamp::now());
    accepted.await.map_err(refusal)
}

/// Checks that the service accepts the request. A body in the blob store is loaded for the check
/// only, and only if the service parses it.
async fn check(
    gateway: &Gateway,
    call: &mut PredictCall,
    id: TaskId,
    stored: Option<&StoredContent>,
) -> Result<(), GatewayError> {
    let Some(content) = stored else {
        call.service.check(&call.request).await?;
        return Ok(());
    };
    let is_passed_on =
        matches!(call.service.kind, ServiceKind::Proxy(_)) && call.request.config.is_none();
    if is_passed_on {
        return Ok(());
    }
    let size = usize::try_from(content.size()).unwrap_or(usize::MAX);
    let limit = gateway.current().timeouts.body();
    let room = gateway.memory.wait(call.caller, size);
    let room = tokio::time::timeout(limit, room).await;
    let holding = room.map_err(|_| gateway.no_room(call.caller, OutOfBodyMemory::Share))?;
    let (body, memory) = gateway.blobs.load_body(id, content, holding).await?;
    let request = Request {
        body,
        memory: Some(memory),
        config: call.request.config.take(),
        data_type: call.request.data_type.take(),
        accept: None,
        in_background: false,
    };
    let checked = call.service.check(&request).await;
    (call.request.config, call.request.data_type) = (request.config, request.data_type);
    checked?;
    Ok(())
}

async fn new_task(
    gateway: &Gateway,
    call: PredictCall,
    coming: PendingTask,
) -> Result<CheckedTask, GatewayError> {
    let PredictCall {
        service,
        caller,
        request,
    } = call;
    let idempotency = coming.key.map(|key| Idempotency {
        key,
        fingerprint: fingerprint(&service, &request, coming.stored.as_ref()),
    });
    let body = match coming.stored {
        Some(content) => content,
        None => gateway.blobs.put_body(coming.id, request.body).await?,
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
    Ok(CheckedTask {
        task,
        is_counted: coming.is_counted,
    })
}

/// Returns the fingerprint that two requests share if they are equal. A large body counts by its
/// own hash, since it may be in the blob store already.
fn fingerprint(service: &Service, request: &Request, stored: Option<&StoredContent>) -> [u8; 32] {
    let mut hash = Sha256::new();
    let config = request.config.as_deref().map(str::as_bytes);
    let data_type = request.data_type.as_deref().map(str::as_bytes);
    let own: [u8; 32];
    let body = match stored {
        Some(StoredContent::Blob { sha256, .. }) => &sha256[..],
        Some(StoredContent::Inline(body)) => body,
        None if request.body.len() > LARGE_BODY_BYTES => {
            own = Sha256::digest(&request.body).into();
            &own
        }
        None => &request.body,
    };
    let parts = [Some(service.name.as_bytes()), Some(body), config, data_type];
    hash.update(service.owner.0.to_be_bytes());
    for part in parts {
        // Lengths separate the parts unambiguously.
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        hash.update(length.to_be_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.finalize().into()
}
