//! The one thread that writes: it takes what waits, applies it in one transaction, commits, answers.
//!
//! Invariant: nothing is answered before its commit. A group that fails is undone as a whole and all
//! of it is told so; then moves run one by one for a while, so that a bad one fails alone. Where another
//! process has the lock, none waits for it longer than seconds.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::loads::Loads;
use super::log::Log;
use super::moves::{Moves, News};
use super::shared::Shared;
use crate::database::DatabaseError;
use crate::database::sqlite::Sqlite;

/// Most moves in one transaction.
const GROUP: usize = 512;

/// Moves that run one by one after a failure.
const CAREFUL: usize = 200;

/// Tries to get the lock that another process has, and the pause between two of them: two seconds in all.
const TRIES: i32 = 400;
const PAUSE: Duration = Duration::from_millis(5);

/// Tries for a group after one that did not get it.
const FEW_TRIES: i32 = 20;

/// A move: applied in the transaction, or not if there is none, it leaves how to answer once that ended.
type Job = Box<dyn FnOnce(Result<&mut Moves<'_>, &DatabaseError>) -> Answer + Send>;

/// Answers a move: with its result, or with the error that undid its group.
type Tell = Box<dyn FnOnce(Option<&DatabaseError>) + Send>;

/// Whether the move is to be undone with its group, and how it is answered.
struct Answer {
    fault: Option<DatabaseError>,
    send: Tell,
}

/// The writing thread.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    path: String,
}

impl Writer {
    /// Starts it, with the counts of what is stored.
    pub(super) fn start(database: &Sqlite, shared: Arc<Shared>) -> Result<Self, DatabaseError> {
        let mut connection = database.connect()?;
        let patience = Arc::new(AtomicI32::new(TRIES));
        let tries = Arc::clone(&patience);
        // SQLite's own way would sleep ever longer, up to a tenth of a second after the lock is free.
        let waits = connection.busy_handler(Some(move |count| {
            thread::sleep(PAUSE);
            count < tries.load(Ordering::Relaxed)
        }));
        let loads = waits.and_then(|()| Loads::read(&connection));
        let loads = loads.map_err(|error| database.error(&error))?;
        let log = Log::of(database, &connection)?;
        let (jobs, receiver) = mpsc::channel();
        let own = database.clone();
        let mut thread = Thread {
            database: own,
            connection,
            loads,
            shared,
            careful: 0,
            patience,
            log,
            is_server: false,
        };
        let path = database.path().display().to_string();
        let spawned = thread::Builder::new()
            .name("tasks".to_owned())
            .spawn(move || thread.run(&receiver));
        let spawned = spawned.map_err(|error| DatabaseError::Other {
            path: path.clone(),
            reason: format!("no thread can be started: {error}"),
        })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Mutex::new(Some(spawned)),
            path,
        })
    }

    /// Has a move made, and waits for its commit.
    pub(super) async fn submit<T, E>(
        &self,
        make: impl FnOnce(&mut Moves<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + AsDatabaseError + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |moves| {
            let result = match moves {
                Ok(moves) => make(moves),
                Err(error) => Err(error.clone().into()),
            };
            let fault = result.as_ref().err().and_then(E::database_error).cloned();
            let send = move |failed: Option<&DatabaseError>| {
                // Who asked may have gone: then nobody misses the answer.
                let _ = reply.send(match failed {
                    Some(error) => Err(error.clone().into()),
                    None => result,
                });
            };
            Answer {
                fault,
                send: Box::new(send),
            }
        });
        let ended = || DatabaseError::Other {
            path: self.path.clone(),
            reason: "the writer has ended".to_owned(),
        };
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(job).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread ends when it has made what waits.
        self.jobs = None;
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A panic there was told when it happened.
            let _ = thread.join();
        }
    }
}

/// Errors that may be one of the database.
pub(super) trait AsDatabaseError {
    /// The error of the database, if it is one.
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

/// Why a group was not made.
enum Fault {
    /// Another process had the lock: none of it was begun.
    Locked(DatabaseError),
    /// All of it was undone.
    Undone(DatabaseError),
}

struct Thread {
    database: Sqlite,
    connection: Connection,
    loads: Loads,
    shared: Arc<Shared>,
    /// Moves still to be made one by one.
    careful: usize,
    /// Tries to get the lock: few after a group that did not get it. Who is behind one that waited in
    /// vain does not wait as long again.
    patience: Arc<AtomicI32>,
    log: Log,
    is_server: bool,
}

impl Thread {
    fn run(&mut self, jobs: &Receiver<Job>) {
        let mut group = Vec::with_capacity(GROUP);
        while let Ok(first) = jobs.recv() {
            group.push(first);
            let size = if self.careful > 0 { 1 } else { GROUP };
            while group.len() < size
                && let Ok(next) = jobs.try_recv()
            {
                group.push(next);
            }
            self.careful = self.careful.saturating_sub(1);
            self.make(group.drain(..));
            self.log.tend(&self.connection);
        }
        self.close();
    }

    /// Writes the log back, if nobody else is in the way. That takes the lock for a while: a command beside
    /// a server leaves it to that.
    fn close(&mut self) {
        self.log.stop();
        if !self.is_server {
            return;
        }
        self.patience.store(0, Ordering::Relaxed);
        let written = self
            .connection
            .pragma_update(None, "wal_checkpoint", "TRUNCATE");
        if let Err(error) = written {
            tracing::debug!(%error, "the write-ahead log stays");
        }
    }

    fn make(&mut self, group: impl ExactSizeIterator<Item = Job>) {
        let mut answers = Vec::with_capacity(group.len());
        let mut failed = None;
        let mut news = News::default();
        match self.apply(group, &mut answers, &mut news) {
            Ok(()) => {}
            // Nothing is bad, and nothing to be counted again.
            Err(Fault::Locked(error)) => {
                tracing::warn!(%error, moves = answers.len(), "moves of tasks were not made");
                failed = Some(error);
            }
            Err(Fault::Undone(error)) => {
                tracing::error!(%error, moves = answers.len(), "moves of tasks were undone");
                failed = Some(error);
                self.careful = CAREFUL;
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
                    // Nobody may listen any more.
                    let _ = self.shared.events.send(event);
                }
            }
        }
        for answer in answers {
            (answer.send)(failed.as_ref());
        }
    }

    /// Makes a group in one transaction. All of it is in `answers` when it returns.
    fn apply(
        &mut self,
        group: impl Iterator<Item = Job>,
        answers: &mut Vec<Answer>,
        news: &mut News,
    ) -> Result<(), Fault> {
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
                    self.patience.store(FEW_TRIES, Ordering::Relaxed);
                    return Err(Fault::Locked(error));
                }
                return Err(Fault::Undone(error));
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
        self.patience.store(TRIES, Ordering::Relaxed);
        if let Some(error) = first_fault {
            // Dropping the transaction undoes it.
            return Err(Fault::Undone(error));
        }
        let committed = transaction.commit();
        committed.map_err(|error| Fault::Undone(fault(&error)))
    }

    /// Counts again what is stored, after something was undone.
    fn reload(&mut self) {
        match Loads::read(&self.connection) {
            Ok(loads) => self.loads = loads,
            Err(error) => tracing::error!(%error, "tasks cannot be counted"),
        }
    }
}
