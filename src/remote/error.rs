//! Why a server's files cannot be had.

/// What went wrong with a server, or with what the user named. Texts name the address.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RemoteError {
    /// The address is none.
    #[error("`{address}`: {reason}")]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it, and what is expected.
        reason: String,
    },
    /// A setting of the client cannot be used.
    #[error("{0}")]
    Setting(String),
    /// No answer came.
    #[error("{url}: {reason}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// What the network said.
        reason: String,
    },
    /// The answer is an error.
    #[error("{url}: the server answers {status}{hint}")]
    Status {
        /// What was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// What to do.
        hint: &'static str,
    },
    /// The server stopped sending.
    #[error("{url}: nothing came for {seconds} s")]
    Stalled {
        /// What was asked.
        url: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The server sends so little that the transfer would not end.
    #[error(
        "{url}: the server is too slow: {bytes} bytes in {seconds} s, expected at least {least}; a later run resumes"
    )]
    Drips {
        /// What was asked.
        url: String,
        /// What came.
        bytes: u64,
        /// How long was waited.
        seconds: u64,
        /// What must come.
        least: u64,
    },
    /// The run took too long.
    #[error("{url}: not done after {seconds} s, which is the limit of a run; see --timeout")]
    TooSlow {
        /// What was asked.
        url: String,
        /// The limit.
        seconds: u64,
    },
    /// A redirect leads to an address of a private network.
    #[error(
        "{url}: leads to {host}, an address of a private network; if that is meant, use --allow-private"
    )]
    Private {
        /// What was asked.
        url: String,
        /// The host.
        host: String,
    },
    /// Redirects that do not end, or lead where none may.
    #[error("{url}: {reason}")]
    Redirect {
        /// What was asked first.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The answer is not what was asked for, or not what was said before.
    #[error("{url}: the server contradicts itself: {reason}")]
    Lie {
        /// What was asked.
        url: String,
        /// Expected and found.
        reason: String,
    },
    /// The file is another one than at the beginning.
    #[error("{url}: the file changed on the server while it was read; try again")]
    Changed {
        /// The file.
        url: String,
    },
    /// The server sends only whole files.
    #[error(
        "{url}: the server does not do ranges: it sends all {size} bytes from the beginning, and what is needed \
         lies beyond the first {most}; fetch the package with `pkgtool pull` and check it there"
    )]
    NoRanges {
        /// The file.
        url: String,
        /// Its size in bytes.
        size: u64,
        /// Bytes that are read of such a file.
        most: u64,
    },
    /// More bytes or requests than a check may take.
    #[error(
        "{url}: needs more than {most}, the limit of a check from afar; fetch the package with `pkgtool pull`"
    )]
    Budget {
        /// What was read.
        url: String,
        /// The limit.
        most: String,
    },
    /// A listing that cannot be used.
    #[error("{url}: not a usable listing: {reason}")]
    Listing {
        /// The listing.
        url: String,
        /// Expected and found.
        reason: String,
    },
    /// Where a package was looked for is none, and what lies below is not told.
    #[error(
        "{url}: no package: its `config.json` has neither `backend` nor `variants`, and as the server gives no \
         listing nothing is known of what lies below; name the directory of a backend"
    )]
    NoPackage {
        /// The directory.
        url: String,
    },
    /// There is nothing to work on.
    #[error("{url}: {reason}")]
    Nothing {
        /// What was asked.
        url: String,
        /// What was looked for.
        reason: String,
    },
    /// The local disk.
    #[error("{path}: {reason}")]
    Disk {
        /// Which file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// Local files differ from those of the source.
    #[error("{0}")]
    Differs(String),
    /// Another process fetches into the same directory.
    #[error("{0}: another `pkgtool pull` is at work in this directory; wait for it or end it")]
    Busy(String),
}

impl RemoteError {
    /// An error of the local disk.
    pub(super) fn disk(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Disk {
            path: path.display().to_string(),
            reason: error.to_string(),
        }
    }

    /// A contradiction.
    pub(super) fn lie(url: &impl ToString, reason: impl Into<String>) -> Self {
        Self::Lie {
            url: url.to_string(),
            reason: reason.into(),
        }
    }

    /// Whether the same request may well succeed a moment later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Stalled { .. } => true,
            Self::Status { status, .. } => matches!(status, 429 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }
}
