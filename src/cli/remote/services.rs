//! `pkgtool services`.

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::RemoteArgs;
use pkgtool_base::diagnostic::Table;

/// Arguments of `pkgtool services`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<Exit, Failure> {
    let services = args.remote.client()?.services(&args.remote.account).await?;
    if args.json {
        output::print(&output::json(&services))?;
        return Ok(Exit::Clean);
    }
    let mut table = Table::of_text(3);
    for service in &services {
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
    output::print(&table.to_string())?;
    Ok(Exit::Clean)
}
