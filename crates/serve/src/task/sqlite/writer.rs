//! The single writer thread: it collects pending moves (write operations), applies them in one
//! transaction, commits and answers.
//!
//! Invariant: a move is answered only after its commit. A failed group is rolled back as a whole,
//! and all its moves are answered with the error. Moves then run one by one for a while, so that a
//! bad one fails alone. If another process holds the database lock, a move waits at most a few
//! seconds.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::loads::Loads;
use super::log::WriteAheadLog;
use super::moves::{Moves, News};
use super::shared::SharedWriter;
use crate::database::sqlite::Sqlite;
use crate::database::{DatabaseError, DatabaseResult};

/// Maximum number of moves in one transaction.
const MAX_GROUP_MOVES: usize = 512;

/// Number of moves that run one by one after a failure.
const SINGLE_MOVES_AFTER_FAILURE: usize = 200;

/// Attempts to get the database lock from another process, and the pause between two of them: two
/// seconds in all.
const LOCK_ATTEMPTS: i32 = 400;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Attempts for a group that follows one that did not get the lock.
const LOCK_ATTEMPTS_AFTER_TIMEOUT: i32 = 20;

/// A queued move. It is called with the transaction, or with the error that prevented one, and
/// returns its pending answer.
type QueuedMove = Box<dyn FnOnce(Result<&mut Moves<'_>, &DatabaseError>) -> PendingAnswer + Send>;

/// Sends the answer of a move: its own result, or the error that rolled back its group.
type SendAnswer = Box<dyn FnOnce(Option<&DatabaseError>) + Send>;

/// Pending answer of a move. A `fault` rolls back its group.
struct PendingAnswer {
    fault: Option<DatabaseError>,
    send: SendAnswer,
}

/// Handle of the writer thread.
#[derive(Debug)]
pub(super) struct TaskWriter {
    jobs: Option<Sender<QueuedMove>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    path: String,
}

impl TaskWriter {
    /// Starts the thread and loads the counts from the database.
    pub(super) fn start(database: &Sqlite, shared: Arc<SharedWriter>) -> DatabaseResult<Self> {
        let mut connection = database.connect()?;
        let patience = Arc::new(AtomicI32::new(LOCK_ATTEMPTS));
        let tries = Arc::clone(&patience);
        // SQLite's own backoff grows: it may sleep a tenth of a second after the lock is free.
        let waits = connection.busy_handler(Some(move |count| {
            thread::sleep(LOCK_RETRY_PAUSE);
            count < tries.load(Ordering::Relaxed)
        }));
        let loads = waits.and_then(|()| Loads::read(&connection));
        let loads = loads.map_err(|error| database.error(&error))?;
        let log = WriteAheadLog::of(database, &connection)?;
        let (jobs, receiver) = mpsc::channel();
        let own = database.clone();
        let mut thread = WriterThread {
            database: own,
            connection,
            loads,
            shared,
            single_moves_left: 0,
            lock_attempts: patience,
            log,
            is_server: false,
        };
        let path = database.path().display().to_string();
        let spawned = thread::Builder::new()
            .name("tasks".to_owned())
            .spawn(move || thread.run(&receiver));
        let spawned = spawned.map_err(|error| DatabaseError::Other {
            path: path.clone(),
            reason: format!("cannot start a thread: {error}"),
        })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Mutex::new(Some(spawned)),
            path,
        })
    }

    /// Submits a move and waits for its commit.
    pub(super) async fn submit<T, E>(
        &self,
        make: impl FnOnce(&mut Moves<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + AsDatabaseError + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: QueuedMove = Box::new(move |moves| {
            let result = match moves {
                Ok(moves) => make(moves),
                Err(error) => Err(error.clone().into()),
            };
            let fault = result.as_ref().err().and_then(E::database_error).cloned();
            let send = move |failed: Option<&DatabaseError>| {
                // The caller may be gone; then the answer is dropped.
                let _ = reply.send(match failed {
                    Some(error) => Err(error.clone().into()),
                    None => result,
                });
            };
            PendingAnswer {
                fault,
                send: Box::new(send),
            }
        });
        let ended = || DatabaseError::Other {
            path: self.path.clone(),
            reason: "the writer thread has ended".to_owned(),
        };
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(job).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

impl Drop for TaskWriter {
    fn drop(&mut self) {
        // The thread ends after the queued moves.
        self.jobs = None;
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

/// Errors that may wrap a database error.
pub(super) trait AsDatabaseError {
    /// Returns the wrapped database error, if any.
    fn database_error(&self) -> Option<&DatabaseError>;
}

impl AsDatabaseError for DatabaseError {
    fn database_error(&self) -> Option<&DatabaseError> {
        Some(self)
    }
}

impl AsDatabaseError for crate::task::EnqueueError {
    fn database_error(&self) -> Option<&DatabaseError> {
        match self {
            Self::Database(error) => Some(error),
            _ => None,
        }
    }
}

/// Reasons for a failed group.
enum GroupError {
    /// Another process held the lock: no move was started.
    Locked(DatabaseError),
    /// All moves were rolled back.
    Undone(DatabaseError),
}

struct WriterThread {
    database: Sqlite,
    connection: Connection,
    loads: Loads,
    shared: Arc<SharedWriter>,
    /// Number of moves still to run one by one.
    single_moves_left: usize,
    /// Attempts to get the lock. After a group that did not get it, the next group tries only a few
    /// times.
    lock_attempts: Arc<AtomicI32>,
    log: WriteAheadLog,
    is_server: bool,
}

impl WriterThread {
    fn run(&mut self, jobs: &Receiver<QueuedMove>) {
        let mut group = Vec::with_capacity(MAX_GROUP_MOVES);
        while let Ok(first) = jobs.recv() {
            group.push(first);
            let size = if self.single_moves_left > 0 {
                1
            } else {
                MAX_GROUP_MOVES
            };
            while group.len() < size
                && let Ok(next) = jobs.try_recv()
            {
                group.push(next);
            }
            self.single_moves_left = self.single_moves_left.saturating_sub(1);
            self.make(group.drain(..));
            self.log.maintain(&self.connection);
        }
        self.close();
    }

    /// Checkpoints the log, unless another connection prevents it. A checkpoint takes the lock for
    /// a while, so a command that runs beside a server leaves it to the server.
    fn close(&mut self) {
        self.log.stop();
        if !self.is_server {
            return;
        }
        self.lock_attempts.store(0, Ordering::Relaxed);
        let written = self
            .connection
            .pragma_update(None, "wal_checkpoint", "TRUNCATE");
        if let Err(error) = written {
            tracing::debug!(%error, "final checkpoint of the write-ahead log failed");
        }
    }

    fn make(&mut self, group: impl ExactSizeIterator<Item = QueuedMove>) {
        let mut answers = Vec::with_capacity(group.len());
        let mut failed = None;
        let mut news = News::default();
        let began = Instant::now();
        match self.apply(group, &mut answers, &mut news) {
            Ok(()) => self.shared.times.commits.time(began.elapsed()),
            // The counts are still valid.
            Err(GroupError::Locked(error)) => {
                tracing::warn!(%error, moves = answers.len(), "task writes failed: the database is locked");
                failed = Some(error);
            }
            Err(GroupError::Undone(error)) => {
                tracing::error!(%error, moves = answers.len(), "task writes were rolled back");
                failed = Some(error);
                self.single_moves_left = SINGLE_MOVES_AFTER_FAILURE;
                self.reload();
            }
        }
        if failed.is_none() {
            self.is_server |= news.is_server;
            if news.wake {
                self.shared
                    .wakeups
                    .send_modify(|count| *count = count.wrapping_add(1));
            }
            if self.shared.events.receiver_count() > 0 {
                for event in news.events {
                    // Nobody may be listening any more.
                    let _ = self.shared.events.send(event);
                }
            }
        }
        for answer in answers {
            (answer.send)(failed.as_ref());
        }
    }

    /// Applies a group in one transaction. `answers` holds an answer for every move when it
    /// returns.
    fn apply(
        &mut self,
        group: impl Iterator<Item = QueuedMove>,
        answers: &mut Vec<PendingAnswer>,
        news: &mut News,
    ) -> Result<(), GroupError> {
        let fault = |error: &rusqlite::Error| self.database.error(error);
        let begun = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = match begun {
            Ok(transaction) => transaction,
            Err(error) => {
                let error = fault(&error);
                answers.extend(group.map(|job| job(Err(&error))));
                if matches!(error, DatabaseError::Busy { .. }) {
                    self.lock_attempts
                        .store(LOCK_ATTEMPTS_AFTER_TIMEOUT, Ordering::Relaxed);
                    return Err(GroupError::Locked(error));
                }
                return Err(GroupError::Undone(error));
            }
        };
        let mut first_fault = None;
        let mut moves = Moves {
            database: &self.database,
            connection: &transaction,
            loads: &mut self.loads,
            shared: &self.shared,
            news,
        };
        for job in group {
            let answer = job(Ok(&mut moves));
            if first_fault.is_none() {
                first_fault.clone_from(&answer.fault);
            }
            answers.push(answer);
        }
        self.lock_attempts.store(LOCK_ATTEMPTS, Ordering::Relaxed);
        if let Some(error) = first_fault {
            // Dropping the transaction rolls it back.
            return Err(GroupError::Undone(error));
        }
        let committed = transaction.commit();
        committed.map_err(|error| GroupError::Undone(fault(&error)))
    }

    /// Reloads the counts from the database after a rollback.
    fn reload(&mut self) {
        match Loads::read(&self.connection) {
            Ok(loads) => self.loads = loads,
            Err(error) => tracing::error!(%error, "cannot reload task counts"),
        }
    }
}
