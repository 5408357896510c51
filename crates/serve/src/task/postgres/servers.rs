//! The servers that share the database.

use std::time::Duration;

use deadpool_postgres::{Object, Transaction};

use super::rows::{self, Fault};
use crate::database::Timestamp;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its name, which is that of its data directory.
    pub name: String,
    /// When it started.
    pub started_at: Timestamp,
    /// How long it is believed to live without a sign of life; zero if that time is over.
    pub lease: Duration,
    /// True if it claims no more tasks.
    pub is_draining: bool,
    /// Number of tasks that it runs.
    pub running: u64,
}

/// Lists the servers, the one that started first first.
pub(super) async fn list(client: &Object) -> Result<Vec<ServerInfo>, Fault> {
    let sql = "SELECT greatest(lease_until - clock_ms(), 0),
            (SELECT count(*) FROM task_active WHERE task_active.node = node.id),
            name, started_at, draining FROM node ORDER BY id";
    let found = client.query(sql, &[]).await?;
    let server = |row: &tokio_postgres::Row| {
        Ok(ServerInfo {
            name: row.try_get(2)?,
            started_at: Timestamp(row.try_get(3)?),
            lease: Duration::from_millis(rows::number(row, 0)?),
            is_draining: row.try_get(4)?,
            running: rows::number(row, 1)?,
        })
    };
    found.iter().map(server).collect()
}

/// Agrees with the other servers on where objects are. Returns the place of the others if it is another one. If no
/// other server lives, their place is forgotten.
pub(super) async fn agree_on_objects(
    transaction: &Transaction<'_>,
    (own, server): (&str, &str),
) -> Result<Option<String>, Fault> {
    transaction
        .batch_execute("LOCK TABLE object_place IN EXCLUSIVE MODE")
        .await?;
    let others = "SELECT place FROM object_place WHERE place <> $1
        AND EXISTS (SELECT FROM node WHERE name <> $2 AND lease_until >= clock_ms())";
    if let Some(other) = transaction.query_opt(others, &[&own, &server]).await? {
        return other.try_get(0).map(Some);
    }
    transaction.execute("DELETE FROM object_place", &[]).await?;
    let insert = "INSERT INTO object_place VALUES ($1)";
    transaction.execute(insert, &[&own]).await?;
    Ok(None)
}

/// Lets the servers of this name claim no more tasks. Returns their number.
pub(super) async fn drain(client: &Object, name: &str) -> Result<u64, Fault> {
    let sql = "UPDATE node SET draining = TRUE WHERE name = $1";
    client.execute(sql, &[&name]).await
}
