//! The connections of a store: one that writes and one that reads, which threads share.
//!
//! Invariant: readers never wait for a change that waits for another process. Such a change runs on
//! a blocking thread, so it does not delay other requests.

use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Params, Row, TransactionBehavior};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::Sqlite;
use crate::database::DatabaseResult;

/// A connection that writes and one that reads. A call takes microseconds, so it runs on the
/// calling thread.
#[derive(Debug)]
pub(crate) struct DatabaseConnections {
    database: Sqlite,
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
}

impl DatabaseConnections {
    /// Opens the connections to a database.
    pub(crate) fn open(database: &Sqlite) -> DatabaseResult<Self> {
        Ok(Self {
            writer: Mutex::new(database.connect()?),
            reader: Mutex::new(database.connect_to_read()?),
            database: database.clone(),
        })
    }

    /// Reads from the database.
    pub(crate) fn read<T>(
        &self,
        call: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> DatabaseResult<T> {
        let connection = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        call(&connection).map_err(|error| self.database.error(&error))
    }

    /// Reads all rows of a query.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        values: impl Params,
        row: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> DatabaseResult<Vec<T>> {
        self.read(|connection| {
            let mut read = connection.prepare_cached(sql)?;
            read.query_map(values, row)?.collect()
        })
    }

    /// Runs a change, and returns the number of changed rows.
    pub(crate) fn change(&self, sql: &str, values: impl Params) -> DatabaseResult<usize> {
        self.write(|connection| connection.execute(sql, values))
    }

    /// Runs a change, and reads the row that it returns.
    pub(crate) fn changed_row<T>(
        &self,
        sql: &str,
        values: impl Params,
        row: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> DatabaseResult<Option<T>> {
        self.write(|connection| connection.query_row(sql, values, row).optional())
    }

    /// Runs a change in one transaction.
    pub(crate) fn write<T>(
        &self,
        call: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> DatabaseResult<T> {
        let write = || {
            let mut connection = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let change = || {
                let change =
                    connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let done = call(&change)?;
                change.commit()?;
                Ok(done)
            };
            change().map_err(|error| self.database.error(&error))
        };
        // Waiting for another process's lock may take seconds, so it runs on a blocking thread.
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(write),
            _ => write(),
        }
    }
}
