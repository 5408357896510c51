//! `pkgtool workers token` and `pkgtool workers revoke`.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::super::report::{self, CommandReport};
use super::DataDirectoryArgs;
use super::moment::{self, shown};
use pkgtool_base::diagnostic::TextTable;
use pkgtool_serve::account::{ANY_SERVICE, WorkerToken};
use pkgtool_serve::database::Timestamp;

/// The operations on tokens of workers.
#[derive(Debug, clap::Subcommand)]
pub(in super::super) enum TokenCommand {
    /// Create a token and print it; it cannot be shown again
    Create {
        /// Name of the service that the workers answer for
        #[arg(required_unless_present = "any")]
        service: Option<String>,
        /// For `pkgtool worker`: the machine gets the packages of services that run on workers
        #[arg(long, conflicts_with = "service")]
        any: bool,
        /// Name or number of the account that owns the service
        #[arg(long, default_value = "local")]
        account: String,
        /// Name of the token, unique for its service
        #[arg(long, default_value = "first")]
        name: String,
        /// Expiry time of the token: 12h, 30d, 2027-01-31, or 2027-01-31T08:00:00Z
        #[arg(long, value_name = "WHEN", value_parser = moment::parse)]
        expires: Option<Timestamp>,
        #[command(flatten)]
        place: DataDirectoryArgs,
    },
    /// List tokens, without their secrets
    List {
        /// List only the tokens of this account
        #[arg(long)]
        account: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: DataDirectoryArgs,
    },
}

/// Arguments of `pkgtool workers revoke`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct RevokeArgs {
    /// Number of the token
    token: i64,
    #[command(flatten)]
    place: DataDirectoryArgs,
}

/// Runs `pkgtool workers token`.
pub(in super::super) async fn run(command: &TokenCommand) -> Result<Exit, Failure> {
    match command {
        TokenCommand::Create {
            service,
            any: _,
            account,
            name,
            expires,
            place,
        } => {
            let service = service.as_deref().unwrap_or(ANY_SERVICE);
            let now = Timestamp::now();
            moment::require_later(*expires, now, "token")?;
            let accounts = place.accounts().await?;
            let made = accounts.create_worker_token(account, service, name, *expires, now);
            let (_, secret) = made.await?;
            output::note("the token is shown only this once");
            output::print(&format!("{}\n", secret.reveal()))?;
        }
        TokenCommand::List {
            account,
            json,
            place,
        } => {
            let accounts = place.accounts().await?;
            let tokens = accounts.worker_tokens(account.as_deref()).await?;
            report::print(&TokenList(tokens), *json)?;
        }
    }
    Ok(Exit::Clean)
}

/// Runs `pkgtool workers revoke`.
pub(in super::super) async fn revoke(args: &RevokeArgs) -> Result<Exit, Failure> {
    let accounts = args.place.accounts().await?;
    let revoked = accounts.revoke_worker_token(args.token, Timestamp::now());
    let WorkerToken { name, service, .. } = revoked.await?;
    output::note(&format!("token `{name}` of `{service}` revoked"));
    Ok(Exit::Clean)
}

/// Tokens, each with the name of its account.
struct TokenList(Vec<(WorkerToken, String)>);

impl CommandReport for TokenList {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let now = Timestamp::now();
        let mut table = TextTable::of_text(7);
        table.row([
            "id", "account", "service", "name", "state", "created", "expires",
        ]);
        for (token, account) in &self.0 {
            table.row([
                token.id.to_string(),
                account.clone(),
                token.service.clone(),
                token.name.clone(),
                moment::validity(token.revoked_at, token.expires_at, now).to_owned(),
                shown(token.created_at),
                token.expires_at.map(shown).unwrap_or_default(),
            ]);
        }
        write!(text, "{table}")
    }

    fn document(&self) -> impl Serialize {
        let one = |(token, account): &(WorkerToken, String)| {
            json!({
                "id": token.id,
                "account": account,
                "service": token.service,
                "name": token.name,
                "createdAt": token.created_at.0,
                "expiresAt": token.expires_at.map(|at| at.0),
                "revokedAt": token.revoked_at.map(|at| at.0),
            })
        };
        self.0.iter().map(one).collect::<Vec<_>>()
    }
}
