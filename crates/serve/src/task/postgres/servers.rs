//! The servers that share the database.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Transaction};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::changes::{EndingKind, TaskEnding};
use super::group::{self, ChangeGroup, GroupOutcome};
use super::rows::{self, Fault};
use crate::database::postgres::Postgres;
use crate::database::{DatabaseResult, Timestamp};
use crate::objects::ObjectsUrl;

/// The servers that share a database.
#[derive(Debug)]
pub struct SharedServers(pub(in crate::task) Postgres);

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

/// Names servers.
#[derive(Debug, Clone)]
pub(super) enum ServerKey {
    /// By the name, which a restart does not change.
    Named(String),
    /// By the number of the row, if the lease is over.
    Silent(i64),
}

impl SharedServers {
    /// Agrees with the other servers on where objects are: at this address, or else in the files of this server. Returns
    /// the place of the others if it is another one.
    pub async fn agree_on_objects(
        &self,
        url: Option<&ObjectsUrl>,
    ) -> DatabaseResult<Option<String>> {
        let server = self.0.node().name().to_owned();
        let own = match url {
            Some(url) => url.to_string(),
            None => format!("the files of the server {server}"),
        };
        let agree = self.0.transact(move |transaction| {
            let (own, server) = (own.clone(), server.clone());
            Box::pin(async move { agree_on_objects(transaction, (&own, &server)).await })
        });
        agree.await
    }

    /// Returns the place of the objects that all of them share; `None` if no server has one.
    pub async fn object_place(&self) -> DatabaseResult<Option<ObjectsUrl>> {
        let place = self.0.with(|client| {
            Box::pin(async {
                let row = client
                    .query_opt("SELECT place FROM object_place", &[])
                    .await?;
                row.map(|row| row.try_get::<_, String>(0)).transpose()
            })
        });
        Ok(place.await?.and_then(|place| place.parse().ok()))
    }

    /// Lists them, the one that started first first.
    pub async fn list(&self) -> DatabaseResult<Vec<ServerInfo>> {
        self.0.with(|client| Box::pin(list(client))).await
    }

    /// Lets a server, by its name, claim no more tasks. Returns `false` if there is none of this name.
    pub async fn drain(&self, name: &str) -> DatabaseResult<bool> {
        let name = name.to_owned();
        let drained = self.0.with(move |client| {
            let name = name.clone();
            Box::pin(async move {
                let sql = "UPDATE node SET draining = TRUE WHERE name = $1";
                client.execute(sql, &[&name]).await
            })
        });
        Ok(drained.await? > 0)
    }

    /// Returns the running tasks of a server, by its name, to the queue, as after a crash. Returns their number.
    pub async fn requeue(&self, name: &str, attempts: u32) -> DatabaseResult<u64> {
        let named = ServerKey::Named(name.to_owned());
        let outcome = end(&self.0, named, (attempts, Timestamp::now())).await?;
        Ok(outcome.changed())
    }
}

/// Deletes rows of servers, and returns their running tasks to the queue, as after a crash.
pub(super) async fn end(
    database: &Postgres,
    key: ServerKey,
    (attempts, now): (u32, Timestamp),
) -> DatabaseResult<GroupOutcome> {
    let end = database.transact(move |transaction| {
        let key = key.clone();
        Box::pin(async move {
            let group = ChangeGroup {
                endings: delete(transaction, &key, (attempts, now)).await?,
                ..ChangeGroup::default()
            };
            group::apply(transaction, &group).await
        })
    });
    end.await
}

/// Deletes rows of servers, and returns how their tasks end.
async fn delete(
    transaction: &Transaction<'_>,
    key: &ServerKey,
    (attempts, now): (u32, Timestamp),
) -> Result<Vec<Arc<TaskEnding>>, Fault> {
    let (sql, value): (_, &(dyn ToSql + Sync)) = match key {
        ServerKey::Named(name) => ("DELETE FROM node WHERE name = $1 RETURNING id", name),
        ServerKey::Silent(number) => (
            "DELETE FROM node WHERE id = $1 AND lease_until < clock_ms() RETURNING id",
            number,
        ),
    };
    let gone = transaction.query(sql, &[value]).await?;
    let gone = gone.iter().map(|row| row.try_get(0));
    let gone = gone.collect::<Result<Vec<i64>, Fault>>()?;
    let sql = "SELECT id, attempt, node FROM task_active WHERE node = ANY($1)";
    let tasks = transaction.query(sql, &[&gone]).await?;
    let ending = |row: &Row| {
        let lease = rows::lease(row)?;
        Ok(Arc::new(TaskEnding {
            task: lease.task,
            holder: Some((row.try_get(2)?, lease.attempt)),
            how: EndingKind::PutBack {
                crashed: true,
                attempts,
            },
            now,
        }))
    };
    tasks.iter().map(ending).collect()
}

/// Lists the servers, the one that started first first.
async fn list(client: &Object) -> Result<Vec<ServerInfo>, Fault> {
    let sql = "SELECT greatest(lease_until - clock_ms(), 0),
            (SELECT count(*) FROM task_active WHERE task_active.node = node.id),
            name, started_at, draining FROM node ORDER BY id";
    let found = client.query(sql, &[]).await?;
    let server = |row: &Row| {
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
async fn agree_on_objects(
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
