//! What such a process and its parent say to each other: heads with the lengths of what follows them.
//!
//! Invariant: the parent believes no length of an answer beyond [`MAX_ANSWER`].

use std::borrow::Cow;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use super::job::ContentId;

/// Longest answer, in bytes: the tensor of the largest picture that is decoded, as float32 of four channels.
const MAX_ANSWER: usize = 512 << 20;

/// The head of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked<'a> {
    /// The work's name.
    pub(super) work: Cow<'a, str>,
    /// The content that the job needs.
    pub(super) id: Option<ContentId>,
    /// Bytes of what is asked.
    pub(super) ask: usize,
    /// Bytes of the content, if it is sent.
    pub(super) content: Option<usize>,
    /// Bytes beside it.
    pub(super) payload: usize,
    /// Bytes of memory that the job may take.
    pub(super) memory: u64,
}

/// The head of an answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answered {
    /// The process does not have the content: ask again with it.
    Unknown,
    /// The work is done.
    Done {
        /// Bytes of the answer.
        head: usize,
        /// Bytes beside it.
        payload: usize,
    },
    /// The work panicked.
    Panicked(String),
}

/// Receives a part of a length.
pub(super) fn part(stream: &mut (impl Read + ?Sized), length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(length);
    reserved.map_err(|_| io::ErrorKind::OutOfMemory)?;
    let read = Read::take(&mut *stream, length as u64).read_to_end(&mut bytes)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Receives a part of an answer.
pub(super) fn answer_part(stream: &mut (impl Read + ?Sized), length: usize) -> io::Result<Vec<u8>> {
    if length > MAX_ANSWER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    part(stream, length)
}
