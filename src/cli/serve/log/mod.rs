//! The server's log: text on a terminal, JSON otherwise, on standard error; and its traces, in a build
//! that has them.

#[cfg(feature = "otel")]
mod otel;
#[cfg(not(feature = "otel"))]
#[path = "otel_absent.rs"]
mod otel;
mod writer;

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, registry, reload};

use crate::gateway::settings::{Log, LogFormat};

/// Lines that may wait to be written; more make who logs wait.
const WAITING_LINES: usize = 8192;

/// A log that is written. What waits is written when it is dropped.
pub(super) struct Written {
    _lines: writer::Guard,
    _traces: Option<otel::Guard>,
}

/// What is logged, which can be changed.
pub(super) struct Level(reload::Handle<EnvFilter, Registry>);

impl Level {
    /// What the settings ask for.
    pub(super) fn parse(settings: &Log) -> Result<EnvFilter, String> {
        EnvFilter::try_new(&settings.level)
            .map_err(|error| format!("`log.level` is `{}`: {error}", settings.level))
    }

    /// Logs this from now on.
    pub(super) fn set(&self, filter: EnvFilter) {
        // Without a log there is nothing to change.
        let _ = self.0.reload(filter);
    }
}

/// Starts the log.
pub(super) fn start(settings: &Log) -> Result<(Written, Level), String> {
    let (filter, handle) = reload::Layer::new(Level::parse(settings)?);
    let (writer, lines) = writer::start(io::stderr(), WAITING_LINES)
        .map_err(|error| format!("the log's thread cannot be started: {error}"))?;
    let terminal = io::stderr().is_terminal();
    let log = fmt::layer().with_writer(writer);
    let as_json = match settings.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !terminal,
    };
    let log = if as_json {
        log.json().flatten_event(true).boxed()
    } else {
        let colors = terminal && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
        log.with_ansi(colors).with_target(false).boxed()
    };
    let (traces, guard) = otel::layer()?.unzip();
    let all = registry().with(log.with_filter(filter)).with(traces);
    all.try_init()
        .map_err(|error| format!("the log cannot be started: {error}"))?;
    let written = Written {
        _lines: lines,
        _traces: guard,
    };
    Ok((written, Level(handle)))
}
