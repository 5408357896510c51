//! Replaces the gateway's commands in builds without the gateway: they do not exist there.

use super::exit::{Exit, Failure};

/// Has no commands.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ServicesCommand {}

/// Never called, since the type has no values.
pub(super) fn run(command: &ServicesCommand) -> Result<Exit, Failure> {
    match *command {}
}
