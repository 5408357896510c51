//! Runs one request of a batch, through the same adapter as a single request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::to_bytes;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;

use super::super::Gateway;
use super::super::error::GatewayError;
use super::super::observe::RequestFacts;
use super::super::routes::{AdmittedRequest, answer_batch_request};
use super::place::LinePlace;
use crate::batch::{BatchId, LineOutcome, LineRequest, StoredBatch};
use crate::service::meter::{AnswerOutcome, ServiceOperation};

/// First and longest pause before a request runs again that a limit had rejected.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Returns the id of a request of a batch.
pub(super) fn request_id(batch: BatchId, line: u64) -> String {
    format!("batch_req_{}_{line}", batch.0)
}

/// Runs a request until it has an outcome. Limits, a stopped service and one whose device is away only delay it.
pub(super) async fn run(
    gateway: &Arc<Gateway>,
    batch: &StoredBatch,
    (line, text): (u64, Vec<u8>),
    place: &mut LinePlace,
) -> LineOutcome {
    let id = request_id(batch.id, line);
    let outcome = |custom_id: String, (status, answer): (StatusCode, Bytes)| LineOutcome {
        line,
        custom_id,
        status: status.as_u16(),
        answer: as_json(answer),
    };
    let request = match LineRequest::read(&text, batch.is.endpoint) {
        Ok(request) => request,
        Err(fault) => {
            let error = GatewayError::bad_request(fault.message);
            return outcome(String::new(), error_body(error, &id).await);
        }
    };
    let mut pause = FIRST_PAUSE;
    let mut crashes = 0;
    let answered = loop {
        match ask(gateway, batch, (&id, request.body)).await {
            Ok(response) => break whole(response).await,
            Err(error) if error.is_crash() => {
                crashes += 1;
                if crashes >= gateway.settings.limits.attempts {
                    break error_body(error, &id).await;
                }
            }
            Err(error) if error.is_away() => {
                place.leave_for(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(error) if is_passing(error.status) => {
                tracing::debug!(
                    request = id,
                    error = error.message,
                    "a request of a batch waits"
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(error) => break error_body(error, &id).await,
        }
    };
    outcome(request.custom_id, answered)
}

/// Returns whether the same request may succeed later.
fn is_passing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::PAYMENT_REQUIRED
    )
}

/// Asks the service once.
async fn ask(
    gateway: &Arc<Gateway>,
    batch: &StoredBatch,
    (id, body): (&str, &str),
) -> Result<Response, GatewayError> {
    gateway.engines.quiet().await;
    let account = batch.is.account;
    let refused = |error| gateway.refusal(account, error);
    gateway.limit(account).map_err(refused)?;
    // Nobody waits for the answer, so it waits for memory.
    let held = gateway.memory.wait(account, body.len()).await;
    let memory = Arc::new(held);
    let known = Arc::new(RequestFacts {
        id: HeaderValue::try_from(id).ok(),
        ..RequestFacts::default()
    });
    let request = AdmittedRequest {
        caller: account,
        known: Arc::clone(&known),
        body: (memory.keep(body.as_bytes().to_vec()), memory),
        in_background: true,
    };
    let began = Instant::now();
    let answer = answer_batch_request(gateway, request, batch.is.endpoint).await;
    let status = match &answer {
        Ok(response) => response.status(),
        Err(error) => error.status,
    };
    if let Some((service, _)) = known.asked.get() {
        let accounts = gateway.directory.snapshot();
        let name = accounts.by_id(account);
        let name = name.map_or("", |account| account.name.as_str());
        let outcome = AnswerOutcome::of_status(status.as_u16());
        let whose = (account, name);
        service
            .meter
            .count(whose, ServiceOperation::Batch, outcome, began.elapsed());
    }
    answer
}

async fn error_body(error: GatewayError, id: &str) -> (StatusCode, Bytes) {
    whole(error.for_adapter().render(id)).await
}

async fn whole(response: Response) -> (StatusCode, Bytes) {
    let status = response.status();
    // The service's answer is within its own limit, and in memory already.
    let body = to_bytes(response.into_body(), usize::MAX).await;
    match body {
        Ok(body) => (status, body),
        Err(error) => {
            let text = serde_json::json!({"error": {"message": error.to_string()}});
            (StatusCode::BAD_GATEWAY, Bytes::from(text.to_string()))
        }
    }
}

/// Returns an answer as JSON on one line. Another text becomes a string.
fn as_json(answer: Bytes) -> Vec<u8> {
    if serde_json::from_slice::<serde::de::IgnoredAny>(&answer).is_err() {
        let text = String::from_utf8_lossy(&answer);
        // Serializing a string does not fail.
        return serde_json::to_vec(&text).unwrap_or_default();
    }
    let mut answer = Vec::from(answer);
    // JSON strings contain no line breaks, so this changes only whitespace.
    for byte in &mut answer {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    answer
}
