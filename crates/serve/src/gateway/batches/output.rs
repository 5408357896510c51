//! Writes the files of a batch: the answers, and the requests that failed or did not run.
//!
//! Invariant: a request is in one of the two files, once.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::super::Gateway;
use super::super::error::GatewayError;
use super::line::request_id;
use super::{AdvanceResult, input};
use crate::batch::{
    BatchId, BatchState, FilePurpose, LineOutcome, LineRequest, NewFile, StoredBatch,
};
use crate::database::Timestamp;
use crate::service::BodyReservation;
use crate::task::{FileKind, StoredContent, Upload};

/// Size of the outcomes that are read at once, in bytes.
const READ_BYTES: u64 = 1 << 20;

/// Size of the lines that are collected before they are added to an upload, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// A line of a file.
#[derive(Serialize)]
struct OutputLine<'l> {
    id: String,
    custom_id: &'l str,
    response: Option<LineResponse<'l>>,
    error: Option<serde_json::Value>,
}

#[derive(Serialize)]
struct LineResponse<'l> {
    status_code: u16,
    request_id: String,
    body: &'l RawValue,
}

/// A file that is being written; it has no upload before its first line.
struct OutputFile<'g> {
    gateway: &'g Gateway,
    upload: Option<(String, Upload)>,
    piece: BytesMut,
    memory: Arc<BodyReservation>,
}

/// Writes the files of a batch, and stores its last state with them.
pub(super) async fn end(
    gateway: &Gateway,
    batch: &StoredBatch,
    state: BatchState,
) -> AdvanceResult {
    // One reservation for both files: two batches that wait for their second one would never end.
    let both = 2 * gateway.blobs.upload_memory();
    let memory = Arc::new(gateway.memory.wait(batch.is.account, both).await);
    let [mut answers, mut failures] = [(); 2].map(|()| OutputFile {
        gateway,
        upload: None,
        piece: BytesMut::new(),
        memory: Arc::clone(&memory),
    });
    let mut last = 0;
    loop {
        let outcomes = gateway.batches.lines(batch.id, last, READ_BYTES).await?;
        let Some(newest) = outcomes.last() else { break };
        last = newest.line;
        for outcome in &outcomes {
            let file = if outcome.is_success() {
                &mut answers
            } else {
                &mut failures
            };
            file.add(&answered(batch.id, outcome)?).await?;
        }
    }
    if state != BatchState::Completed {
        let mut left = input::unanswered(gateway, batch).await?;
        while let Some(request) = left.recv().await {
            let (line, text) = request?;
            let request = LineRequest::read(&text, batch.is.endpoint);
            let custom_id = request.map_or_else(|_| String::new(), |it| it.custom_id);
            failures
                .add(&unanswered((batch.id, line), &custom_id, state))
                .await?;
        }
    }
    let files = [
        answers.finish(batch, "output").await?,
        failures.finish(batch, "error").await?,
    ];
    let blobs = files.clone().map(|file| file.map(|file| file.blob));
    let ended = gateway
        .batches
        .end(batch.id, state, files, Timestamp::now());
    if let Err(error) = ended.await {
        for blob in blobs.into_iter().flatten() {
            gateway.blobs.delete_file(&blob).await;
        }
        return Err(error.into());
    }
    gateway.on_disk.forget(batch.is.account);
    tracing::info!(batch = batch.id.0, state = state.name(), "batch ended");
    Ok(())
}

fn answered(batch: BatchId, outcome: &LineOutcome) -> Result<OutputLine<'_>, GatewayError> {
    let id = request_id(batch, outcome.line);
    let body = serde_json::from_slice(&outcome.answer);
    Ok(OutputLine {
        custom_id: &outcome.custom_id,
        response: Some(LineResponse {
            status_code: outcome.status,
            request_id: id.clone(),
            body: body.map_err(|error| GatewayError::unchecked(&error))?,
        }),
        id,
        error: None,
    })
}

fn unanswered((batch, line): (BatchId, u64), custom_id: &str, state: BatchState) -> OutputLine<'_> {
    let (code, message) = if state == BatchState::Expired {
        ("batch_expired", "the batch expired before the request ran")
    } else {
        (
            "batch_cancelled",
            "the batch was canceled before the request ran",
        )
    };
    OutputLine {
        id: request_id(batch, line),
        custom_id,
        response: None,
        error: Some(json!({"code": code, "message": message})),
    }
}

impl OutputFile<'_> {
    async fn add(&mut self, line: &OutputLine<'_>) -> AdvanceResult {
        let mut piece = std::mem::take(&mut self.piece).writer();
        let written = serde_json::to_writer(&mut piece, line);
        written.map_err(|error| GatewayError::unchecked(&error))?;
        self.piece = piece.into_inner();
        self.piece.put_u8(b'\n');
        if self.piece.len() >= PIECE_BYTES {
            let piece = self.piece.split().freeze();
            self.write(piece).await?;
        }
        Ok(())
    }

    async fn write(&mut self, piece: Bytes) -> AdvanceResult {
        let (_, upload) = match &mut self.upload {
            Some(upload) => upload,
            none => {
                let id = self.gateway.ids.next(Timestamp::now());
                let blob = self.gateway.blobs.file_name(FileKind::Batch, id);
                let memory = Arc::clone(&self.memory);
                let upload = self.gateway.blobs.upload_file(&blob, memory);
                none.insert((blob, upload))
            }
        };
        Ok(upload.push(piece).await?)
    }

    /// Finishes the file; `None` if it has no lines.
    async fn finish(
        mut self,
        batch: &StoredBatch,
        kind: &str,
    ) -> Result<Option<NewFile>, GatewayError> {
        if !self.piece.is_empty() {
            let piece = self.piece.split().freeze();
            self.write(piece).await?;
        }
        let Some((blob, upload)) = self.upload else {
            return Ok(None);
        };
        let StoredContent::Blob { size, sha256 } = upload.finish().await? else {
            return Err(GatewayError::unchecked(&"the upload is not a blob"));
        };
        let keep = self.gateway.settings.batches.keep();
        Ok(Some(NewFile {
            account: batch.is.account,
            name: format!("batch_{}_{kind}.jsonl", batch.id.0),
            purpose: FilePurpose::BatchOutput,
            blob,
            size,
            sha256,
            expires_at: Timestamp::now().after(keep),
        }))
    }
}
