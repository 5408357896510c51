//! `pkgtool pull`, in a build that asks no servers: none.

use super::exit::{Exit, Failure};

/// No command.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {}

/// Runs none of them.
pub(super) fn run(command: &Command) -> Result<Exit, Failure> {
    match *command {}
}
