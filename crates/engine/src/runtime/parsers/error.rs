//! Errors of jobs of parser processes.

/// A job failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParserError {
    /// The queue is full, or the job waited too long.
    #[error("{reason}; try again later")]
    Busy {
        /// The reason.
        reason: String,
    },
    /// The request was cancelled, usually because its client disconnected.
    #[error("the request was cancelled")]
    Cancelled,
    /// The process cannot be started.
    #[error("the process cannot be started: {0}")]
    Start(String),
    /// The job exceeded a limit.
    #[error("it reached {0}")]
    Limit(String),
    /// The process crashed.
    #[error("the process crashed: {0}")]
    Died(String),
    /// The library panicked.
    #[error("it panicked: {0}")]
    Panicked(String),
    /// The content that the process needs cannot be read.
    #[error("its file cannot be read: {0}")]
    Content(String),
}

impl ParserError {
    /// Returns `true` if other jobs would fail as well, since the input is not the cause.
    pub fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. } | Self::Cancelled | Self::Start(_) | Self::Content(_)
        )
    }
}
