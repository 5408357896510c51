//! Opens a database of any supported kind and hands out its stores.

use std::sync::Arc;
use std::time::Duration;

use super::postgres::PostgresTasks;
use super::sqlite::SqliteTasks;
use super::{SharedServers, TaskStore};
use crate::account::{AccountStore, SqlAccounts};
use crate::batch::{BatchStore, SqlBatches};
use crate::database::postgres::{NodeOptions, Postgres};
use crate::database::sqlite::Sqlite;
use crate::database::tables::SqlDatabase;
use crate::database::{DatabaseError, DatabaseResult, DatabaseSize, DatabaseUrl};
use crate::package::PublishedPackages;
use crate::train::{SqlTraining, TrainingStore};
use crate::webhook::{SqlWebhooks, WebhookStore};

/// Lease of a process that is no server. It holds tasks only in tests.
const COMMAND_LEASE: Duration = Duration::from_secs(30);

/// An open, migrated database that hands out its stores.
#[derive(Debug)]
pub struct Stores {
    opened: Opened,
}

/// One variant for each variant of [`DatabaseUrl`].
#[derive(Debug)]
enum Opened {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Stores {
    /// Opens a database for a command, creating it if it is missing, and migrates its schema.
    pub async fn open(url: &DatabaseUrl) -> DatabaseResult<Self> {
        let command = NodeOptions {
            name: String::new(),
            lease: COMMAND_LEASE,
        };
        Self::open_as(url, command).await
    }

    /// Opens a database for a server that may share it with others.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn open_as(url: &DatabaseUrl, node: NodeOptions) -> DatabaseResult<Self> {
        let opened = match url {
            DatabaseUrl::Sqlite(file) => Opened::Sqlite(Sqlite::open(file)?),
            DatabaseUrl::Postgres(text) => Opened::Postgres(Postgres::open(text, node)?),
        };
        Ok(Self { opened })
    }

    /// Returns the tables of the database.
    pub(super) fn records(&self) -> DatabaseResult<SqlDatabase> {
        match &self.opened {
            Opened::Sqlite(database) => SqlDatabase::of_sqlite(database),
            Opened::Postgres(database) => Ok(SqlDatabase::Postgres(database.clone())),
        }
    }

    /// Returns the store of accounts and their data.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn accounts(&self) -> DatabaseResult<Arc<dyn AccountStore>> {
        Ok(Arc::new(SqlAccounts(self.records()?)))
    }

    /// Returns the store of files and batches. Only one process may run batches.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn batches(&self) -> DatabaseResult<Arc<dyn BatchStore>> {
        Ok(Arc::new(SqlBatches(self.records()?)))
    }

    /// Returns the store of events for webhooks.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn webhooks(&self) -> DatabaseResult<Arc<dyn WebhookStore>> {
        Ok(Arc::new(SqlWebhooks(self.records()?)))
    }

    /// Copies a consistent snapshot into a new database. Requests are not blocked meanwhile.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn copy(&self, into: &DatabaseUrl) -> DatabaseResult<()> {
        match (&self.opened, into) {
            (Opened::Sqlite(database), DatabaseUrl::Sqlite(file)) => database.copy(file),
            _ => Err(self.only_sqlite("a backup")),
        }
    }

    /// Returns the disk space that the database uses.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn space(&self) -> DatabaseResult<DatabaseSize> {
        match &self.opened {
            Opened::Sqlite(database) => database.space(),
            Opened::Postgres(database) => database.space(),
        }
    }

    /// Returns the store of tasks. Only one process may run the tasks of an SQLite database; others may remove finished
    /// ones.
    pub async fn tasks(&self) -> DatabaseResult<Arc<dyn TaskStore>> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteTasks::open(database)?),
            Opened::Postgres(database) => Ok(PostgresTasks::open(database).await?),
        }
    }

    /// Returns the servers that share the database; `None` if it is that of one server.
    pub fn servers(&self) -> Option<SharedServers> {
        match &self.opened {
            Opened::Sqlite(_) => None,
            Opened::Postgres(database) => Some(SharedServers(database.clone())),
        }
    }

    /// Returns the packages that all servers serve; `None` if the database is that of one server.
    pub fn packages(&self) -> Option<PublishedPackages> {
        match &self.opened {
            Opened::Sqlite(_) => None,
            Opened::Postgres(database) => Some(PublishedPackages::new(database.clone())),
        }
    }

    /// Returns the store of dataset records, derived services and training jobs. Only one process
    /// may run jobs.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn training(&self) -> DatabaseResult<Arc<dyn TrainingStore>> {
        Ok(Arc::new(SqlTraining(self.records()?)))
    }

    /// Returns the error for what only an SQLite database has.
    fn only_sqlite(&self, what: &str) -> DatabaseError {
        let path = match &self.opened {
            Opened::Sqlite(database) => database.path().display().to_string(),
            Opened::Postgres(database) => database.place(),
        };
        let reason = format!("{what} needs an SQLite database");
        DatabaseError::Other { path, reason }
    }
}
