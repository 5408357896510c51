//! The command line, from outside: exit codes, options, formats of reports, small commands.

#[cfg(feature = "run")]
mod bench;
mod commands;
#[cfg(feature = "run")]
mod compare;
#[cfg(feature = "run")]
mod engines;
mod inspect;
#[cfg(feature = "run")]
mod limits;
mod report;
#[cfg(feature = "run")]
mod run;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "run")]
mod sizes;
mod validate;
