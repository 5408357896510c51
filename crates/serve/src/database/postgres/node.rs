//! This server among those that share the database: its row, which it must renew, and the clock that all follow.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error as Fault, Row};

use crate::database::Timestamp;

/// Reads of the clock that took longer are not trusted.
const MAX_READ_TIME: Duration = Duration::from_millis(100);

/// The name of a server, and how long others believe that it lives without hearing of it.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The same before and after a restart; empty if it is not known.
    pub name: String,
    /// Time after which others take over its tasks.
    pub lease: Duration,
}

/// This server's row among the nodes. Whoever holds a task holds it by the number of this row, which never returns.
#[derive(Debug)]
pub(crate) struct ServerNode {
    options: NodeOptions,
    /// The number of the row; 0 without one.
    number: AtomicI64,
}

impl ServerNode {
    pub(crate) fn new(options: NodeOptions) -> Self {
        let number = AtomicI64::new(0);
        Self { options, number }
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    /// Returns the time after which others take over its tasks.
    pub(crate) fn lease(&self) -> Duration {
        self.options.lease
    }

    /// Returns the number of the row; 0 without one.
    pub(crate) fn number(&self) -> i64 {
        self.number.load(Ordering::Acquire)
    }

    /// Makes a row, unless there is one and `again` is false. Returns its number.
    pub(crate) async fn register(&self, client: &Client, again: bool) -> Result<i64, Fault> {
        let known = self.number();
        if known != 0 && !again {
            return Ok(known);
        }
        let sql = "INSERT INTO node (name, started_at, lease_until)
            VALUES ($1, clock_ms(), clock_ms() + $2) RETURNING id";
        let values: &[&(dyn ToSql + Sync)] = &[&self.options.name, &self.lease_ms()];
        let number = client.query_one(sql, values).await?.try_get(0)?;
        self.number.store(number, Ordering::Release);
        Ok(number)
    }

    /// Extends the lease. Returns `false` if the row is gone: others took over the tasks.
    pub(crate) async fn renew(&self, client: &Client) -> Result<bool, Fault> {
        let sql =
            "UPDATE node SET lease_until = clock_ms() + $2 WHERE id = $1 RETURNING clock_ms()";
        let sent_at = Instant::now();
        let row = client
            .query_opt(sql, &[&self.number(), &self.lease_ms()])
            .await?;
        if let Some(row) = &row {
            follow_clock(row, sent_at);
        }
        Ok(row.is_some())
    }

    fn lease_ms(&self) -> i64 {
        i64::try_from(self.options.lease.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Reads the clock of the database.
pub(super) async fn read_clock(client: &Client) -> Result<(), Fault> {
    let sent_at = Instant::now();
    let row = client.query_one("SELECT clock_ms()", &[]).await?;
    follow_clock(&row, sent_at);
    Ok(())
}

/// Lets this process follow the clock that a row holds, unless it took too long to come.
fn follow_clock(row: &Row, sent_at: Instant) {
    let took = sent_at.elapsed();
    if took <= MAX_READ_TIME {
        Timestamp::follow(Timestamp(row.get(0)), sent_at + took / 2);
    }
}
