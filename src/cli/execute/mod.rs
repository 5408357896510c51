//! The commands that run models.

use super::exit::{Exit, Failure};

/// `run`, `bench`, `compare`, `backends`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {}

/// Runs the command.
pub(super) fn run(command: &Command) -> Result<Exit, Failure> {
    match *command {}
}
