//! Errors of reading packages from servers.

/// The error of a server, or of an address. Its message includes the address.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RemoteError {
    /// The address is invalid.
    #[error("`{address}`: {reason}")]
    Address {
        /// Address as given.
        address: String,
        /// Fault of the address, and the expected form.
        reason: String,
    },
    /// A setting of the client is invalid.
    #[error("{0}")]
    Setting(String),
    /// The server could not be reached.
    #[error("{url}: {reason}")]
    Unreachable {
        /// Requested URL.
        url: String,
        /// Error of the network.
        reason: String,
    },
    /// The server answered with an error.
    #[error("{url}: the server answers {status}{hint}")]
    Status {
        /// Requested URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// Hint about the remedy.
        hint: &'static str,
    },
    /// The server stopped sending data.
    #[error("{url}: no data received for {seconds} s")]
    Stalled {
        /// Requested URL.
        url: String,
        /// Waiting time in seconds.
        seconds: u64,
    },
    /// The server sends data too slowly for the transfer to finish.
    #[error(
        "{url}: the server is too slow: {bytes} bytes in {seconds} s, expected at least {least}; run again to resume"
    )]
    TooSlowTransfer {
        /// Requested URL.
        url: String,
        /// Number of received bytes.
        bytes: u64,
        /// Waiting time in seconds.
        seconds: u64,
        /// Required number of bytes in this time.
        least: u64,
    },
    /// The run exceeded its time limit.
    #[error("{url}: not finished within the time limit of {seconds} s; raise it with --timeout")]
    TooSlow {
        /// Requested URL.
        url: String,
        /// Time limit in seconds.
        seconds: u64,
    },
    /// A redirect leads to an address in a private network.
    #[error(
        "{url}: redirects to {host}, an address in a private network; allow it with --allow-private"
    )]
    Private {
        /// Requested URL.
        url: String,
        /// Host that the redirect leads to.
        host: String,
    },
    /// A redirect is invalid, or there are too many.
    #[error("{url}: {reason}")]
    Redirect {
        /// URL of the first request.
        url: String,
        /// Fault of the redirect.
        reason: String,
    },
    /// The answer does not match the request or earlier answers.
    #[error("{url}: inconsistent answer of the server: {reason}")]
    Inconsistent {
        /// Requested URL.
        url: String,
        /// Expected and received values.
        reason: String,
    },
    /// The file changed during the run.
    #[error("{url}: the file changed on the server while it was read; try again")]
    Changed {
        /// URL of the file.
        url: String,
    },
    /// The server does not support range requests.
    #[error(
        "{url}: the server does not support range requests: the file has {size} bytes, and the needed ones lie \
         beyond the first {most}; download the package with `pkgtool pull` and check it there"
    )]
    NoRanges {
        /// URL of the file.
        url: String,
        /// Size of the file, in bytes.
        size: u64,
        /// Maximum number of bytes that are read of such a file.
        most: u64,
    },
    /// The check exceeded its limit of bytes or requests.
    #[error(
        "{url}: needs more than {most}, the limit of a remote check; download the package with `pkgtool pull`"
    )]
    Budget {
        /// Requested URL.
        url: String,
        /// The limit.
        most: String,
    },
    /// The listing is invalid.
    #[error("{url}: unusable listing: {reason}")]
    Listing {
        /// URL of the listing.
        url: String,
        /// Expected and received values.
        reason: String,
    },
    /// The directory is not a package, and the server does not list its content.
    #[error(
        "{url}: not a package: its `config.json` has neither `backend` nor `variants`, and the server does not \
         list the directories below; name the directory of a backend"
    )]
    NoPackage {
        /// URL of the directory.
        url: String,
    },
    /// There is nothing to work on.
    #[error("{url}: {reason}")]
    Nothing {
        /// Requested URL.
        url: String,
        /// Description of what is missing.
        reason: String,
    },
    /// Accessing the local disk failed.
    #[error("{path}: {reason}")]
    Disk {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        reason: String,
    },
    /// Local files differ from those of the source.
    #[error("{0}")]
    Differs(String),
    /// Another process downloads to the same directory.
    #[error("{0}: another `pkgtool pull` is running in this directory; wait for it or stop it")]
    Busy(String),
}

impl RemoteError {
    /// Creates an error of the local disk.
    pub(super) fn disk(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Disk {
            path: path.display().to_string(),
            reason: error.to_string(),
        }
    }

    /// Creates an error about a contradictory answer.
    pub(super) fn lie(url: &impl ToString, reason: impl Into<String>) -> Self {
        Self::Inconsistent {
            url: url.to_string(),
            reason: reason.into(),
        }
    }

    /// Returns whether the error is transient, so that a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Stalled { .. } => true,
            Self::Status { status, .. } => matches!(status, 429 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }
}
