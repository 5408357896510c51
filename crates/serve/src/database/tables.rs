//! The tables of accounts, trainings, batches and events, in a database of either kind.

use super::DatabaseResult;
use super::postgres::Postgres;
use super::sql::{ReadRow, SqlConnection, SqlValue};
use super::sqlite::{DatabaseConnections, Sqlite};

/// A database whose tables hold records: accounts, datasets, jobs, batches and events.
#[derive(Debug)]
pub(crate) enum SqlDatabase {
    Sqlite(Box<DatabaseConnections>),
    Postgres(Postgres),
}

impl SqlDatabase {
    /// Opens the connections to an SQLite database.
    pub(crate) fn of_sqlite(database: &Sqlite) -> DatabaseResult<Self> {
        DatabaseConnections::open(database).map(|opened| Self::Sqlite(Box::new(opened)))
    }

    /// Returns the number of this server among those that share the database; `None` if it is the only one.
    pub(crate) fn server(&self) -> Option<i64> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(database) => Some(database.node().number()),
        }
    }

    /// Returns a condition on rows with a column `node`: no server that lives holds the row.
    pub(crate) fn is_free(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "1 = 1",
            Self::Postgres(_) => "(node IS NULL OR node NOT IN (SELECT id FROM node))",
        }
    }

    /// Reads from the database.
    pub(crate) fn read<T: Send>(
        &self,
        call: impl FnOnce(&mut dyn SqlConnection) -> DatabaseResult<T> + Send,
    ) -> DatabaseResult<T> {
        match self {
            Self::Sqlite(database) => database.read(call),
            Self::Postgres(database) => database.run(call),
        }
    }

    /// Runs a change in one transaction, as if no other ran meanwhile. PostgreSQL may call it again.
    pub(crate) fn write<T: Send>(
        &self,
        call: impl FnMut(&mut dyn SqlConnection) -> DatabaseResult<T> + Send,
    ) -> DatabaseResult<T> {
        match self {
            Self::Sqlite(database) => database.write(call),
            Self::Postgres(database) => database.change(call),
        }
    }

    /// Reads all rows of a query.
    pub(crate) fn rows<T: Send>(
        &self,
        sql: &str,
        values: &[SqlValue],
        read: ReadRow<T>,
    ) -> DatabaseResult<Vec<T>> {
        self.read(|connection| connection.query(sql, values)?.iter().map(read).collect())
    }

    /// Reads the first row of a query.
    pub(crate) fn row<T: Send>(
        &self,
        sql: &str,
        values: &[SqlValue],
        read: ReadRow<T>,
    ) -> DatabaseResult<Option<T>> {
        self.read(|connection| connection.row(sql, values, read))
    }

    /// Runs a change, and returns the number of changed rows.
    pub(crate) fn change(&self, sql: &str, values: &[SqlValue]) -> DatabaseResult<usize> {
        self.write(|connection| connection.execute(sql, values))
    }

    /// Runs a change, and reads the row that it returns.
    pub(crate) fn changed_row<T: Send>(
        &self,
        sql: &str,
        values: &[SqlValue],
        read: ReadRow<T>,
    ) -> DatabaseResult<Option<T>> {
        self.write(|connection| connection.row(sql, values, read))
    }
}
