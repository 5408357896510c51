//! Replaces the commands that run models in builds without engines: they do not exist there.

use super::exit::{Exit, Failure};

/// Has no commands.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ExecuteCommand {}

/// Never called, since the type has no values.
pub(super) fn run(command: &ExecuteCommand) -> Result<Exit, Failure> {
    match *command {}
}

/// Returns [`None`]: no process of this build serves another one.
pub(super) fn serve_another() -> Option<Result<Exit, Failure>> {
    None
}
