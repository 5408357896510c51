//! Webhooks: requests to a server of the user when a task, a batch or a training job ends.
//!
//! Requests are signed as the Standard Webhooks specification says.
//!
//! Invariant: an event is stored in the same transaction as the end that it reports, and is sent
//! until the server accepts it or about a day has passed. A server may get an event twice, with the
//! same id. What waits for a server has a limit.

mod deliver;
mod secret;
mod store;

pub use deliver::Webhooks;
pub use secret::WebhookSecret;
pub(crate) use store::SqlWebhooks;
pub use store::{Delivery, WebhookStore};

use crate::account::AccountId;

/// A webhook.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// Its name, which identifies it across restarts.
    pub name: String,
    /// The account whose events it gets.
    pub account: AccountId,
    /// Address to which events are posted.
    pub url: String,
    /// Types of events, such as `batch.completed` or `batch.*`; empty: all.
    pub events: Vec<String>,
    /// The secret of the signatures.
    pub secret: WebhookSecret,
}

impl WebhookOptions {
    /// Returns whether it gets an event.
    fn wants(&self, account: AccountId, kind: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => kind.starts_with(start),
            None => kind == pattern,
        };
        self.account == account && (self.events.is_empty() || self.events.iter().any(matches))
    }
}
