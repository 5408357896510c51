//! How many files the process may have open, and how many connections that allows.

use crate::gateway::settings::Settings;

/// Files that the server needs beside its connections: the database, bodies, upstreams, workers.
#[cfg(unix)]
const OTHERS: u64 = 256;

/// Raises the limit of open files as far as the system lets it, and lowers that of connections to what
/// there is room for.
pub(super) fn make_room(settings: &mut Settings) {
    let Some(files) = raise() else { return };
    let connections = &mut settings.limits.connections;
    let room = usize::try_from(files).unwrap_or(usize::MAX).max(1);
    if *connections > room {
        tracing::warn!(
            set = *connections,
            possible = room,
            "fewer connections than are set: the system's limit of open files (ulimit -n) is too low"
        );
        *connections = room;
    }
}

/// Raises the limit to the hard one, and gives how many connections that is.
#[cfg(unix)]
fn raise() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let resource = Resource::RLIMIT_NOFILE;
    let (soft, hard) = getrlimit(resource).ok()?;
    let files = match setrlimit(resource, hard, hard) {
        Ok(()) => hard,
        Err(error) => {
            tracing::warn!(%error, soft, "the limit of open files stays");
            soft
        }
    };
    // Of few files the connections get half.
    Some(files.saturating_sub(OTHERS).max(files / 2))
}

#[cfg(not(unix))]
fn raise() -> Option<u64> {
    None
}
