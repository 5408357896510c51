//! Settings and limits for access to servers.

use std::time::Duration;

/// Settings of the user for one run.
#[derive(Debug, Clone)]
pub struct RemoteSettings {
    /// URL of the hub, `https://…`.
    pub hub_endpoint: String,
    /// Token of the hub, which is sent only to the hub's own origin.
    pub token: Option<String>,
    /// Allow redirects into private networks.
    pub allow_private: bool,
    /// Read the headers of models. Otherwise only their sizes are requested.
    pub opens_models: bool,
    /// Limits.
    pub limits: PullLimits,
}

/// Limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct PullLimits {
    /// Time limit for establishing a connection.
    pub connect: Duration,
    /// Maximum time without data from a server.
    pub idle: Duration,
    /// Waiting time for a body after which its transfer rate is checked.
    pub rate_window: Duration,
    /// Minimum number of bytes of a body that must arrive in each window. This limits the duration
    /// of a download.
    pub min_window_bytes: u64,
    /// Time limit of the run; `None` for a download.
    pub total: Option<Duration>,
    /// Maximum number of bytes that are fetched to inspect one file.
    pub file_bytes: u64,
    /// Maximum number of bytes that are read of a file from a server without range requests.
    pub whole_bytes: u64,
    /// Maximum number of bytes of all files; `None` for a download.
    pub run_bytes: Option<u64>,
    /// Maximum number of requests; `None` for a download.
    pub requests: Option<u64>,
}

impl Default for PullLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            rate_window: Duration::from_mins(1),
            min_window_bytes: 60 << 10,
            total: Some(Duration::from_mins(5)),
            file_bytes: 16 << 20,
            whole_bytes: 1 << 20,
            run_bytes: Some(256 << 20),
            requests: Some(20_000),
        }
    }
}
