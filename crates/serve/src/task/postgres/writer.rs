//! The writer: collects the changes that wait, stores them in one transaction, and answers.
//!
//! Invariant: a change is answered only after its commit. A group that cannot be stored is divided, so that a bad
//! change fails alone. If the connection is lost, the group is stored again, and what an earlier attempt stored is
//! recognised.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use super::changes::{Creation, TaskEnding};
use super::group::{self, ChangeGroup, GroupOutcome};
use super::signals::Signals;
use crate::database::postgres::{BackgroundWork, Postgres};
use crate::database::{DatabaseError, DatabaseResult};
use crate::task::{EnqueueError, TaskId};

/// Maximum number of changes in one transaction.
const MAX_GROUP_CHANGES: usize = 512;

/// How long a group waits for a database that is away, and the pause between two attempts.
const AWAY_TIME: Duration = Duration::from_secs(10);
const AWAY_PAUSE: Duration = Duration::from_millis(100);

/// A change, and where its answer goes.
#[derive(Debug)]
enum QueuedChange {
    Creation(Arc<Creation>, oneshot::Sender<Result<TaskId, EnqueueError>>),
    Ending(Arc<TaskEnding>, oneshot::Sender<DatabaseResult<bool>>),
}

/// Handle of the writer.
#[derive(Debug)]
pub(super) struct GroupWriter {
    changes: UnboundedSender<QueuedChange>,
    place: String,
    _work: BackgroundWork,
}

impl GroupWriter {
    /// Starts the writer.
    pub(super) fn start(database: &Postgres, signals: Arc<Signals>) -> Self {
        let (changes, receiver) = mpsc::unbounded_channel();
        let work = run(database.clone(), signals, receiver);
        Self {
            changes,
            place: database.place(),
            _work: database.in_background(work),
        }
    }

    /// Creates a task.
    pub(super) async fn create(&self, creation: Creation) -> Result<TaskId, EnqueueError> {
        let (reply, answer) = oneshot::channel();
        let change = QueuedChange::Creation(Arc::new(creation), reply);
        self.changes.send(change).map_err(|_| self.ended())?;
        answer.await.map_err(|_| self.ended())?
    }

    /// Ends a task, or returns it to the queue.
    pub(super) async fn end(&self, ending: TaskEnding) -> DatabaseResult<bool> {
        let (reply, answer) = oneshot::channel();
        let change = QueuedChange::Ending(Arc::new(ending), reply);
        self.changes.send(change).map_err(|_| self.ended())?;
        answer.await.map_err(|_| self.ended())?
    }

    fn ended(&self) -> DatabaseError {
        DatabaseError::Other {
            path: self.place.clone(),
            reason: "the writer has ended".to_owned(),
        }
    }
}

async fn run(
    database: Postgres,
    signals: Arc<Signals>,
    mut receiver: UnboundedReceiver<QueuedChange>,
) {
    let mut changes = Vec::with_capacity(MAX_GROUP_CHANGES);
    while receiver.recv_many(&mut changes, MAX_GROUP_CHANGES).await > 0 {
        store_all(&database, &signals, std::mem::take(&mut changes)).await;
    }
}

/// Stores changes, in several groups if one is bad, and answers them.
async fn store_all(database: &Postgres, signals: &Signals, changes: Vec<QueuedChange>) {
    let mut rest = vec![changes];
    while let Some(mut changes) = rest.pop() {
        let began = Instant::now();
        match store_patiently(database, &changes).await {
            Ok(outcome) => {
                signals.times.commits.time(began.elapsed());
                answer(signals, changes, outcome);
            }
            Err(DatabaseError::Other { .. }) if changes.len() > 1 => {
                let second = changes.split_off(changes.len() / 2);
                rest.extend([second, changes]);
            }
            Err(error) => {
                tracing::error!(%error, changes = changes.len(), "task writes failed");
                refuse(changes, &error);
            }
        }
    }
}

/// Stores a group, and again for a while if the database is away.
async fn store_patiently(
    database: &Postgres,
    changes: &[QueuedChange],
) -> DatabaseResult<GroupOutcome> {
    let since = Instant::now();
    let mut is_repeated = false;
    loop {
        let group = Arc::new(group_of(changes, is_repeated));
        match store(database, group).await {
            Err(DatabaseError::Away { .. }) if since.elapsed() < AWAY_TIME => {
                is_repeated = true;
                tokio::time::sleep(AWAY_PAUSE).await;
            }
            done => return done,
        }
    }
}

fn group_of(changes: &[QueuedChange], is_repeated: bool) -> ChangeGroup {
    let mut group = ChangeGroup {
        is_repeated,
        ..ChangeGroup::default()
    };
    for change in changes {
        match change {
            QueuedChange::Creation(creation, _) => group.creations.push(Arc::clone(creation)),
            QueuedChange::Ending(ending, _) => group.endings.push(Arc::clone(ending)),
        }
    }
    group
}

/// Stores a group in one transaction.
async fn store(database: &Postgres, group: Arc<ChangeGroup>) -> DatabaseResult<GroupOutcome> {
    let store = database.transact(move |transaction| {
        let group = Arc::clone(&group);
        Box::pin(async move { group::apply(transaction, &group).await })
    });
    store.await
}

/// Answers changes that are stored, and tells listeners.
fn answer(signals: &Signals, changes: Vec<QueuedChange>, outcome: GroupOutcome) {
    signals.tell(outcome.wakes, outcome.events);
    let (mut created, mut ended) = (outcome.created.into_iter(), outcome.ended.into_iter());
    for change in changes {
        // The caller may be gone; then the answer is dropped.
        match change {
            QueuedChange::Creation(_, reply) => {
                if let Some(created) = created.next() {
                    let _ = reply.send(created);
                }
            }
            QueuedChange::Ending(_, reply) => {
                if let Some(ended) = ended.next() {
                    let _ = reply.send(Ok(ended));
                }
            }
        }
    }
}

fn refuse(changes: Vec<QueuedChange>, error: &DatabaseError) {
    for change in changes {
        match change {
            QueuedChange::Creation(_, reply) => {
                let _ = reply.send(Err(error.clone().into()));
            }
            QueuedChange::Ending(_, reply) => {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}
