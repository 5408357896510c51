//! SQL for both kinds of databases: a store is written once, and runs on SQLite and on PostgreSQL.
//!
//! Statements are those that both kinds understand, with the parameters `?1`, `?2`, and so on. Integers and flags are
//! 64-bit integers in both.

mod row;
mod value;

use crate::database::DatabaseResult;
pub(crate) use row::{SqlRow, unknown_value};
pub(crate) use value::{SqlValue, values};

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
            .ok_or_else(|| row::fault("a statement returned no row".to_owned()))
    }
}
