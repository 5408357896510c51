//! Requests to a service, its answers and its errors.

use std::fmt;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{Stream, TryStreamExt as _};

use super::bodies::{BodyReservation, OutOfBodyMemory};

/// Error code of a service that cannot be reached or whose process crashed.
pub const SERVICE_UNAVAILABLE: &str = "mlp-action.common.service-unavailable";

/// A predict request from a client.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The predict data, in the service's own format.
    pub body: Bytes,
    /// The predict config as JSON text; `None` selects the service's default.
    pub config: Option<String>,
    /// The data type that the client named: a media type or the address of a schema.
    pub data_type: Option<String>,
    /// The media types that the client accepts, as in the header `Accept`.
    pub accept: Option<String>,
    /// The body's share of the memory for bodies.
    pub memory: Option<Arc<BodyReservation>>,
    /// It gives way to all other requests: a package's model runs in a process of low priority.
    pub in_background: bool,
}

/// Rejection of a request because of a mistake by the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The message: expected, found and remedy.
    pub message: String,
    /// JSON path of the fault (`$.inputs[0].shape`), if known.
    pub place: Option<String>,
    /// A specific error code that clients know, if any.
    pub code: Option<&'static str>,
}

/// The answer of a service.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status, a success: 200 or the upstream's status.
    pub status: u16,
    /// The body.
    pub body: Body,
    /// Its media type.
    pub content_type: String,
    /// Token usage, if the service counts it itself.
    pub spent: Option<Arc<TokenUsage>>,
    /// The attached instance that gave it.
    pub worker: Option<String>,
}

impl Answer {
    /// Returns the answer with a whole body, whose tokens are not counted.
    pub(super) fn whole(body: impl Into<Bytes>, content_type: &str) -> Self {
        Self {
            status: 200,
            body: Body::Whole(body.into()),
            content_type: content_type.to_owned(),
            spent: None,
            worker: None,
        }
    }
}

/// Token usage of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Prompt tokens.
    pub prompt: u64,
    /// Answer tokens.
    pub completion: u64,
    /// Prompt tokens that were cached.
    pub cached: u64,
}

/// Running token usage of an answer. The service updates it while it sends the answer, so the usage
/// is known even if the client disconnects.
#[derive(Debug, Default)]
pub struct TokenUsage {
    prompt: AtomicU64,
    completion: AtomicU64,
    cached: AtomicU64,
}

/// The body of an answer.
pub enum Body {
    /// The complete body.
    Whole(Bytes),
    /// A stream of pieces, which ends with the first error.
    Stream(Chunks),
}

/// Pieces of a body. Dropping the stream cancels the rest.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, CallError>> + Send>>;

/// Errors of a call to a service.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The request is invalid.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No engine on this machine runs the model.
    #[error("no active instances: {0}")]
    NoInstances(String),
    /// The devices or workers that answer its requests are away, and may come back.
    #[error("no active instances: {0}")]
    Away(String),
    /// The queue is full.
    #[error("the service's queue is full: {limit} requests are waiting")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// The memory for what a body becomes when it is decoded is used up.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfBodyMemory),
    /// The answer did not arrive in time.
    #[error("the service did not answer within {} s", after.as_secs_f64())]
    Timeout {
        /// The limit.
        after: Duration,
    },
    /// The process that ran the model crashed.
    #[error("the service's process crashed: {0}")]
    Crashed(String),
    /// The model failed on this input.
    #[error("{0}")]
    Failed(String),
    /// The conversation ended before this step.
    #[error("the conversation is over: {0}")]
    Over(String),
    /// The service was removed while the request was waiting.
    #[error("the service was stopped")]
    Stopped,
    /// The attached instance or the device that had the request left before it answered.
    #[error("the worker or device that had the request left before it answered")]
    Lost,
    /// An attached instance answered with an error, which is passed through.
    #[error("{message}")]
    Instance {
        /// The HTTP status.
        status: u16,
        /// The error code.
        code: String,
        /// The message for the user.
        message: String,
        /// Further facts, such as `place`, the JSON path of the fault.
        args: Vec<(String, String)>,
        /// The instance.
        worker: String,
    },
    /// An upstream answered with an error status, which is passed through.
    #[error("the upstream answered {status}")]
    Upstream {
        /// Its status.
        status: u16,
        /// Its media type.
        content_type: String,
        /// Its body.
        body: Bytes,
        /// Its `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// All addresses of an upstream failed recently.
    #[error(
        "the upstream does not answer at {}; the next attempt is in {} s",
        if *addresses == 1 { "its address".to_owned() } else { format!("any of its {addresses} addresses") },
        seconds(*retry_after)
    )]
    Down {
        /// Number of addresses.
        addresses: usize,
        /// Time until the next attempt.
        retry_after: Duration,
    },
    /// An upstream is unreachable.
    #[error("the upstream is unreachable: {0}")]
    Unreachable(String),
}

impl CallError {
    /// Returns whether the same request may succeed a little later.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::QueueFull { .. } | Self::OutOfMemory(_))
    }
}

/// Rounds a duration up to whole seconds, at least one.
pub(crate) fn seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

impl TokenUsage {
    /// Adds tokens.
    pub fn add(&self, more: TokenCounts) {
        self.prompt.fetch_add(more.prompt, Relaxed);
        self.completion.fetch_add(more.completion, Relaxed);
        self.cached.fetch_add(more.cached, Relaxed);
    }

    /// Returns the usage so far.
    pub fn so_far(&self) -> TokenCounts {
        TokenCounts {
            prompt: self.prompt.load(Relaxed),
            completion: self.completion.load(Relaxed),
            cached: self.cached.load(Relaxed),
        }
    }
}

impl Body {
    /// Waits for the complete body.
    pub async fn whole(self) -> Result<Bytes, CallError> {
        let mut chunks = match self {
            Self::Whole(body) => return Ok(body),
            Self::Stream(chunks) => chunks,
        };
        let mut body = BytesMut::new();
        while let Some(chunk) = chunks.try_next().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(body) => f.debug_tuple("Whole").field(body).finish(),
            Self::Stream(_) => f.debug_tuple("Stream").finish_non_exhaustive(),
        }
    }
}

impl CallError {
    /// Returns the reason for missing instances, without the prefix.
    pub(super) fn reason(self) -> String {
        match self {
            Self::NoInstances(reason) | Self::Away(reason) => reason,
            other => other.to_string(),
        }
    }

    /// Returns the error without the directories of these files, because clients must not see the
    /// server's paths.
    pub(super) fn without_directories<'f>(self, files: impl Iterator<Item = &'f PathBuf>) -> Self {
        let shorten = |text: String| files.fold(text, |text, file| strip_directories(text, file));
        match self {
            Self::Refused(refusal) => Self::Refused(Refusal {
                message: shorten(refusal.message),
                ..refusal
            }),
            Self::NoInstances(reason) => Self::NoInstances(shorten(reason)),
            Self::Away(reason) => Self::Away(shorten(reason)),
            // The texts of other errors appear only in the log.
            other => other,
        }
    }
}

/// Removes the directories above a file from a text, so that paths of nearby files become relative.
pub(crate) fn strip_directories(text: String, file: &Path) -> String {
    let above = file.ancestors().skip(1);
    // A directory directly below the root, such as `/home`, reveals nothing, and its name may be an
    // ordinary word.
    let deep = above.filter(|directory| directory.components().count() > 2);
    deep.filter_map(Path::to_str).fold(text, |text, directory| {
        if text.contains(directory) {
            without(&text, directory)
        } else {
            text
        }
    })
}

/// Removes a directory wherever it is a whole path or the beginning of one.
fn without(text: &str, directory: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(directory) {
        let (before, found) = rest.split_at(place);
        let after = &found[directory.len()..];
        kept.push_str(before);
        let goes_on = |it: char| it.is_alphanumeric() || matches!(it, '.' | '_' | '-');
        rest = if let Some(below) = after.strip_prefix(MAIN_SEPARATOR) {
            below
        } else if after.starts_with(goes_on) {
            // The name of another directory that begins with this one's name.
            kept.push_str(directory);
            after
        } else {
            kept.push_str("its directory");
            after
        };
    }
    kept + rest
}

impl Refusal {
    /// Creates a refusal with a place.
    pub fn at(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            place: Some(place.into()),
            code: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_server_leave_a_text() {
        let file = Path::new("/srv/my models/pkg/onnx/m.onnx");
        for (text, expected) in [
            (
                "/srv/my models/pkg/onnx/m.onnx: it is broken",
                "m.onnx: it is broken",
            ),
            (
                "`/srv/my models/pkg/tokenizer.json` of /srv/my models/pkg",
                "`tokenizer.json` of its directory",
            ),
            ("/srv/my models/pkg2/x differs", "pkg2/x differs"),
            (
                "POST /srv/model and /layers/0/MatMul",
                "POST /srv/model and /layers/0/MatMul",
            ),
        ] {
            assert_eq!(strip_directories(text.to_owned(), file), expected);
        }
        let error = CallError::NoInstances("no /srv/my models/pkg/onnx/x".to_owned());
        let file = file.to_owned();
        let told = error.without_directories([&file].into_iter());
        assert_eq!(told.reason(), "no x");
    }
}
