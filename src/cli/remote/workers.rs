//! `pkgtool workers list`, `drain` and `resume`.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::super::directory::short;
use super::super::exit::{Exit, Failure};
use super::super::output;
use super::super::report::{self, CommandReport};
use super::RemoteArgs;
use pkgtool_base::diagnostic::TextTable;
use pkgtool_serve::client::AttachedWorker;

/// Arguments of `pkgtool workers list`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct WorkerListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Arguments of `pkgtool workers drain` and `resume`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct WorkerArgs {
    /// Number of the worker, as `pkgtool workers list` shows it
    worker: u64,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Lists the workers of an account.
pub(in super::super) async fn list(args: &WorkerListArgs) -> Result<Exit, Failure> {
    let workers = args.remote.client()?.workers(&args.remote.account).await?;
    report::print(&WorkerList(workers), args.json)?;
    Ok(Exit::Clean)
}

/// Drains a worker, or sends it requests again.
pub(in super::super) async fn drain(args: &WorkerArgs, drain: bool) -> Result<Exit, Failure> {
    let client = args.remote.client()?;
    let number = args.worker.to_string();
    let worker = client.drain(&args.remote.account, &number, drain).await?;
    let AttachedWorker {
        name, in_flight, ..
    } = worker;
    output::note(&if drain {
        format!("{name} gets no more requests; {in_flight} in flight")
    } else {
        format!("{name} gets requests again")
    });
    Ok(Exit::Clean)
}

/// The workers of an account.
struct WorkerList(Vec<AttachedWorker>);

impl CommandReport for WorkerList {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let mut table = TextTable::of_text(7);
        table.row([
            "id",
            "worker",
            "service",
            "state",
            "in flight",
            "answered",
            "attached",
        ]);
        for worker in &self.0 {
            table.row([
                worker.id.to_string(),
                worker.name.clone(),
                worker.service.clone(),
                worker.state.clone(),
                format!("{} of {}", worker.in_flight, worker.capacity),
                worker.answered.to_string(),
                short(Duration::from_secs(worker.attached_s)),
            ]);
        }
        write!(text, "{table}")
    }

    fn document(&self) -> impl Serialize {
        &self.0
    }
}
