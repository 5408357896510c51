//! How servers are asked, and how much may be taken from them.

use std::time::Duration;

/// What a run is told by the user.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The hub's address, `https://…`.
    pub hub_endpoint: String,
    /// The hub's token, sent to the hub's own origin only.
    pub token: Option<String>,
    /// Whether redirects may lead into private networks.
    pub allow_private: bool,
    /// Whether headers of models are read. Else their sizes are all that is asked for.
    pub opens_models: bool,
    /// Bounds.
    pub limits: Limits,
}

/// Bounds of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a connection may take to be made.
    pub connect: Duration,
    /// How long a server may send nothing.
    pub idle: Duration,
    /// How long a body may be waited for until it is seen whether enough came.
    pub window: Duration,
    /// Bytes of a body that must come in a window. A download takes no longer than its bytes at this rate.
    pub window_bytes: u64,
    /// How long the run may take; `None` for a download.
    pub total: Option<Duration>,
    /// Bytes of one file that may be fetched to look into it.
    pub file_bytes: u64,
    /// Bytes that are read of a file which the server only sends whole.
    pub whole_bytes: u64,
    /// Bytes of all files; `None` for a download.
    pub run_bytes: Option<u64>,
    /// Requests; `None` for a download.
    pub requests: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            window: Duration::from_mins(1),
            window_bytes: 60 << 10,
            total: Some(Duration::from_mins(5)),
            file_bytes: 16 << 20,
            whole_bytes: 1 << 20,
            run_bytes: Some(256 << 20),
            requests: Some(20_000),
        }
    }
}
