//! Sends events to webhooks, with pauses that grow after each failure.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::WebhookOptions;
use super::store::{Delivery, WebhookStore, event_id};
use crate::database::{DatabaseResult, Timestamp};

/// Interval between searches for events.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Number of requests to a webhook at the same time.
const REQUESTS_AT_ONCE: usize = 8;

/// Pauses after failed attempts: about a day in all.
const PAUSES_S: [u64; 10] = [5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800, 28_800];

/// The webhooks of a running server.
#[derive(Debug)]
pub struct Webhooks {
    stop: watch::Sender<bool>,
    workers: JoinSet<()>,
}

/// Sends the events of one webhook.
struct Sender {
    webhook: WebhookOptions,
    store: Arc<dyn WebhookStore>,
    client: Client,
}

impl Webhooks {
    /// Starts to send events. Must be called on a tokio runtime.
    pub async fn start(
        store: Arc<dyn WebhookStore>,
        webhooks: Vec<WebhookOptions>,
        client: Client,
    ) -> DatabaseResult<Self> {
        store.set_webhooks(&webhooks).await?;
        let (stop, stopped) = watch::channel(false);
        let mut workers = JoinSet::new();
        if !webhooks.is_empty() {
            for webhook in webhooks.clone() {
                let sender = Sender {
                    webhook,
                    store: Arc::clone(&store),
                    client: client.clone(),
                };
                workers.spawn(sender.work(stopped.clone()));
            }
            workers.spawn(assign(store, webhooks, stopped));
        }
        Ok(Self { stop, workers })
    }

    /// Stops. What was not sent is sent after the next start.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.workers.join_next().await.is_some() {}
    }
}

/// Waits for the next search; `false` if the server stops.
async fn pause(stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => false,
        () = tokio::time::sleep(POLL_INTERVAL) => true,
    }
}

/// Assigns events to webhooks until the server stops.
async fn assign(
    store: Arc<dyn WebhookStore>,
    webhooks: Vec<WebhookOptions>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        match store.assign(&webhooks, Timestamp::now()).await {
            Ok(true) if !*stop.borrow() => continue,
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "cannot assign events to webhooks"),
        }
        if !pause(&mut stop).await {
            return;
        }
    }
}

impl Sender {
    async fn work(self, mut stop: watch::Receiver<bool>) {
        loop {
            let name = &self.webhook.name;
            let due = self.store.due(name, Timestamp::now(), REQUESTS_AT_ONCE);
            let due = due.await.unwrap_or_else(|error| {
                tracing::error!(webhook = name, %error, "cannot read the events of a webhook");
                Vec::new()
            });
            let is_idle = due.is_empty();
            tokio::select! {
                // A request that is cut off is sent again after the next start.
                _ = stop.wait_for(|stop| *stop) => return,
                _ = join_all(due.iter().map(|delivery| self.deliver(delivery))) => {}
            }
            if is_idle && !pause(&mut stop).await {
                return;
            }
        }
    }

    async fn deliver(&self, delivery: &Delivery) {
        let (name, event) = (&self.webhook.name, delivery.event);
        let again = match self.send(delivery).await {
            Ok(()) => None,
            Err(reason) => {
                let attempt = usize::try_from(delivery.attempts).unwrap_or(usize::MAX);
                let pause = PAUSES_S.get(attempt).copied().map(Duration::from_secs);
                match pause {
                    Some(_) => {
                        tracing::warn!(webhook = name, event, reason, "a webhook failed; retrying");
                    }
                    None => {
                        tracing::error!(
                            webhook = name,
                            event,
                            reason,
                            "a webhook failed; giving up"
                        );
                    }
                }
                pause.map(|pause| Timestamp::now().after(pause))
            }
        };
        while let Err(error) = self.store.settle(name, event, again).await {
            tracing::error!(webhook = name, %error, "cannot store the result of a webhook; retrying");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends an event once. The error says why the server did not accept it.
    async fn send(&self, delivery: &Delivery) -> Result<(), String> {
        let id = event_id(delivery.event);
        let timestamp = Timestamp::now().0.div_euclid(1000);
        let signature = self.webhook.secret.sign(&id, timestamp, &delivery.body);
        let request = self
            .client
            .post(&self.webhook.url)
            .timeout(TIMEOUT)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature)
            .body(delivery.body.clone());
        // The address may contain credentials.
        let response = request
            .send()
            .await
            .map_err(|error| error.without_url().to_string())?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::GONE => {
                tracing::warn!(
                    webhook = self.webhook.name,
                    "the webhook no longer wants this event"
                );
                Ok(())
            }
            status => Err(format!("the server answered {status}")),
        }
    }
}
