//! The store of events and deliveries.

use std::time::Duration;

use serde_json::json;

use super::WebhookOptions;
use crate::account::AccountId;
use crate::database::sql::{SqlRow, values};
use crate::database::tables::SqlDatabase;
use crate::database::{DatabaseResult, Timestamp};

/// Maximum number of events that are assigned at once.
const MAX_EVENTS: i64 = 500;

/// Maximum number of deliveries that wait for one webhook. The oldest ones beyond it are dropped.
const MAX_WAITING: i64 = 100_000;

/// Time after which a delivery that was taken and not settled is due again: longer than a request takes.
const DELIVERY_LEASE: Duration = Duration::from_mins(1);

/// An event to send to a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Number of the event.
    pub event: i64,
    /// The body of the request: JSON.
    pub body: String,
    /// Number of attempts so far.
    pub attempts: u32,
}

/// A store of events and deliveries. Every method is one atomic operation that is durable when it
/// returns.
#[async_trait::async_trait]
pub trait WebhookStore: Send + Sync {
    /// Replaces the known webhooks. Events of accounts without one are not stored, and deliveries
    /// of other webhooks are deleted.
    async fn set_webhooks(&self, webhooks: &[WebhookOptions]) -> DatabaseResult<()>;

    /// Assigns stored events to the webhooks that want them. Returns whether there were any.
    async fn assign(&self, webhooks: &[WebhookOptions], now: Timestamp) -> DatabaseResult<bool>;

    /// Takes deliveries that are due, the one that waits longest first. Those that are not settled within a minute, for
    /// example because the server ended, are due again.
    async fn due(
        &self,
        webhook: &str,
        now: Timestamp,
        most: usize,
    ) -> DatabaseResult<Vec<Delivery>>;

    /// Deletes a delivery, or delays it.
    async fn settle(
        &self,
        webhook: &str,
        event: i64,
        again_at: Option<Timestamp>,
    ) -> DatabaseResult<()>;
}

/// The webhook store of a database of either kind.
#[derive(Debug)]
pub(crate) struct SqlWebhooks(pub(crate) SqlDatabase);

/// An event that is not assigned yet.
struct StoredEvent {
    id: i64,
    account: AccountId,
    kind: String,
    subject: String,
    service: Option<String>,
    at: Timestamp,
}

impl StoredEvent {
    fn of(row: &SqlRow) -> DatabaseResult<Self> {
        Ok(Self {
            id: row.get(0)?,
            account: AccountId(row.get(1)?),
            kind: row.get(2)?,
            subject: row.get(3)?,
            service: row.get(4)?,
            at: Timestamp(row.get(5)?),
        })
    }

    fn body(&self) -> String {
        let mut data = json!({"id": self.subject});
        if let Some(service) = &self.service {
            data["service"] = json!(service);
        }
        let event = json!({
            "id": event_id(self.id),
            "object": "event",
            "type": self.kind,
            "created_at": self.at.0.div_euclid(1000),
            "data": data,
        });
        event.to_string()
    }
}

fn delivery(row: &SqlRow) -> DatabaseResult<Delivery> {
    Ok(Delivery {
        event: row.get(0)?,
        body: row.get(1)?,
        attempts: row.get(2)?,
    })
}

/// Returns the id of an event, which its receivers see.
pub(super) fn event_id(event: i64) -> String {
    format!("evt_{event}")
}

#[async_trait::async_trait]
impl WebhookStore for SqlWebhooks {
    async fn set_webhooks(&self, webhooks: &[WebhookOptions]) -> DatabaseResult<()> {
        self.0.write(|connection| {
            connection.execute("DELETE FROM webhook", &[])?;
            for webhook in webhooks {
                let values = values![&webhook.name, webhook.account.0];
                connection.execute("INSERT INTO webhook VALUES (?1, ?2)", &values)?;
            }
            let others = "DELETE FROM delivery WHERE webhook NOT IN (SELECT name FROM webhook)";
            connection.execute(others, &[])?;
            let others = "DELETE FROM event WHERE account NOT IN (SELECT account FROM webhook)";
            connection.execute(others, &[]).map(drop)
        })
    }

    async fn assign(&self, webhooks: &[WebhookOptions], now: Timestamp) -> DatabaseResult<bool> {
        let events =
            "SELECT id, account, type, subject, service, at FROM event ORDER BY id LIMIT ?1";
        let insert = "INSERT INTO delivery (webhook, event, body, next_at) VALUES (?1, ?2, ?3, ?4)";
        let excess = "DELETE FROM delivery WHERE webhook = ?1 AND event <= (SELECT event
            FROM delivery WHERE webhook = ?1 ORDER BY event DESC LIMIT 1 OFFSET ?2)";
        let events = self.0.rows(events, &values![MAX_EVENTS], StoredEvent::of)?;
        let Some(last) = events.last() else {
            return Ok(false);
        };
        self.0.write(|connection| {
            for event in &events {
                let wanted = webhooks.iter();
                let wanted = wanted.filter(|it| it.wants(event.account, &event.kind));
                for webhook in wanted {
                    let values = values![&webhook.name, event.id, event.body(), now.0];
                    connection.execute(insert, &values)?;
                }
            }
            connection.execute("DELETE FROM event WHERE id <= ?1", &values![last.id])?;
            for webhook in webhooks {
                let dropped = connection.execute(excess, &values![&webhook.name, MAX_WAITING])?;
                if dropped > 0 {
                    tracing::error!(
                        webhook = webhook.name,
                        events = dropped,
                        "dropped events: too many wait for the webhook"
                    );
                }
            }
            Ok(true)
        })
    }

    async fn due(
        &self,
        webhook: &str,
        now: Timestamp,
        most: usize,
    ) -> DatabaseResult<Vec<Delivery>> {
        let due = "SELECT event, body, attempts FROM delivery INDEXED BY delivery_due
            WHERE webhook = ?1 AND next_at <= ?2 ORDER BY next_at, event LIMIT ?3";
        let take = "UPDATE delivery SET next_at = ?3 WHERE webhook = ?1 AND event = ?2";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let values = values![webhook, now.0, most];
        if self.0.row(due, &values, |_| Ok(()))?.is_none() {
            return Ok(Vec::new());
        }
        let until = now.after(DELIVERY_LEASE);
        self.0.write(|connection| {
            let due = connection.query(due, &values)?;
            let due: Vec<Delivery> = due.iter().map(delivery).collect::<Result<_, _>>()?;
            for delivery in &due {
                connection.execute(take, &values![webhook, delivery.event, until.0])?;
            }
            Ok(due)
        })
    }

    async fn settle(
        &self,
        webhook: &str,
        event: i64,
        again_at: Option<Timestamp>,
    ) -> DatabaseResult<()> {
        let changed = match again_at {
            None => {
                let sql = "DELETE FROM delivery WHERE webhook = ?1 AND event = ?2";
                self.0.change(sql, &values![webhook, event])
            }
            Some(at) => {
                let sql = "UPDATE delivery SET attempts = attempts + 1, next_at = ?3
                    WHERE webhook = ?1 AND event = ?2";
                self.0.change(sql, &values![webhook, event, at.0])
            }
        };
        changed.map(drop)
    }
}
