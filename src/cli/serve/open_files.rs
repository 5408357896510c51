//! Raises the process's limit of open files, and limits the number of connections accordingly.

use pkgtool_serve::gateway::settings::GatewaySettings;

/// Number of files that the server needs besides its connections: database, bodies, upstreams,
/// workers.
#[cfg(unix)]
const RESERVED_FILES: u64 = 256;

/// Raises the limit of open files as far as the system allows, and lowers the limit of connections
/// to what fits.
pub(super) fn fit_connections(settings: &mut GatewaySettings) {
    let Some(files) = raise() else { return };
    let connections = &mut settings.limits.connections;
    let room = usize::try_from(files).unwrap_or(usize::MAX).max(1);
    if *connections > room {
        tracing::warn!(
            set = *connections,
            possible = room,
            "connections limited below the setting: the system's limit of open files (ulimit -n) is too low"
        );
        *connections = room;
    }
}

/// Raises the soft limit to the hard limit, and returns the number of connections that it allows.
#[cfg(unix)]
fn raise() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let resource = Resource::RLIMIT_NOFILE;
    let (soft, hard) = getrlimit(resource).ok()?;
    let files = match setrlimit(resource, hard, hard) {
        Ok(()) => hard,
        Err(error) => {
            tracing::warn!(%error, soft, "cannot raise the limit of open files");
            soft
        }
    };
    // If the limit is small, connections get half of it.
    Some(files.saturating_sub(RESERVED_FILES).max(files / 2))
}

#[cfg(not(unix))]
fn raise() -> Option<u64> {
    None
}
