//! The stores of one database, whatever its kind.

use std::sync::Arc;

use super::TaskStore;
use super::sqlite::SqliteTasks;
use crate::account::{AccountStore, SqliteAccounts};
use crate::database::sqlite::Sqlite;
use crate::database::{DatabaseError, DatabaseUrl, Space};
use crate::train::{SqliteTraining, TrainingStore};

/// A database that is open and up to date, and hands out its stores.
#[derive(Debug)]
pub struct Stores {
    opened: Opened,
}

/// One kind of database for each of [`DatabaseUrl`]'s.
#[derive(Debug)]
enum Opened {
    Sqlite(Sqlite),
}

impl Stores {
    /// Opens a database, which is made if it is not there, and brings its schema up to date.
    #[expect(
        clippy::unused_async,
        reason = "a database that is asked over a network waits here"
    )]
    pub async fn open(url: &DatabaseUrl) -> Result<Self, DatabaseError> {
        let opened = match url {
            DatabaseUrl::Sqlite(file) => Opened::Sqlite(Sqlite::open(file)?),
        };
        Ok(Self { opened })
    }

    /// Accounts and what belongs to them.
    #[expect(
        clippy::unused_async,
        reason = "a database that is asked over a network waits here"
    )]
    pub async fn accounts(&self) -> Result<Arc<dyn AccountStore>, DatabaseError> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteAccounts::open(database)?),
        }
    }

    /// Copies everything as it is at one moment, into a database that is not there. Nobody waits for it.
    #[expect(
        clippy::unused_async,
        reason = "a database that is asked over a network waits here"
    )]
    pub async fn copy(&self, into: &DatabaseUrl) -> Result<(), DatabaseError> {
        match (&self.opened, into) {
            (Opened::Sqlite(database), DatabaseUrl::Sqlite(file)) => database.copy(file),
        }
    }

    /// What it takes on the disk.
    #[expect(
        clippy::unused_async,
        reason = "a database that is asked over a network waits here"
    )]
    pub async fn space(&self) -> Result<Space, DatabaseError> {
        match &self.opened {
            Opened::Sqlite(database) => database.space(),
        }
    }

    /// Tasks. Only one process may run them; others may remove what has ended.
    #[expect(
        clippy::unused_async,
        reason = "a database that is asked over a network waits here"
    )]
    pub async fn tasks(&self) -> Result<Arc<dyn TaskStore>, DatabaseError> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteTasks::open(database)?),
        }
    }

    /// Datasets' records, derived services, training jobs. Only one process may run those.
    #[expect(
        clippy::unused_async,
        reason = "a database that is asked over a network waits here"
    )]
    pub async fn training(&self) -> Result<Arc<dyn TrainingStore>, DatabaseError> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteTraining::open(database)?),
        }
    }
}
