//! The commands `accounts`, `keys` and a part of `workers`, which change a gateway's accounts, API keys and tokens.
//!
//! They work on its database, whether the gateway is running or not. A running gateway sees a
//! new key at once, and other changes within a second.

mod accounts;
mod keys;
mod moment;
pub(super) mod tokens;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block_on::block_on;
use super::data_dir;
use super::exit::{Exit, Failure};
pub(super) use moment::{short, shown, span};
use pkgtool_serve::account::{AccountError, AccountStore, Accounts};
use pkgtool_serve::database::{DatabaseError, DatabaseUrl};
use pkgtool_serve::gateway::settings::DatabaseSetting;
use pkgtool_serve::task::Stores;

/// The option for the data directory.
#[derive(Debug, clap::Args)]
pub(super) struct DataDirectoryArgs {
    /// Data directory of the gateway [default: the user's data directory]
    #[arg(long, value_name = "DIR", env = "PKGTOOL_DATA_DIR")]
    data_dir: Option<PathBuf>,

    /// PostgreSQL database of the gateway [default: as `gateway.toml` in the data directory says, or a database in
    /// the data directory]
    #[arg(
        long,
        value_name = "URL",
        env = "PKGTOOL_DATABASE",
        hide_env_values = true
    )]
    database: Option<DatabaseSetting>,
}

/// The commands `accounts` and `keys`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum DirectoryCommand {
    /// Create, change and list a gateway's accounts
    #[command(subcommand)]
    Accounts(accounts::AccountsCommand),
    /// Create, list and revoke a gateway's API keys, and log browsers in
    #[command(subcommand)]
    Keys(keys::KeysCommand),
}

/// Runs the command.
pub(super) fn run(command: &DirectoryCommand) -> Result<Exit, Failure> {
    block_on(async {
        match command {
            DirectoryCommand::Accounts(command) => accounts::run(command).await,
            DirectoryCommand::Keys(command) => keys::run(command).await,
        }
    })
}

impl DataDirectoryArgs {
    /// Returns the data directory.
    pub(super) fn directory(&self) -> Result<PathBuf, Failure> {
        let named = self.data_dir.as_deref().unwrap_or(Path::new(""));
        data_dir::of(named).map_err(Failure::Other)
    }

    async fn accounts(&self) -> Result<Accounts, Failure> {
        self.store().await.map(Accounts::new)
    }

    async fn store(&self) -> Result<Arc<dyn AccountStore>, Failure> {
        let stores = Stores::open(&self.database()?).await?;
        Ok(stores.accounts().await?)
    }

    /// Returns the database.
    pub(super) fn database(&self) -> Result<DatabaseUrl, Failure> {
        let directory = self.directory()?;
        let setting = match &self.database {
            Some(setting) => setting.clone(),
            None => DatabaseSetting::of_directory(&directory)
                .map_err(|error| Failure::Other(error.to_string()))?,
        };
        Ok(setting.url(&directory))
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<AccountError> for Failure {
    fn from(error: AccountError) -> Self {
        Self::Other(error.to_string())
    }
}
