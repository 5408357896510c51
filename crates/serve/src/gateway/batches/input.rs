//! Opens and checks the input of a batch.

use std::io::Read;

use super::super::Gateway;
use super::super::error::GatewayError;
use super::StepResult;
use super::run::BatchJob;
use crate::batch::{Batch, InputLimits, LineFault, check};
use crate::database::Timestamp;

/// The bytes of an input.
pub(super) type InputReader = Box<dyn Read + Send>;

/// Returns the limits of inputs.
pub(super) fn limits(gateway: &Gateway) -> InputLimits {
    let settings = gateway.current();
    InputLimits {
        lines: gateway.settings.batches.requests,
        line_bytes: settings.limits.body_bytes,
    }
}

/// Opens the input of a batch.
pub(super) async fn open(gateway: &Gateway, batch: &Batch) -> Result<InputReader, GatewayError> {
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
pub(super) async fn validate(job: &BatchJob, batch: &Batch) -> StepResult {
    let gateway = &job.gateway;
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
