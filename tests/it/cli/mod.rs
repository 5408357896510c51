//! Tests of the command line from outside: exit codes, options, report formats, small commands.

#[cfg(feature = "run")]
#[cfg(feature = "serve")]
mod admin;
mod bench;
mod chosen;
mod commands;
mod core_ml;
#[cfg(feature = "run")]
mod execute;
mod formats;
mod inspect;
#[cfg(unix)]
mod links;
#[cfg(all(unix, feature = "run"))]
mod passes;
#[cfg(unix)]
mod planted;
mod report;
#[cfg(feature = "serve")]
mod serve;
mod tracked;
#[cfg(feature = "serve")]
mod train;
mod validate;
mod version;
mod watch;
