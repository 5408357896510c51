//! Fetches files of assigned packages from a gate.

use std::time::Duration;

use tokio::time::timeout;
use tonic::Streaming;

use super::Security;
use super::connection::connected;
use crate::address::GateAddress;
use crate::protocol::gate_client::GateClient;
use crate::protocol::{ContentProto, ContentRequestProto};

/// Maximum time to connect, and until the next bytes come.
const SILENCE_TIME: Duration = Duration::from_secs(30);

/// A file could not be fetched.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct FetchError(String);

/// The bytes of a file that a gate sends.
#[derive(Debug)]
pub struct FetchedContent {
    pieces: Streaming<ContentProto>,
    gate: GateAddress,
}

/// Begins to fetch a file.
pub async fn fetch(
    security: &Security,
    gate: &GateAddress,
    request: ContentRequestProto,
) -> Result<FetchedContent, FetchError> {
    let opened = async {
        let channel = connected(security, gate).await.map_err(FetchError)?;
        let response = GateClient::new(channel).content(request).await;
        Ok(response.map_err(|status| failed(&status))?.into_inner())
    };
    let opened = timeout(SILENCE_TIME, opened).await;
    let pieces = opened.map_err(|_| FetchError(format!("{gate} does not answer")))??;
    Ok(FetchedContent {
        pieces,
        gate: gate.clone(),
    })
}

impl FetchedContent {
    /// Returns the next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, FetchError> {
        match timeout(SILENCE_TIME, self.pieces.message()).await {
            Ok(Ok(piece)) => Ok(piece.map(|piece| piece.data)),
            Ok(Err(status)) => Err(failed(&status)),
            Err(_) => Err(FetchError(format!("{} sends nothing any more", self.gate))),
        }
    }
}

fn failed(status: &tonic::Status) -> FetchError {
    FetchError(status.message().to_owned())
}
