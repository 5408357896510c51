//! The write-ahead log: written back into the database as it grows, and used from its start again.
//!
//! Invariant: the writer writes back itself as long as that is quick. A reader that stays for long, such as
//! a backup, lets the log grow; what is left then is written back by a thread of its own, so that no
//! request waits for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::database::DatabaseError;
use crate::database::sqlite::Sqlite;

/// Pages of the log after which the writer writes it back.
const PAGES: i64 = 4000;

/// A log of more bytes is written back by a thread of its own.
const LONG: u64 = 64 << 20;

/// What a log is cut to when it is used from its start again, in bytes.
const KEPT: i64 = 32 << 20;

/// How often the log's length is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long the thread waits for a reader to go.
const WAIT: Duration = Duration::from_millis(50);

/// The log of the writer's database.
#[derive(Debug)]
pub(super) struct Log {
    database: Sqlite,
    file: PathBuf,
    looked: Instant,
    helper: Option<Helper>,
}

/// The thread that writes a long log back.
#[derive(Debug)]
struct Helper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Log {
    /// The log of a database, written back on this connection.
    pub(super) fn of(database: &Sqlite, connection: &Connection) -> Result<Self, DatabaseError> {
        let set = || {
            connection.pragma_update(None, "wal_autocheckpoint", PAGES)?;
            connection.pragma_update(None, "journal_size_limit", KEPT)
        };
        set().map_err(|error| database.error(&error))?;
        let mut file = database.path().to_owned().into_os_string();
        file.push("-wal");
        Ok(Self {
            database: database.clone(),
            file: file.into(),
            looked: Instant::now(),
            helper: None,
        })
    }

    /// Gives a log that has become long to a thread, and takes it back when it is short.
    pub(super) fn tend(&mut self, connection: &Connection) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        if let Some(helper) = &self.helper {
            if helper.thread.is_finished() {
                self.stop();
                set_pages(connection, PAGES);
            }
        } else if std::fs::metadata(&self.file).is_ok_and(|found| found.len() > LONG) {
            self.helper = Helper::start(&self.database);
            if self.helper.is_some() {
                set_pages(connection, 0);
            }
        }
    }

    /// Ends the thread, if there is one.
    pub(super) fn stop(&mut self) {
        if let Some(helper) = self.helper.take() {
            helper.stop.store(true, Ordering::Relaxed);
            // A panic there was told when it happened.
            let _ = helper.thread.join();
        }
    }
}

impl Helper {
    fn start(database: &Sqlite) -> Option<Self> {
        let connection = match database.connect() {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "the write-ahead log grows");
                return None;
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                if let Err(error) = write_back(&connection, &stopped) {
                    tracing::warn!(%error, "the write-ahead log is not written back yet");
                }
            });
        let thread = thread.ok()?;
        Some(Self { stop, thread })
    }
}

/// Writes back until little is left, which the writer then does itself.
fn write_back(connection: &Connection, stop: &AtomicBool) -> Result<(), rusqlite::Error> {
    let mut before = 0;
    while !stop.load(Ordering::Relaxed) {
        let (length, written): (i64, i64) =
            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                Ok((row.get(1)?, row.get(2)?))
            })?;
        // Less than before: it was used from its start again.
        let new = written.checked_sub(before).filter(|new| *new >= 0);
        before = written;
        if length == written && new.is_none_or(|new| new < PAGES) {
            return Ok(());
        }
        if length != written {
            // A reader still needs what is in the log.
            thread::sleep(WAIT);
        }
    }
    Ok(())
}

fn set_pages(connection: &Connection, pages: i64) {
    if let Err(error) = connection.pragma_update(None, "wal_autocheckpoint", pages) {
        tracing::warn!(%error, "the write-ahead log cannot be set");
    }
}
