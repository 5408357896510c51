//! `pkgtool services`.

use super::super::directory::table;
use super::super::exit::{Exit, Failure};
use super::super::output;
use super::{Remote, print_json};
use crate::client::ServiceState;

/// Arguments of `pkgtool services`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: Remote,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<Exit, Failure> {
    let services = args.remote.client()?.services(&args.remote.account).await?;
    if args.json {
        print_json(&services)?;
        return Ok(Exit::Clean);
    }
    let row = |service: &ServiceState| {
        let state = if service.is_active {
            "active"
        } else {
            "inactive"
        };
        let reason = service.inactive_reason.as_deref().unwrap_or_default();
        // One line for each service.
        let reason: Vec<&str> = reason.split_whitespace().collect();
        vec![
            service.model_name.clone(),
            state.to_owned(),
            reason.join(" "),
        ]
    };
    let rows: Vec<Vec<String>> = services.iter().map(row).collect();
    output::print(&table(&["service", "state", "reason"], &rows))?;
    Ok(Exit::Clean)
}
