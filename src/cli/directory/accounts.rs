//! `pkgtool accounts`.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use super::super::exit::{Exit, Failure};
use super::super::report::{self, CommandReport};
use super::DataDirectoryArgs;
use super::moment::shown;
use pkgtool_base::diagnostic::TextTable;
use pkgtool_serve::account::{Account, UNLIMITED};
use pkgtool_serve::database::Timestamp;

/// The word for a rate without a limit.
const WITHOUT_LIMIT: &str = "unlimited";

/// The operations on accounts.
#[derive(Debug, clap::Subcommand)]
pub(in super::super) enum AccountsCommand {
    /// Create an account
    Create {
        /// Name of the account: letters, digits, `-`, `_`, `.`
        #[arg(long)]
        name: String,
        /// Requests per second, or `unlimited`. Also limits the number of waiting tasks (at most
        /// 250) and running tasks (at most 50)
        #[arg(long, value_parser = rate)]
        rps: u32,
        #[command(flatten)]
        place: DataDirectoryArgs,
    },
    /// Change an account
    Set {
        /// Name or number of the account
        account: String,
        /// Requests per second, or `unlimited`
        #[arg(long, required_unless_present = "blocked", value_parser = rate)]
        rps: Option<u32>,
        /// Reject all requests of the account (true), or accept them again (false)
        #[arg(long, value_name = "true|false")]
        blocked: Option<bool>,
        #[command(flatten)]
        place: DataDirectoryArgs,
    },
    /// List all accounts
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: DataDirectoryArgs,
    },
}

/// Runs the command.
pub(super) async fn run(command: &AccountsCommand) -> Result<Exit, Failure> {
    match command {
        AccountsCommand::Create { name, rps, place } => {
            let account = place
                .accounts()
                .await?
                .create(name, *rps, Timestamp::now())
                .await?;
            report::print(&AccountList(vec![account]), false)?;
        }
        AccountsCommand::Set {
            account,
            rps,
            blocked,
            place,
        } => {
            let account = place.accounts().await?.set(account, *rps, *blocked).await?;
            report::print(&AccountList(vec![account]), false)?;
        }
        AccountsCommand::List { json, place } => {
            let all = place.accounts().await?.list().await?;
            report::print(&AccountList(all), *json)?;
        }
    }
    Ok(Exit::Clean)
}

/// Parses a number of requests per second.
fn rate(text: &str) -> Result<u32, String> {
    if text == WITHOUT_LIMIT {
        return Ok(UNLIMITED);
    }
    let read = text.parse().map_err(|_| {
        format!(
            "expected a whole number from 0 to {}, or `{WITHOUT_LIMIT}`",
            UNLIMITED - 1
        )
    })?;
    Ok(read)
}

/// Accounts, as commands show them.
struct AccountList(Vec<Account>);

impl CommandReport for AccountList {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let mut table = TextTable::of_text(5);
        table.row(["id", "name", "rps", "state", "created"]);
        for account in &self.0 {
            table.row([
                account.id.0.to_string(),
                account.name.clone(),
                match account.rps {
                    UNLIMITED => WITHOUT_LIMIT.to_owned(),
                    rps => rps.to_string(),
                },
                if account.blocked { "blocked" } else { "" }.to_owned(),
                shown(account.created_at),
            ]);
        }
        write!(text, "{table}")
    }

    fn document(&self) -> impl Serialize {
        let one = |account: &Account| {
            json!({
                "id": account.id.0,
                "name": account.name,
                "rps": (account.rps != UNLIMITED).then_some(account.rps),
                "blocked": account.blocked,
                "createdAt": account.created_at.0,
            })
        };
        self.0.iter().map(one).collect::<Vec<_>>()
    }
}
