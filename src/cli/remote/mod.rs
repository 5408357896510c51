//! The commands `services`, `predict`, `task` and a part of `workers`, which call a gateway over HTTP.

mod data;
mod predict;
mod services;
mod task;
pub(super) mod workers;

use std::fs;
use std::path::PathBuf;

use super::block_on::block_on;
use super::exit::{Exit, Failure};
use super::output;
use pkgtool_base::source::text::escape;
use pkgtool_serve::client::{Client, ClientError, ServiceName};

/// Options of all these commands.
#[derive(Debug, clap::Args)]
pub(super) struct RemoteArgs {
    /// Address of the gateway
    #[arg(
        long,
        value_name = "URL",
        env = "PKGTOOL_URL",
        default_value = "http://127.0.0.1:8080"
    )]
    url: String,

    /// File with the API key [default: the environment variable `PKGTOOL_API_KEY`]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Account to create tasks for, and owner of services named without an account
    #[arg(
        long,
        value_name = "ACCOUNT",
        env = "PKGTOOL_ACCOUNT",
        default_value = "local"
    )]
    account: String,
}

/// The commands `services`, `predict` and `task`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum RemoteCommand {
    /// List a gateway's services, and why some are inactive
    Services(services::ServicesArgs),
    /// Send a request to a gateway's service and print the answer
    Predict(Box<predict::PredictArgs>),
    /// Create, watch, read and cancel tasks of a gateway
    #[command(subcommand)]
    Task(task::TaskCommand),
}

/// Runs the command.
pub(super) fn run(command: &RemoteCommand) -> Result<Exit, Failure> {
    block_on(async {
        match command {
            RemoteCommand::Services(args) => services::run(args).await,
            RemoteCommand::Predict(args) => predict::run(args).await,
            RemoteCommand::Task(command) => task::run(command).await,
        }
    })
}

impl RemoteArgs {
    fn client(&self) -> Result<Client, Failure> {
        let key = match &self.key_file {
            Some(path) => {
                let text = fs::read_to_string(path)
                    .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?;
                Some(text.trim().to_owned())
            }
            None => std::env::var("PKGTOOL_API_KEY").ok(),
        };
        Ok(Client::new(&self.url, key.as_deref())?)
    }

    /// Parses `SERVICE` or `ACCOUNT/SERVICE`.
    fn service(&self, name: &str) -> ServiceName {
        let (account, model) = name.split_once('/').unwrap_or((&self.account, name));
        ServiceName {
            account: account.to_owned(),
            model: model.to_owned(),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        let lacks_key = matches!(&error, ClientError::Refused { code: Some(code), .. }
            if code == "mlp.gateway.access_key_required");
        Self::Other(if lacks_key {
            format!("{message}; set PKGTOOL_API_KEY, or give a file with --key-file")
        } else {
            message
        })
    }
}

/// Prints an answer: on a terminal as indented JSON, otherwise unchanged.
fn print_answer(body: &[u8]) -> Result<(), Failure> {
    use std::io::{IsTerminal, Write};
    let pretty = std::io::stdout().is_terminal();
    let parsed: Option<serde_json::Value> = if pretty {
        serde_json::from_slice(body).ok()
    } else {
        None
    };
    let mut out = output::stdout();
    if let Some(value) = parsed {
        writeln!(out, "{}", escape(&format!("{value:#}")))?;
    } else {
        out.write_all(body)?;
        if !body.ends_with(b"\n") {
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    Ok(())
}
