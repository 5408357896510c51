//! Why a job has no answer.

/// Why a job has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParserError {
    /// As many jobs wait as may wait, or one waited for too long.
    #[error("{reason}; try again later")]
    Busy {
        /// Which of the two.
        reason: String,
    },
    /// Whoever asked has gone.
    #[error("the request was cancelled")]
    Cancelled,
    /// No process can be started.
    #[error("no process can be started for it: {0}")]
    Start(String),
    /// The job reached a limit.
    #[error("it reached {0}")]
    Limit(String),
    /// The process ended.
    #[error("the process died: {0}")]
    Died(String),
    /// The library panicked.
    #[error("it panicked: {0}")]
    Panicked(String),
    /// A content that the process needs cannot be read.
    #[error("its file cannot be read: {0}")]
    Content(String),
}

impl ParserError {
    /// Whether another job would fail as well: the fault is not in the bytes.
    pub fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. } | Self::Cancelled | Self::Start(_) | Self::Content(_)
        )
    }
}
