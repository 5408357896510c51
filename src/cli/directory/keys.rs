//! `pkgtool keys`.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::super::report::{self, CommandReport};
use super::DataDirectoryArgs;
use super::moment::{self, shown};
use pkgtool_base::diagnostic::TextTable;
use pkgtool_serve::account::{ApiKey, Logins, Permissions};
use pkgtool_serve::database::Timestamp;
use pkgtool_serve::gateway::settings::login_link;

/// The operations on API keys.
#[derive(Debug, clap::Subcommand)]
pub(in super::super) enum KeysCommand {
    /// Create a key and print it; it cannot be shown again
    Create {
        /// Name or number of the account
        #[arg(long)]
        account: String,
        /// Name of the key, unique in its account
        #[arg(long)]
        name: String,
        /// Permissions of the key: some of predict, read, write (write includes read)
        #[arg(long, value_name = "predict,read,write")]
        permission: Permissions,
        /// Expiry time of the key: 12h, 30d, 2027-01-31, or 2027-01-31T08:00:00Z
        #[arg(long, value_name = "WHEN", value_parser = moment::parse)]
        expires: Option<Timestamp>,
        #[command(flatten)]
        place: DataDirectoryArgs,
    },
    /// List keys, without their secrets
    List {
        /// List only the keys of this account
        #[arg(long)]
        account: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: DataDirectoryArgs,
    },
    /// Print a link that logs a browser in to the console, once, as the operator
    Link {
        /// Address of the gateway as the browser reaches it
        #[arg(long, env = "PKGTOOL_URL", default_value = "http://127.0.0.1:8080")]
        url: String,
        #[command(flatten)]
        place: DataDirectoryArgs,
    },
    /// Revoke a key
    Revoke {
        /// Name or number of the key
        key: String,
        /// Account of the key, if several accounts have a key of this name
        #[arg(long)]
        account: Option<String>,
        #[command(flatten)]
        place: DataDirectoryArgs,
    },
}

/// Runs the command.
pub(super) async fn run(command: &KeysCommand) -> Result<Exit, Failure> {
    match command {
        KeysCommand::Create {
            account,
            name,
            permission,
            expires,
            place,
        } => {
            let now = Timestamp::now();
            moment::require_later(*expires, now, "key")?;
            let accounts = place.accounts().await?;
            let made = accounts.create_key(account, name, *permission, *expires, now);
            let (_, secret) = made.await?;
            output::note("the key is shown only this once");
            output::print(&format!("{}\n", secret.reveal()))?;
        }
        KeysCommand::List {
            account,
            json,
            place,
        } => {
            let keys = place.accounts().await?.keys(account.as_deref()).await?;
            report::print(&KeyList(keys), *json)?;
        }
        KeysCommand::Link { url, place } => {
            let logins = Logins::new(place.store().await?);
            let code = logins.create_code(Timestamp::now()).await?;
            output::print(&format!("{}\n", login_link(url, code.reveal())))?;
        }
        KeysCommand::Revoke {
            key,
            account,
            place,
        } => {
            let accounts = place.accounts().await?;
            let revoked = accounts.revoke(account.as_deref(), key, Timestamp::now());
            let revoked = revoked.await?;
            output::note(&format!("key `{}` revoked", revoked.name));
        }
    }
    Ok(Exit::Clean)
}

/// Keys, each with the name of its account.
struct KeyList(Vec<(ApiKey, String)>);

impl CommandReport for KeyList {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let now = Timestamp::now();
        let mut table = TextTable::of_text(7);
        table.row([
            "id",
            "account",
            "name",
            "permissions",
            "state",
            "created",
            "expires",
        ]);
        for (key, account) in &self.0 {
            table.row([
                key.id.to_string(),
                account.clone(),
                key.name.clone(),
                key.permissions.to_string(),
                moment::validity(key.revoked_at, key.expires_at, now).to_owned(),
                shown(key.created_at),
                key.expires_at.map(shown).unwrap_or_default(),
            ]);
        }
        write!(text, "{table}")
    }

    fn document(&self) -> impl Serialize {
        let one = |(key, account): &(ApiKey, String)| {
            json!({
                "id": key.id,
                "account": account,
                "name": key.name,
                "permissions": key.permissions.to_string(),
                "createdAt": key.created_at.0,
                "expiresAt": key.expires_at.map(|at| at.0),
                "revokedAt": key.revoked_at.map(|at| at.0),
            })
        };
        self.0.iter().map(one).collect::<Vec<_>>()
    }
}
