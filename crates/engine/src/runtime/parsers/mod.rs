//! Parser processes: child processes that parse untrusted input, such as chat templates, images,
//! and texts for tokenizers.
//!
//! The libraries for such input may loop or allocate without bounds, so they run in processes with
//! limits on memory and time. The module knows no kind of work: a [`ParserJob`] names it, and [`serve`]
//! passes it to the code that does it.
//!
//! Invariant: every job gets an answer or a [`ParserError`]. A failed process is never used again.
//! One caller never occupies all processes.

mod cancel;
mod child;
mod client;
mod error;
mod job;
mod kept;
mod pool;
mod protocol;

pub use child::{JobAnswer, ParserTask, serve};
pub use client::{ParserClient, Parsers};
pub use error::ParserError;
pub use job::{ContentId, Done, JobContent, JobLimits, ParserJob};
pub use kept::ContentCache;
pub use pool::MAX_WAITING_PER_CALLER as MOST_WAITING;

/// The argument after `worker` that starts a parser process.
pub const WORK: &str = "parsers";
