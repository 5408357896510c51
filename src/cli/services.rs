//! The commands around the gateway: to serve, to train, to ask, to let in.

use super::exit::{Exit, Failure};
use super::{admin, directory, remote, serve, train};

/// `serve`, `train`, `services`, `predict`, `task`, `accounts`, `keys`, `admin`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Serve packages: a gateway with synchronous and asynchronous predict
    Serve(serve::Args),
    /// Train a classifier on the vectors of a package's model
    Train(train::Args),
    #[command(flatten)]
    Remote(remote::Command),
    #[command(flatten)]
    Directory(directory::Command),
    /// Look after a gateway's data: status, purge, backup
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
