//! `pkgtool workers`.

use super::block_on::block_on;
use super::directory::tokens::{self, RevokeArgs, TokenCommand};
use super::exit::{Exit, Failure};
use super::remote::workers::{self, WorkerArgs, WorkerListArgs};

/// The operations on workers.
#[derive(Debug, clap::Subcommand)]
pub(super) enum WorkersCommand {
    /// List the workers that are attached to a gateway
    List(WorkerListArgs),
    /// Send a worker no more requests; requests in flight end
    Drain(WorkerArgs),
    /// Send a drained worker requests again
    Resume(WorkerArgs),
    /// Create and list the tokens by which workers attach
    #[command(subcommand)]
    Token(TokenCommand),
    /// Revoke a token; its workers are disconnected
    Revoke(RevokeArgs),
}

/// Runs the command.
pub(super) fn run(command: &WorkersCommand) -> Result<Exit, Failure> {
    block_on(async {
        match command {
            WorkersCommand::List(args) => workers::list(args).await,
            WorkersCommand::Drain(args) => workers::drain(args, true).await,
            WorkersCommand::Resume(args) => workers::drain(args, false).await,
            WorkersCommand::Token(command) => tokens::run(command).await,
            WorkersCommand::Revoke(args) => tokens::revoke(args).await,
        }
    })
}
