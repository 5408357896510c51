//! `pkgtool services`.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::exit::{Exit, Failure};
use super::super::report::{self, CommandReport};
use super::RemoteArgs;
use pkgtool_base::diagnostic::TextTable;
use pkgtool_serve::client::ServiceState;

/// Arguments of `pkgtool services`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct ServicesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Runs the command.
pub(super) async fn run(args: &ServicesArgs) -> Result<Exit, Failure> {
    let services = args.remote.client()?.services(&args.remote.account).await?;
    report::print(&ServiceList(services), args.json)?;
    Ok(Exit::Clean)
}

/// The services of an account.
struct ServiceList(Vec<ServiceState>);

impl CommandReport for ServiceList {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let mut table = TextTable::of_text(3);
        for service in &self.0 {
            let state = if service.is_active {
                "active"
            } else {
                "inactive"
            };
            let reason = service.inactive_reason.as_deref().unwrap_or_default();
            // Keep each service on one line.
            let reason: Vec<&str> = reason.split_whitespace().collect();
            table.row([&service.model_name, state, &reason.join(" ")]);
        }
        write!(text, "{table}")
    }

    fn document(&self) -> impl Serialize {
        &self.0
    }
}
