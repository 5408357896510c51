//! Signals of changes: to the listeners of this process at once, other servers by a notification.
//!
//! Invariant: a server sends at most one notification in [`NOTIFY_PAUSE`], outside of transactions. Notifications only
//! make a change seen earlier: servers also look by themselves, more often while there is something to see.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast, watch};

use crate::database::postgres::{BackgroundWork, Listener, Postgres};
use crate::task::stored::EVENT_CAPACITY;
use crate::task::{StoreTimes, TaskEvent};

/// The channel of notifications.
const CHANNEL: &str = "pkgtool_tasks";

/// Minimum time between two notifications of a server, and between two looks at what others changed.
const NOTIFY_PAUSE: Duration = Duration::from_millis(50);

/// Pauses between looks at what others changed: after one that was told or found something, and the longest.
const SHORT_PAUSE: Duration = Duration::from_millis(100);
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// The channels of this process.
#[derive(Debug)]
pub(super) struct Signals {
    pub(super) wakeups: watch::Sender<u64>,
    pub(super) news: watch::Sender<u64>,
    pub(super) events: broadcast::Sender<TaskEvent>,
    pub(super) times: StoreTimes,
    /// Something changed that other servers may wait for.
    changed: Notify,
}

impl Signals {
    pub(super) fn new() -> Self {
        Self {
            wakeups: watch::Sender::new(0),
            news: watch::Sender::new(0),
            events: broadcast::Sender::new(EVENT_CAPACITY),
            times: StoreTimes::default(),
            changed: Notify::new(),
        }
    }

    /// Tells listeners that a task may be claimable, and that tasks ended.
    pub(super) fn tell(&self, wakes: bool, events: Vec<TaskEvent>) {
        if wakes {
            bump(&self.wakeups);
        }
        if wakes || !events.is_empty() {
            self.changed.notify_one();
        }
        if self.events.receiver_count() > 0 {
            for event in events {
                // Nobody may be listening any more.
                let _ = self.events.send(event);
            }
        }
    }
}

fn bump(count: &watch::Sender<u64>) {
    count.send_modify(|count| *count = count.wrapping_add(1));
}

/// Starts to tell other servers of changes, and this process of theirs.
pub(super) fn start(database: &Postgres, signals: &Arc<Signals>) -> [BackgroundWork; 2] {
    let tell = tell_others(database.clone(), Arc::clone(signals));
    let look = look_at_others(database.clone(), Arc::clone(signals));
    [database.in_background(tell), database.in_background(look)]
}

async fn tell_others(database: Postgres, signals: Arc<Signals>) {
    loop {
        signals.changed.notified().await;
        let number = database.node().number();
        let told = database.with(move |client| {
            Box::pin(async move {
                let sql = "SELECT pg_notify($1, $2) FROM node WHERE id <> $3 LIMIT 1";
                let tell = client.prepare_cached(sql).await?;
                let own = number.to_string();
                client.query(&tell, &[&CHANNEL, &own, &number]).await
            })
        });
        if let Err(error) = told.await {
            tracing::debug!(%error, "other servers were not told of a change");
        }
        tokio::time::sleep(NOTIFY_PAUSE).await;
    }
}

async fn look_at_others(database: Postgres, signals: Arc<Signals>) {
    let listener = Listener::start(&database, CHANNEL);
    let mut pause = SHORT_PAUSE;
    loop {
        let was_told = tokio::time::timeout(pause, listener.heard()).await.is_ok();
        // While tasks are claimed or waited for, others may change something soon.
        pause = if was_told {
            SHORT_PAUSE
        } else {
            (pause * 2).min(LONG_PAUSE)
        };
        bump(&signals.wakeups);
        bump(&signals.news);
        tokio::time::sleep(NOTIFY_PAUSE).await;
    }
}
