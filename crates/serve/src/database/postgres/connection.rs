//! Statements on a connection, or in a transaction.

use deadpool_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use super::driver::Driver;
use super::statement::for_postgres;
use crate::database::DatabaseResult;
use crate::database::sql::{SqlConnection, SqlRow, SqlValue};

/// A connection, or a transaction on it.
pub(super) struct PostgresSession<'c, C> {
    driver: &'c Driver,
    client: &'c C,
}

impl<'c, C: GenericClient + Sync> PostgresSession<'c, C> {
    pub(super) fn new(driver: &'c Driver, client: &'c C) -> Self {
        Self { driver, client }
    }

    async fn prepared(
        &self,
        sql: &str,
        values: &[SqlValue],
    ) -> Result<Statement, tokio_postgres::Error> {
        let types: Vec<Type> = values.iter().map(type_of).collect();
        let sql = for_postgres(sql);
        self.client.prepare_typed_cached(&sql, &types).await
    }

    async fn rows(
        &self,
        sql: &str,
        values: &[SqlValue],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.prepared(sql, values).await?;
        self.client.query(&statement, &parameters(values)).await
    }

    async fn changed(&self, sql: &str, values: &[SqlValue]) -> Result<u64, tokio_postgres::Error> {
        let statement = self.prepared(sql, values).await?;
        self.client.execute(&statement, &parameters(values)).await
    }
}

impl<C: GenericClient + Sync> SqlConnection for PostgresSession<'_, C> {
    fn execute(&mut self, sql: &str, values: &[SqlValue]) -> DatabaseResult<usize> {
        let changed = self.driver.wait_for_statement(self.changed(sql, values))?;
        let changed = changed.map_err(|error| self.driver.place.error(&error))?;
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    fn query(&mut self, sql: &str, values: &[SqlValue]) -> DatabaseResult<Vec<SqlRow>> {
        let read = |rows: Vec<Row>| rows.iter().map(read).collect();
        let rows = self.driver.wait_for_statement(self.rows(sql, values))?;
        let rows = rows.and_then(read);
        rows.map_err(|error| self.driver.place.error(&error))
    }
}

fn type_of(value: &SqlValue) -> Type {
    match value {
        SqlValue::Integer(_) => Type::INT8,
        SqlValue::Text(_) => Type::TEXT,
        SqlValue::Bytes(_) => Type::BYTEA,
    }
}

fn parameters(values: &[SqlValue]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(parameter).collect()
}

fn parameter(value: &SqlValue) -> &(dyn ToSql + Sync) {
    match value {
        SqlValue::Integer(number) => number,
        SqlValue::Text(text) => text,
        SqlValue::Bytes(bytes) => bytes,
    }
}

fn read(row: &Row) -> Result<SqlRow, tokio_postgres::Error> {
    let values = row.columns().iter().enumerate().map(|(at, column)| {
        Ok(match *column.type_() {
            Type::TEXT => SqlValue::Text(row.try_get(at)?),
            Type::BYTEA => SqlValue::Bytes(row.try_get(at)?),
            Type::INT4 => SqlValue::Integer(row.try_get::<_, Option<i32>>(at)?.map(i64::from)),
            Type::BOOL => SqlValue::Integer(row.try_get::<_, Option<bool>>(at)?.map(i64::from)),
            // No other type is in the schema.
            _ => SqlValue::Integer(row.try_get(at)?),
        })
    });
    values.collect::<Result<_, _>>().map(SqlRow::new)
}
