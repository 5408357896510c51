//! Opens a database of any supported kind and hands out its stores.

use std::sync::Arc;

use super::TaskStore;
use super::sqlite::SqliteTasks;
use crate::account::{AccountStore, SqliteAccounts};
use crate::batch::{BatchStore, SqliteBatches};
use crate::database::sqlite::Sqlite;
use crate::database::{DatabaseResult, DatabaseSize, DatabaseUrl};
use crate::train::{SqliteTraining, TrainingStore};
use crate::webhook::{SqliteWebhooks, WebhookStore};

/// An open, migrated database that hands out its stores.
#[derive(Debug)]
pub struct Stores {
    opened: Opened,
}

/// One variant for each variant of [`DatabaseUrl`].
#[derive(Debug)]
enum Opened {
    Sqlite(Sqlite),
}

impl Stores {
    /// Opens a database, creating it if it is missing, and migrates its schema.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn open(url: &DatabaseUrl) -> DatabaseResult<Self> {
        let opened = match url {
            DatabaseUrl::Sqlite(file) => Opened::Sqlite(Sqlite::open(file)?),
        };
        Ok(Self { opened })
    }

    /// Returns the store of accounts and their data.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn accounts(&self) -> DatabaseResult<Arc<dyn AccountStore>> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteAccounts::open(database)?),
        }
    }

    /// Returns the store of files and batches. Only one process may run batches.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn batches(&self) -> DatabaseResult<Arc<dyn BatchStore>> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteBatches::open(database)?),
        }
    }

    /// Returns the store of events for webhooks.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn webhooks(&self) -> DatabaseResult<Arc<dyn WebhookStore>> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteWebhooks::open(database)?),
        }
    }

    /// Copies a consistent snapshot into a new database. Requests are not blocked meanwhile.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn copy(&self, into: &DatabaseUrl) -> DatabaseResult<()> {
        match (&self.opened, into) {
            (Opened::Sqlite(database), DatabaseUrl::Sqlite(file)) => database.copy(file),
        }
    }

    /// Returns the disk space that the database uses.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn space(&self) -> DatabaseResult<DatabaseSize> {
        match &self.opened {
            Opened::Sqlite(database) => database.space(),
        }
    }

    /// Returns the store of tasks. Only one process may run tasks; others may remove finished ones.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn tasks(&self) -> DatabaseResult<Arc<dyn TaskStore>> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteTasks::open(database)?),
        }
    }

    /// Returns the store of dataset records, derived services and training jobs. Only one process
    /// may run jobs.
    #[expect(clippy::unused_async, reason = "a networked database would await here")]
    pub async fn training(&self) -> DatabaseResult<Arc<dyn TrainingStore>> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteTraining::open(database)?),
        }
    }
}
