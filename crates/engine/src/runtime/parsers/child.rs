//! The child's side of a parser process: does jobs until its parent exits.
//!
//! Invariant: each job runs within its own memory limit.

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::job::ContentId;
use super::protocol::{self, AnswerHead, JobHead};
use crate::runtime::process::sandbox::SandboxPermissions;
use crate::runtime::process::{self, frame, limit_further_memory, panic_text};

/// Maximum length of a panic message, in bytes.
const MAX_PANIC_MESSAGE_BYTES: usize = 4096;

/// A job, as the process receives it.
#[derive(Debug)]
pub struct ParserTask {
    /// Name of the work.
    pub work: String,
    /// Id of the content that the job needs.
    pub id: Option<ContentId>,
    /// The content, if it was sent with the job.
    pub content: Option<Vec<u8>>,
    /// Binary data of the request.
    pub payload: Vec<u8>,
    ask: Vec<u8>,
}

/// The answer to a job.
#[derive(Debug)]
pub enum JobAnswer {
    /// The process does not have the content.
    Unknown,
    /// The work is done.
    Done {
        /// The answer, as JSON.
        head: Vec<u8>,
        /// Binary data of the answer.
        payload: Vec<u8>,
    },
}

impl ParserTask {
    /// Parses the request.
    pub fn ask<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.ask)?)
    }

    fn receive(stream: &mut dyn Read) -> io::Result<Self> {
        let head: JobHead<'static> = frame::receive(stream)?;
        // The received bytes themselves do not count toward the limit.
        let received = head.ask + head.payload + head.content.unwrap_or(0);
        limit_further_memory(head.memory.saturating_add(received as u64));
        Ok(Self {
            ask: protocol::receive_part(stream, head.ask)?,
            content: match head.content {
                Some(length) => Some(protocol::receive_part(stream, length)?),
                None => None,
            },
            payload: protocol::receive_part(stream, head.payload)?,
            work: head.work.into_owned(),
            id: head.id,
        })
    }
}

impl JobAnswer {
    /// Creates an answer without binary data.
    pub fn of(head: &impl Serialize) -> io::Result<Self> {
        Self::with(head, Vec::new())
    }

    /// Creates an answer with binary data.
    pub fn with(head: &impl Serialize, payload: Vec<u8>) -> io::Result<Self> {
        let head = serde_json::to_vec(head)?;
        Ok(Self::Done { head, payload })
    }
}

/// Does jobs for the parent at the other end of standard input until it exits.
pub fn serve(mut work: impl FnMut(ParserTask) -> io::Result<JobAnswer>) -> io::Result<()> {
    let ((), sandbox) = process::confined(|()| SandboxPermissions::default())?;
    sandbox.map_err(|missing| {
        io::Error::other(format!(
            "it has no full sandbox, which is required: {missing}"
        ))
    })?;
    let (tasks, mut to_parent) = process::requests(ParserTask::receive)?;
    for task in tasks {
        match catch_unwind(AssertUnwindSafe(|| work(task))) {
            Ok(answer) => send(&mut to_parent, answer?)?,
            Err(panic) => {
                let mut message = panic_text(panic.as_ref()).to_owned();
                message.truncate(message.floor_char_boundary(MAX_PANIC_MESSAGE_BYTES));
                frame::send(&mut to_parent, &AnswerHead::Panicked(message))?;
            }
        }
    }
    Ok(())
}

fn send(stream: &mut impl Write, answer: JobAnswer) -> io::Result<()> {
    match answer {
        JobAnswer::Unknown => frame::send(stream, &AnswerHead::Unknown),
        JobAnswer::Done { head, payload } => {
            let lengths = AnswerHead::Done {
                head: head.len(),
                payload: payload.len(),
            };
            frame::send_with(stream, &lengths, [&*head, &*payload])
        }
    }
}
