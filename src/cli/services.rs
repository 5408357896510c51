//! The commands that run, train, call and manage a gateway.

use super::exit::{Exit, Failure};
use super::{admin, directory, remote, serve, train};

/// The commands `serve`, `train`, `services`, `predict`, `task`, `accounts`, `keys` and `admin`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Serve packages over HTTP: synchronous and asynchronous predict
    Serve(serve::Args),
    /// Train a classifier on the embeddings of a package's model
    Train(train::Args),
    #[command(flatten)]
    Remote(remote::Command),
    #[command(flatten)]
    Directory(directory::Command),
    /// Manage a gateway's data: status, purge, backup
    #[command(subcommand)]
    Admin(admin::Command),
}

/// Runs the command.
pub(super) fn run(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Serve(args) => serve::run(args),
        Command::Train(args) => train::run(args),
        Command::Remote(command) => remote::run(command),
        Command::Directory(command) => directory::run(command),
        Command::Admin(command) => admin::run(command),
    }
}
