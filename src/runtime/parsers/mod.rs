//! Processes that read bytes of others: chat templates, pictures, texts for tokenizers.
//!
//! The libraries that read such bytes may loop or allocate without a bound of their own, so they run in
//! processes with a limit on memory and time. Invariant: whatever a job does, its caller gets an answer
//! or a [`ParserError`]; a process that failed is never used again; one caller never holds every process.
//! Knows no kind of job: a [`Job`] names its work, and [`serve`] hands it to whoever does that work.

mod cancel;
mod child;
mod client;
mod error;
mod job;
mod kept;
mod pool;
mod protocol;

pub use child::{Answer, Task, serve};
pub use client::{Client, Parsers};
pub use error::ParserError;
pub use job::{Content, ContentId, Done, Job, Limits};
pub use kept::Kept;
pub use pool::MOST_OF_ONE as MOST_WAITING;

/// The argument after `worker` that starts such a process.
pub const WORK: &str = "parsers";
