//! Tests of the command line from outside: exit codes, options, report formats, small commands.

#[cfg(feature = "run")]
#[cfg(feature = "serve")]
mod admin;
mod bench;
mod chosen;
mod commands;
#[cfg(feature = "run")]
mod compare;
#[cfg(feature = "run")]
mod compare_all;
mod core_ml;
#[cfg(feature = "run")]
mod engines;
mod formats;
mod inspect;
#[cfg(feature = "run")]
mod limits;
#[cfg(unix)]
mod links;
#[cfg(unix)]
mod planted;
#[cfg(feature = "run")]
mod programs;
mod report;
#[cfg(feature = "run")]
mod run;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "run")]
mod sides;
#[cfg(feature = "run")]
mod sizes;
#[cfg(feature = "run")]
mod steps;
#[cfg(feature = "run")]
mod texts;
mod tracked;
#[cfg(feature = "serve")]
mod train;
mod validate;
mod version;
mod watch;
