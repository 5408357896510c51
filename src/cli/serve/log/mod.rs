//! The server's log on standard error, as text on a terminal and as JSON otherwise; and its traces,
//! in builds with OpenTelemetry.

#[cfg(feature = "otel")]
mod otel;
#[cfg(not(feature = "otel"))]
#[path = "otel_absent.rs"]
mod otel;
mod target;
mod writer;

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, registry, reload};

use pkgtool_serve::gateway::settings::{Log, LogFormat};

/// Maximum number of lines in the queue of the log. When it is full, logging blocks.
const MAX_QUEUED_LINES: usize = 8192;

/// A running log. Dropping it writes the queued lines.
pub(in super::super) struct RunningLog {
    _lines: writer::WriterGuard,
    _traces: Option<otel::SpanGuard>,
}

/// The filter of the log, which can be replaced.
pub(in super::super) struct LevelHandle(reload::Handle<EnvFilter, Registry>);

impl LevelHandle {
    /// Parses the filter in the settings.
    pub(super) fn parse(settings: &Log) -> Result<EnvFilter, String> {
        EnvFilter::try_new(target::internal(&settings.level))
            .map_err(|error| format!("invalid `log.level` `{}`: {error}", settings.level))
    }

    /// Replaces the filter.
    pub(super) fn set(&self, filter: EnvFilter) {
        // This fails only if the log is gone.
        let _ = self.0.reload(filter);
    }
}

/// Starts the log.
pub(in super::super) fn start(settings: &Log) -> Result<(RunningLog, LevelHandle), String> {
    let (filter, handle) = reload::Layer::new(LevelHandle::parse(settings)?);
    let (writer, lines) = writer::start(io::stderr(), MAX_QUEUED_LINES)
        .map_err(|error| format!("cannot start the thread of the log: {error}"))?;
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
        .map_err(|error| format!("cannot start the log: {error}"))?;
    let written = RunningLog {
        _lines: lines,
        _traces: guard,
    };
    Ok((written, LevelHandle(handle)))
}
