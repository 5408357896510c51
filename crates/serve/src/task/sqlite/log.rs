//! Checkpoints of SQLite's write-ahead log: copies the log back into the database as it grows, so
//! that its file is reused.
//!
//! Invariant: the writer checkpoints as long as that is quick. A long reader, such as a backup,
//! lets the log grow. A separate thread then checkpoints the long log, so that no request waits for
//! it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::database::DatabaseResult;
use crate::database::sqlite::Sqlite;

/// Number of log pages after which the writer checkpoints.
const CHECKPOINT_PAGES: i64 = 4000;

/// Log size above which a separate thread checkpoints, in bytes.
const LONG_LOG_BYTES: u64 = 64 << 20;

/// Size to which a reused log is truncated, in bytes.
const KEPT_LOG_BYTES: i64 = 32 << 20;

/// Interval between checks of the log's size.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Pause of the thread while a reader still needs the log.
const READER_PAUSE: Duration = Duration::from_millis(50);

/// The write-ahead log of the writer's database.
#[derive(Debug)]
pub(super) struct WriteAheadLog {
    database: Sqlite,
    file: PathBuf,
    checked_at: Instant,
    helper: Option<CheckpointThread>,
}

/// The thread that checkpoints a long log.
#[derive(Debug)]
struct CheckpointThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl WriteAheadLog {
    /// Configures checkpoints on the writer's connection.
    pub(super) fn of(database: &Sqlite, connection: &Connection) -> DatabaseResult<Self> {
        let set = || {
            connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
            connection.pragma_update(None, "journal_size_limit", KEPT_LOG_BYTES)
        };
        set().map_err(|error| database.error(&error))?;
        let mut file = database.path().to_owned().into_os_string();
        file.push("-wal");
        Ok(Self {
            database: database.clone(),
            file: file.into(),
            checked_at: Instant::now(),
            helper: None,
        })
    }

    /// Hands a long log to the thread, and returns to automatic checkpoints when the log is short.
    pub(super) fn maintain(&mut self, connection: &Connection) {
        if self.checked_at.elapsed() < CHECK_INTERVAL {
            return;
        }
        self.checked_at = Instant::now();
        if let Some(helper) = &self.helper {
            if helper.thread.is_finished() {
                self.stop();
                set_pages(connection, CHECKPOINT_PAGES);
            }
        } else if std::fs::metadata(&self.file).is_ok_and(|found| found.len() > LONG_LOG_BYTES) {
            self.helper = CheckpointThread::start(&self.database);
            if self.helper.is_some() {
                set_pages(connection, 0);
            }
        }
    }

    /// Stops the thread, if it is running.
    pub(super) fn stop(&mut self) {
        if let Some(helper) = self.helper.take() {
            helper.stop.store(true, Ordering::Relaxed);
            // A panic of the thread was already reported.
            let _ = helper.thread.join();
        }
    }
}

impl CheckpointThread {
    fn start(database: &Sqlite) -> Option<Self> {
        let connection = match database.connect() {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "the write-ahead log cannot be checkpointed");
                return None;
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                if let Err(error) = write_back(&connection, &stopped) {
                    tracing::warn!(%error, "checkpoint of the write-ahead log failed");
                }
            });
        let thread = thread.ok()?;
        Some(Self { stop, thread })
    }
}

/// Checkpoints until little is left, which the writer then handles itself.
fn write_back(connection: &Connection, stop: &AtomicBool) -> rusqlite::Result<()> {
    let mut before = 0;
    while !stop.load(Ordering::Relaxed) {
        let (length, written): (i64, i64) =
            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                Ok((row.get(1)?, row.get(2)?))
            })?;
        // A smaller number than before means that the log restarted from its beginning.
        let new = written.checked_sub(before).filter(|new| *new >= 0);
        before = written;
        if length == written && new.is_none_or(|new| new < CHECKPOINT_PAGES) {
            return Ok(());
        }
        if length != written {
            // A reader still needs the log.
            thread::sleep(READER_PAUSE);
        }
    }
    Ok(())
}

fn set_pages(connection: &Connection, pages: i64) {
    if let Err(error) = connection.pragma_update(None, "wal_autocheckpoint", pages) {
        tracing::warn!(%error, "cannot configure checkpoints of the write-ahead log");
    }
}
