//! SQL for both kinds of databases: a store is written once, and runs on SQLite and on PostgreSQL.
//!
//! Statements are those that both kinds understand, with the parameters `?1`, `?2`, and so on. Integers and flags are
//! 64-bit integers in both.

mod row;
mod value;

use crate::database::postgres::Postgres;
use crate::database::sqlite::{DatabaseConnections, Sqlite};
use crate::database::{DatabaseError, DatabaseResult};
pub(crate) use row::{SqlRow, unknown_value};
pub(crate) use value::{SqlValue, values};

/// A database whose tables hold records: accounts, datasets, jobs, batches and events.
#[derive(Debug)]
pub(crate) enum SqlDatabase {
    Sqlite(Box<DatabaseConnections>),
    Postgres(Postgres),
}

/// A connection, or a transaction on it.
pub(crate) trait SqlConnection {
    /// Runs a change, and returns the number of changed rows.
    fn execute(&mut self, sql: &str, values: &[SqlValue]) -> DatabaseResult<usize>;

    /// Returns all rows of a query.
    fn query(&mut self, sql: &str, values: &[SqlValue]) -> DatabaseResult<Vec<SqlRow>>;
}

/// Reads a row.
pub(crate) type ReadRow<T> = fn(&SqlRow) -> DatabaseResult<T>;

impl dyn SqlConnection + '_ {
    /// Returns the first row of a query.
    pub(crate) fn row<T>(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        read: ReadRow<T>,
    ) -> DatabaseResult<Option<T>> {
        let rows = self.query(sql, values)?;
        rows.first().map(read).transpose()
    }

    /// Returns the row of a query that always has one.
    pub(crate) fn only_row<T>(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        read: ReadRow<T>,
    ) -> DatabaseResult<T> {
        self.row(sql, values, read)?
            .ok_or_else(|| DatabaseError::Other {
                path: "the database".to_owned(),
                reason: "a statement returned no row".to_owned(),
            })
    }
}

impl SqlDatabase {
    /// Opens the connections to an SQLite database.
    pub(crate) fn of_sqlite(database: &Sqlite) -> DatabaseResult<Self> {
        DatabaseConnections::open(database).map(|opened| Self::Sqlite(Box::new(opened)))
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
