//! The commands that run models.

use super::exit::{Exit, Failure};
use crate::runtime::worker;

/// `run`, `bench`, `compare`, `backends`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Run models for another pkgtool at the other end of standard input
    #[command(name = worker::ARGUMENT, hide = true)]
    Worker,
}

/// Runs the command.
pub(super) fn run(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Worker => {
            worker::serve()?;
            Ok(Exit::Clean)
        }
    }
}
