//! The server's log: text on a terminal, JSON otherwise, on standard error.

use std::io::{self, IsTerminal};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::gateway::settings::{Log, LogFormat};

/// Lines that may wait to be written; more make who logs wait.
const WAITING_LINES: usize = 8192;

/// Starts the log. What waits is written when the guard is dropped.
pub(super) fn start(settings: &Log) -> Result<WorkerGuard, String> {
    let filter = EnvFilter::try_new(&settings.level)
        .map_err(|error| format!("`log.level` is `{}`: {error}", settings.level))?;
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(false)
        .buffered_lines_limit(WAITING_LINES)
        .finish(io::stderr());
    let terminal = io::stderr().is_terminal();
    let log = fmt().with_env_filter(filter).with_writer(writer);
    let set = match settings.format {
        LogFormat::Json => log.json().flatten_event(true).try_init(),
        LogFormat::Auto if !terminal => log.json().flatten_event(true).try_init(),
        LogFormat::Auto | LogFormat::Text => {
            let colors = terminal && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
            log.with_ansi(colors).with_target(false).try_init()
        }
    };
    set.map_err(|error| format!("the log cannot be started: {error}"))?;
    Ok(guard)
}
