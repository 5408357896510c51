//! Opens, checks and reads the input of a batch.

use std::collections::HashSet;
use std::io::Read;

use tokio::sync::mpsc;

use super::super::Gateway;
use super::super::error::GatewayError;
use super::AdvanceResult;
use crate::batch::{InputLimits, InputLine, InputLines, LineFault, StoredBatch, check};
use crate::database::Timestamp;

/// Number of lines that are read ahead.
const LINES_AHEAD: usize = 4;

/// A request without an outcome: the number of its line, and its text.
pub(super) type UnansweredRequest = (u64, Vec<u8>);

/// The bytes of an input.
type InputReader = Box<dyn Read + Send>;

/// Returns the limits of inputs.
fn limits(gateway: &Gateway) -> InputLimits {
    let settings = gateway.current();
    InputLimits {
        lines: gateway.settings.batches.requests,
        line_bytes: settings.limits.body_bytes,
    }
}

/// Opens the input of a batch.
async fn open(gateway: &Gateway, batch: &StoredBatch) -> Result<InputReader, GatewayError> {
    let file = gateway.batches.file(batch.is.account, batch.is.input);
    let file = file.await?.ok_or_else(|| {
        let id = batch.is.input.0.to_string();
        GatewayError::no_entity("file", &id)
    })?;
    let of = &file.is;
    Ok(gateway
        .blobs
        .open_file(&of.blob, of.size, of.sha256)
        .await?)
}

/// Checks the input of a batch, and stores the result.
pub(super) async fn validate(gateway: &Gateway, batch: &StoredBatch) -> AdvanceResult {
    let (endpoint, limits) = (batch.is.endpoint, limits(gateway));
    let checked = match open(gateway, batch).await {
        Ok(input) => {
            let checked = tokio::task::spawn_blocking(move || check(input, endpoint, limits));
            let checked = checked
                .await
                .map_err(|error| GatewayError::unchecked(&error))?;
            checked.unwrap_or_else(|error| Err(vec![unreadable(&error)]))
        }
        Err(error) => Err(vec![unreadable(&error.message)]),
    };
    let now = Timestamp::now();
    match checked {
        Ok(lines) => gateway.batches.begin(batch.id, lines, now).await?,
        Err(faults) => {
            tracing::debug!(batch = batch.id.0, faults = faults.len(), "invalid batch");
            gateway.batches.reject(batch.id, faults, now).await?;
        }
    }
    Ok(())
}

fn unreadable(error: &dyn std::fmt::Display) -> LineFault {
    LineFault {
        code: "unreadable_file".to_owned(),
        line: None,
        message: format!("the file cannot be read: {error}"),
        param: None,
    }
}

/// Reads the requests of a batch that have no outcome, on a thread of their own.
pub(super) async fn unanswered(
    gateway: &Gateway,
    batch: &StoredBatch,
) -> Result<mpsc::Receiver<Result<UnansweredRequest, GatewayError>>, GatewayError> {
    let answered = gateway.batches.answered_lines(batch.id).await?;
    let answered: HashSet<u64> = answered.into_iter().collect();
    let input = open(gateway, batch).await?;
    let limits = limits(gateway);
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    tokio::task::spawn_blocking(move || {
        for line in InputLines::new(input, limits) {
            let request = match line {
                Err(error) => Err(GatewayError::unchecked(&format_args!(
                    "the input cannot be read: {error}"
                ))),
                Ok((number, _)) if answered.contains(&number) => continue,
                Ok((number, InputLine::Text(text))) => Ok((number, text)),
                // The limit was lowered since the check.
                Ok((number, InputLine::TooLong)) => Ok((number, Vec::new())),
            };
            if sender.blocking_send(request).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}
