//! The stores of one database, whatever its kind.

use std::sync::Arc;

use super::TaskStore;
use super::sqlite::SqliteTasks;
use crate::account::{AccountStore, SqliteAccounts};
use crate::database::sqlite::Sqlite;
use crate::database::{DatabaseError, DatabaseUrl};

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

    /// Tasks. Only one process may run them.
    #[expect(
        clippy::unused_async,
        reason = "a database that is asked over a network waits here"
    )]
    pub async fn tasks(&self) -> Result<Arc<dyn TaskStore>, DatabaseError> {
        match &self.opened {
            Opened::Sqlite(database) => Ok(SqliteTasks::open(database)?),
        }
    }
}
