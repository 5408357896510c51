//! The messages between a parser process and its parent: heads with the lengths of the data that
//! follow.
//!
//! Invariant: the parent rejects an answer with a length beyond [`MAX_ANSWER_BYTES`].

use std::borrow::Cow;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use super::job::ContentId;

/// Maximum size of an answer, in bytes: the tensor of the largest image, as float32 with four
/// channels.
const MAX_ANSWER_BYTES: usize = 512 << 20;

/// The head of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobHead<'a> {
    /// Name of the work.
    pub(super) work: Cow<'a, str>,
    /// Id of the content that the job needs.
    pub(super) id: Option<ContentId>,
    /// Size of the request, in bytes.
    pub(super) ask: usize,
    /// Size of the content, in bytes, if it is sent.
    pub(super) content: Option<usize>,
    /// Size of the binary data, in bytes.
    pub(super) payload: usize,
    /// Maximum memory of the job, in bytes.
    pub(super) memory: u64,
}

/// The head of an answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AnswerHead {
    /// The process does not have the content: send the job again with it.
    Unknown,
    /// The work is done.
    Done {
        /// Size of the answer, in bytes.
        head: usize,
        /// Size of the binary data, in bytes.
        payload: usize,
    },
    /// The work panicked.
    Panicked(String),
}

/// Receives a part of this length.
pub(super) fn receive_part(
    stream: &mut (impl Read + ?Sized),
    length: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(length);
    reserved.map_err(|_| io::ErrorKind::OutOfMemory)?;
    let read = Read::take(&mut *stream, length as u64).read_to_end(&mut bytes)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Receives a part of an answer; fails if it is too long.
pub(super) fn receive_answer_part(
    stream: &mut (impl Read + ?Sized),
    length: usize,
) -> io::Result<Vec<u8>> {
    if length > MAX_ANSWER_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    receive_part(stream, length)
}
