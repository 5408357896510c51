//! Jobs for parser processes, and their answers.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Resource limits of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLimits {
    /// Maximum memory beyond what the process already has, in bytes.
    pub memory: u64,
    /// Maximum time.
    pub time: Duration,
}

/// Identifies a content that processes cache between jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentId([u64; 2]);

impl ContentId {
    /// Identifies a content by a number that is unique in this process.
    pub fn numbered(number: u64) -> Self {
        Self([0, number])
    }

    /// Identifies a content by its bytes.
    pub fn of_bytes(parts: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let digest: [u8; 32] = digest.finalize().into();
        let (numbers, _) = digest.as_chunks();
        Self([
            u64::from_le_bytes(numbers[0]),
            u64::from_le_bytes(numbers[1]),
        ])
    }
}

/// A content that a job needs and a process may have cached.
pub struct JobContent<'j> {
    /// Id of the content.
    pub id: ContentId,
    /// Reads the bytes of the content; called only if the process does not have it.
    pub bytes: &'j dyn Fn() -> io::Result<Cow<'j, [u8]>>,
    /// Additional limits for reading it.
    pub limits: JobLimits,
}

/// A job for a parser process.
pub struct ParserJob<'j> {
    /// Name of the work.
    pub work: &'static str,
    /// The request, as JSON.
    pub ask: Vec<u8>,
    /// Binary data of the request.
    pub payload: &'j [u8],
    /// The content that the job needs, if any.
    pub content: Option<JobContent<'j>>,
    /// Resource limits of the job.
    pub limits: JobLimits,
}

/// The answer to a job.
#[derive(Debug)]
pub struct Done {
    pub(super) head: Vec<u8>,
    /// Binary data of the answer.
    pub payload: Vec<u8>,
}

impl Done {
    /// Parses the answer.
    pub fn head<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.head)?)
    }
}
