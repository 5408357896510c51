//! The connections of a store: one that writes and one that reads, which threads share.
//!
//! Invariant: readers never wait for a change that waits for another process. Such a change runs on
//! a blocking thread, so it does not delay other requests.

use std::sync::{Mutex, PoisonError};

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Row, ToSql, TransactionBehavior, params_from_iter};

use super::Sqlite;
use crate::database::DatabaseResult;
use crate::database::blocking::may_block;
use crate::database::sql::{SqlConnection, SqlRow, SqlValue};

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
        call: impl FnOnce(&mut dyn SqlConnection) -> DatabaseResult<T>,
    ) -> DatabaseResult<T> {
        let connection = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        call(&mut SqliteSession {
            connection: &connection,
            database: &self.database,
        })
    }

    /// Runs a change in one transaction.
    pub(crate) fn write<T>(
        &self,
        call: impl FnOnce(&mut dyn SqlConnection) -> DatabaseResult<T>,
    ) -> DatabaseResult<T> {
        let database = &self.database;
        let fault = |error: rusqlite::Error| database.error(&error);
        // Waiting for another process's lock may take seconds.
        may_block(|| {
            let mut connection = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let change = change.map_err(fault)?;
            let done = call(&mut SqliteSession {
                connection: &change,
                database,
            })?;
            change.commit().map_err(fault)?;
            Ok(done)
        })
    }
}

/// A connection, or a transaction on it.
struct SqliteSession<'c> {
    connection: &'c Connection,
    database: &'c Sqlite,
}

impl SqlConnection for SqliteSession<'_> {
    fn execute(&mut self, sql: &str, values: &[SqlValue]) -> DatabaseResult<usize> {
        let execute = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.execute(params_from_iter(values))
        };
        execute().map_err(|error| self.database.error(&error))
    }

    fn query(&mut self, sql: &str, values: &[SqlValue]) -> DatabaseResult<Vec<SqlRow>> {
        let query = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            let count = statement.column_count();
            let rows = statement.query_map(params_from_iter(values), |row| read(row, count))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        query().map_err(|error| self.database.error(&error))
    }
}

fn read(row: &Row<'_>, count: usize) -> rusqlite::Result<SqlRow> {
    let values = (0..count).map(|column| {
        Ok(match row.get(column)? {
            Value::Null => SqlValue::Integer(None),
            Value::Integer(number) => SqlValue::Integer(Some(number)),
            Value::Text(text) => SqlValue::Text(Some(text)),
            Value::Blob(bytes) => SqlValue::Bytes(Some(bytes)),
            // No table has one.
            Value::Real(number) => SqlValue::Text(Some(number.to_string())),
        })
    });
    values.collect::<rusqlite::Result<_>>().map(SqlRow::new)
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Integer(number) => number.map_or(ValueRef::Null, ValueRef::Integer),
            Self::Text(text) => {
                let text = text.as_deref().map(str::as_bytes);
                text.map_or(ValueRef::Null, ValueRef::Text)
            }
            Self::Bytes(bytes) => bytes.as_deref().map_or(ValueRef::Null, ValueRef::Blob),
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}
