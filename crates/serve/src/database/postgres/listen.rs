//! Notifications of other servers. They only make a change seen earlier: behind a pooler of transactions none arrive,
//! and whoever waits for one also looks by itself from time to time.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};

use super::{BackgroundWork, Postgres, tls};

/// Pause before a connection is made again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Listens to a channel.
#[derive(Debug)]
pub(crate) struct Listener {
    heard: Arc<Notify>,
    _work: BackgroundWork,
}

impl Listener {
    /// Starts to listen to what others than this server send.
    pub(crate) fn start(database: &Postgres, channel: &'static str) -> Self {
        let heard = Arc::new(Notify::new());
        let (own, told) = (database.clone(), Arc::clone(&heard));
        let work = database.in_background(async move {
            loop {
                if let Err(error) = listen(&own, channel, &told).await {
                    tracing::debug!(%error, "the database sends no notifications");
                }
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        });
        Self { heard, _work: work }
    }

    /// Waits for a notification.
    pub(crate) async fn heard(&self) {
        self.heard.notified().await;
    }
}

/// Listens until the connection ends.
async fn listen(
    database: &Postgres,
    channel: &str,
    heard: &Notify,
) -> Result<(), tokio_postgres::Error> {
    let config = &database.0.config;
    match tls(config) {
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            follow(database, (client, connection), channel, heard).await
        }
        Some(tls) => {
            let (client, connection) = config.connect(tls).await?;
            follow(database, (client, connection), channel, heard).await
        }
    }
}

async fn follow<S, T>(
    database: &Postgres,
    (client, mut connection): (Client, Connection<S, T>),
    channel: &str,
    heard: &Notify,
) -> Result<(), tokio_postgres::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let sql = format!("LISTEN {channel}");
    let messages = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(said) = message?
                && said.payload() != database.node().number().to_string()
            {
                heard.notify_one();
            }
        }
        Ok(())
    };
    tokio::pin!(messages);
    tokio::select! {
        ended = &mut messages => return ended,
        listening = client.batch_execute(&sql) => listening?,
    }
    // The connection ends when its client is dropped.
    messages.await
}
