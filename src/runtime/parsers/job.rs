//! A job for a process, and what comes back.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What one job may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory beyond what the process has taken before.
    pub memory: u64,
    /// Longest time.
    pub time: Duration,
}

/// Identifies a content that processes keep between jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentId([u64; 2]);

impl ContentId {
    /// Identifies a content by a number that this process gives out once.
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

/// A content that a job needs and a process may keep.
pub struct Content<'j> {
    /// Its id.
    pub id: ContentId,
    /// Reads its bytes; called only if the process does not have it.
    pub bytes: &'j dyn Fn() -> io::Result<Cow<'j, [u8]>>,
    /// What reading it may take beyond the job itself.
    pub limits: Limits,
}

/// A job.
pub struct Job<'j> {
    /// The work's name.
    pub work: &'static str,
    /// What is asked, as JSON.
    pub ask: Vec<u8>,
    /// Bytes beside it.
    pub payload: &'j [u8],
    /// What the process may have from an earlier job.
    pub content: Option<Content<'j>>,
    /// What the job may take.
    pub limits: Limits,
}

/// The answer to a job.
#[derive(Debug)]
pub struct Done {
    pub(super) head: Vec<u8>,
    /// Bytes beside it.
    pub payload: Vec<u8>,
}

impl Done {
    /// Parses the answer.
    pub fn head<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.head)?)
    }
}
