//! The commands that ask a gateway: `services`, `predict`, `task`.

mod data;
mod predict;
mod services;
mod task;

use std::fs;
use std::path::PathBuf;

use super::exit::{Exit, Failure};
use super::output;
use crate::client::{Client, ClientError, ServiceName};
use crate::source::text::escape;

/// Arguments that all of them have.
#[derive(Debug, clap::Args)]
struct Remote {
    /// Address of the gateway
    #[arg(
        long,
        value_name = "URL",
        env = "PKGTOOL_URL",
        default_value = "http://127.0.0.1:8080"
    )]
    url: String,

    /// File that holds the API key; without it the environment variable `PKGTOOL_API_KEY`
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Account on whose behalf tasks are made, and owner of services named without one
    #[arg(
        long,
        value_name = "ACCOUNT",
        env = "PKGTOOL_ACCOUNT",
        default_value = "local"
    )]
    account: String,
}

/// `services`, `predict` and `task`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List an account's services of a gateway: active or not, and why not
    Services(services::Args),
    /// Ask a service of a gateway, and print its answer
    Predict(Box<predict::Args>),
    /// Create, watch, read and cancel tasks of a gateway
    #[command(subcommand)]
    Task(task::Command),
}

/// Runs the command.
pub(super) fn run(command: &Command) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(format!("no runtime can be started: {error}")))?;
    runtime.block_on(async {
        match command {
            Command::Services(args) => services::run(args).await,
            Command::Predict(args) => predict::run(args).await,
            Command::Task(command) => task::run(command).await,
        }
    })
}

impl Remote {
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

    /// `service`, or `account/service`.
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
            format!("{message}; set PKGTOOL_API_KEY, or name a file with --key-file")
        } else {
            message
        })
    }
}

/// Prints a value as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::Other(format!("the answer cannot be written: {error}")))?;
    output::print(&format!("{text}\n"))?;
    Ok(())
}

/// Prints an answer: JSON on a terminal in lines, otherwise as it came.
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
