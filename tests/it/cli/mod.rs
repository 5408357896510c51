//! The command line, from outside: exit codes, options, formats of reports, small commands.

mod commands;
mod inspect;
mod report;
mod validate;
