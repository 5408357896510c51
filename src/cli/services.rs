//! The commands that run, train, call and manage a gateway.

use super::exit::{Exit, Failure};
use super::{admin, attach, directory, remote, serve, train, worker, workers};

/// The commands `serve`, `attach`, `worker`, `train`, `services`, `predict`, `task`, `accounts`, `keys`, `workers` and `admin`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ServicesCommand {
    /// Serve packages over HTTP: synchronous and asynchronous predict
    Serve(Box<serve::ServeArgs>),
    /// Answer requests of a platform's gates with local packages
    Attach(attach::AttachArgs),
    /// Run packages that a gateway sends to this machine
    Worker(worker::WorkerCommandArgs),
    /// Train a classifier on the embeddings of a package's model
    Train(train::TrainArgs),
    #[command(flatten)]
    Remote(remote::RemoteCommand),
    #[command(flatten)]
    Directory(directory::DirectoryCommand),
    /// List and drain a gateway's workers, and manage their tokens
    #[command(subcommand)]
    Workers(workers::WorkersCommand),
    /// Manage a gateway's data: status, purge, backup
    #[command(subcommand)]
    Admin(admin::AdminCommand),
}

/// Runs the command.
pub(super) fn run(command: &ServicesCommand) -> Result<Exit, Failure> {
    match command {
        ServicesCommand::Serve(args) => serve::run(args),
        ServicesCommand::Attach(args) => attach::run(args),
        ServicesCommand::Worker(args) => worker::run(args),
        ServicesCommand::Train(args) => train::run(args),
        ServicesCommand::Remote(command) => remote::run(command),
        ServicesCommand::Directory(command) => directory::run(command),
        ServicesCommand::Workers(command) => workers::run(command),
        ServicesCommand::Admin(command) => admin::run(command),
    }
}
