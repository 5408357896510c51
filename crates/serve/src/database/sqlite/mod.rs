//! An SQLite database: its file, connections, schema and migrations.
//!
//! The module knows nothing of the meaning of the tables.
//!
//! Invariant: every connection has the same settings (write-ahead log, full synchronisation,
//! foreign keys, busy timeout). The schema is migrated before anything else reads it.

mod connections;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

pub(crate) use connections::DatabaseConnections;

use super::directory::own_directory;
use super::{DatabaseError, DatabaseResult, DatabaseSize};

/// Migrations, in order. The schema's version is the number of migrations that have run.
const MIGRATIONS: [&str; 10] = [
    include_str!("schema.sql"),
    include_str!("records.sql"),
    include_str!("media_type.sql"),
    include_str!("usage.sql"),
    include_str!("training.sql"),
    include_str!("cpu.sql"),
    include_str!("login.sql"),
    include_str!("batch.sql"),
    include_str!("webhook.sql"),
    include_str!("worker.sql"),
];

/// Busy timeout: how long a connection waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of prepared statements that a connection caches.
const MAX_CACHED_STATEMENTS: usize = 64;

/// A database that is open and migrated.
#[derive(Debug, Clone)]
pub(crate) struct Sqlite {
    path: PathBuf,
    /// The first damage that was detected.
    damage: Arc<OnceLock<String>>,
}

impl Sqlite {
    /// Opens the database in a file; creates the file and its directory if necessary.
    pub(crate) fn open(file: &Path) -> DatabaseResult<Self> {
        if let Some(directory) = file.parent().filter(|it| !it.as_os_str().is_empty()) {
            own_directory(directory)?;
        }
        let database = Self {
            path: file.to_owned(),
            damage: Arc::default(),
        };
        let mut connection = database.connect()?;
        database.migrate(&mut connection)?;
        Ok(database)
    }

    /// Returns its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a connection that reads and writes.
    pub(crate) fn connect(&self) -> DatabaseResult<Connection> {
        let open = || {
            let connection = Connection::open(&self.path)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
            connection.pragma_update(None, "journal_mode", "WAL")?;
            // Acknowledged data must survive a power failure, not only a crash of the process.
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", true)?;
            Ok(connection)
        };
        open().map_err(|error| self.error(&error))
    }

    /// Opens a read-only connection.
    pub(crate) fn connect_to_read(&self) -> DatabaseResult<Connection> {
        let open = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
            Ok(connection)
        };
        open().map_err(|error| self.error(&error))
    }

    /// Copies a consistent, compact snapshot of the database into a new file. Other connections can
    /// read and write meanwhile; their writes stay in the log until then.
    pub(crate) fn copy(&self, file: &Path) -> DatabaseResult<()> {
        let into = Self {
            path: file.to_owned(),
            damage: Arc::default(),
        };
        let Some(name) = file.to_str() else {
            return Err(DatabaseError::Other {
                path: file.display().to_string(),
                reason: "the path is invalid UTF-8; choose another".to_owned(),
            });
        };
        let connection = self.connect_to_read()?;
        let copied = connection.execute("VACUUM INTO ?1", [name]);
        copied.map(drop).map_err(|error| match into.error(&error) {
            // Read errors concern this database, write errors the copy.
            DatabaseError::Corrupt { reason, .. } => self.damaged(reason),
            other => other,
        })
    }

    /// Returns its disk usage.
    pub(crate) fn space(&self) -> DatabaseResult<DatabaseSize> {
        let connection = self.connect_to_read()?;
        let pragma = |name| {
            let number = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            number.map(|number| u64::try_from(number).unwrap_or(0))
        };
        let read = || Ok((pragma("freelist_count")?, pragma("page_size")?));
        let (free, size) = read().map_err(|error: rusqlite::Error| self.error(&error))?;
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        Ok(DatabaseSize {
            bytes: length(&self.path) + length(Path::new(&log)),
            reusable: free.saturating_mul(size),
        })
    }

    /// Converts an error of SQLite.
    pub(crate) fn error(&self, error: &rusqlite::Error) -> DatabaseError {
        let path = self.path.display().to_string();
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => DatabaseError::Full { path },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                DatabaseError::ReadOnly { path, reason }
            }
            Some(ErrorCode::DatabaseBusy) => DatabaseError::Busy { path },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => self.damaged(reason),
            _ => DatabaseError::Other { path, reason },
        }
    }

    /// Returns the damage that was detected since the database was opened.
    pub(crate) fn damage(&self) -> Option<DatabaseError> {
        let reason = self.damage.get()?.clone();
        let path = self.path.display().to_string();
        Some(DatabaseError::Corrupt { path, reason })
    }

    /// Reads the whole database and checks its internal consistency.
    pub(crate) fn check(&self) -> DatabaseResult<()> {
        let connection = self.connect_to_read()?;
        let said = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
        let said: String = said.map_err(|error| self.error(&error))?;
        if said == "ok" {
            return Ok(());
        }
        Err(self.damaged(said))
    }

    fn damaged(&self, reason: String) -> DatabaseError {
        // Another thread may have been first.
        let _ = self.damage.set(reason.clone());
        let path = self.path.display().to_string();
        DatabaseError::Corrupt { path, reason }
    }

    fn migrate(&self, connection: &mut Connection) -> DatabaseResult<()> {
        let latest = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        let version = |connection: &Connection| -> rusqlite::Result<i64> {
            connection.query_row("PRAGMA user_version", [], |row| row.get(0))
        };
        // An up-to-date schema needs no write lock.
        if version(connection).map_err(|error| self.error(&error))? == latest {
            return Ok(());
        }
        let mut run = || -> rusqlite::Result<Option<i64>> {
            // Two processes may start at once: the version is read again inside the transaction.
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let found = version(&change)?;
            let Some(missing) = usize::try_from(found)
                .ok()
                .and_then(|found| MIGRATIONS.get(found..))
            else {
                return Ok(Some(found));
            };
            if missing.is_empty() {
                return Ok(None);
            }
            for migration in missing {
                change.execute_batch(migration)?;
            }
            change.pragma_update(None, "user_version", latest)?;
            change.commit()?;
            Ok(None)
        };
        match run().map_err(|error| self.error(&error))? {
            None => Ok(()),
            Some(found) => Err(DatabaseError::TooNew {
                path: self.path.display().to_string(),
                found,
                known: latest,
            }),
        }
    }
}
