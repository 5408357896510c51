//! Replaces `pkgtool pull` in builds without the feature `remote`: the command does not exist
//! there.

use super::exit::{Exit, Failure};

/// Has no commands.
#[derive(Debug, clap::Subcommand)]
pub(super) enum PullCommand {}

/// Never called, since the type has no values.
pub(super) fn run(command: &PullCommand) -> Result<Exit, Failure> {
    match *command {}
}
