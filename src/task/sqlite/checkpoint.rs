//! Writes the write-ahead log back into the database, beside the writer: in a large database that takes
//! a tenth of a second, for which no task waits.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::database::{Database, DatabaseError};

/// How often it looks. With nothing to do a look costs microseconds.
const INTERVAL: Duration = Duration::from_millis(500);

/// A thread that writes the log back.
#[derive(Debug)]
pub(super) struct Checkpoints {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Starts it.
    pub(super) fn start(database: &Database) -> Result<Self, DatabaseError> {
        let connection = database.connect()?;
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            let mut told = false;
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // Passive: it waits for nobody, and nobody for it.
                let row = |_: &rusqlite::Row<'_>| Ok(());
                match connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], row) {
                    Ok(()) => told = false,
                    Err(error) if !told => {
                        tracing::error!(%error, "the write-ahead log cannot be written back");
                        told = true;
                    }
                    Err(_) => {}
                }
            }
        };
        let spawned = thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(work);
        let thread = spawned.map_err(|error| DatabaseError::Other {
            path: database.path().display().to_string(),
            reason: format!("no thread can be started: {error}"),
        })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told when it happened.
            let _ = thread.join();
        }
    }
}
