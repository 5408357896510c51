//! Errors of PostgreSQL.

use std::fmt;
use std::time::Duration;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::database::DatabaseError;
use crate::database::url::without_password;

/// The beginnings of the client's messages about a connection that failed. It has no codes for them.
const CONNECTION_FAULTS: [&str; 4] = [
    "error connecting to server",
    "error communicating with the server",
    "connection closed",
    "timeout waiting for server",
];

/// The remedy for a server that only reads.
const FIND_PRIMARY: &str = "connect to the primary server: a URL of several hosts finds it with target_session_attrs=read-write";

/// The remedy for a pooler that mixes up the prepared statements of its clients.
const KEEP_STATEMENTS: &str = "a pooler of transactions that keeps no prepared statements is in between: use PgBouncer 1.21 \
     or later with max_prepared_statements, or pool_mode = session, or connect to the database itself";

/// The database that errors name: its hosts and its name, without a password.
#[derive(Debug, Clone)]
pub(super) struct ErrorPlace(String);

impl ErrorPlace {
    /// Reads the place from a URL.
    pub(super) fn of(url: &str) -> Self {
        Self(without_password(url))
    }

    pub(super) fn other(&self, reason: String) -> DatabaseError {
        DatabaseError::Other {
            path: self.to_string(),
            reason,
        }
    }

    /// Converts an error of the pool.
    pub(super) fn pool_error(&self, error: PoolError) -> DatabaseError {
        match error {
            PoolError::Backend(error) => self.error(&error),
            other => self.away(other.to_string()),
        }
    }

    /// Converts an error of the database.
    pub(super) fn error(&self, error: &tokio_postgres::Error) -> DatabaseError {
        let path = self.to_string();
        let Some(said) = error.as_db_error() else {
            let reason = pkgtool_base::causes::with_causes(error);
            return if CONNECTION_FAULTS
                .iter()
                .any(|fault| reason.starts_with(fault))
            {
                self.away(reason)
            } else {
                self.other(reason)
            };
        };
        let reason = match remedy(said.code()) {
            Some(remedy) => format!("{}; {remedy}", said.message()),
            None => said.message().to_owned(),
        };
        match said.code() {
            code if *code == SqlState::DISK_FULL => DatabaseError::Full { path },
            code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
                DatabaseError::ReadOnly { path, reason }
            }
            code if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) => {
                DatabaseError::Corrupt { path, reason }
            }
            code if [
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
            ]
            .contains(code) =>
            {
                DatabaseError::Busy { path }
            }
            code if [
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::CANNOT_CONNECT_NOW,
                SqlState::TOO_MANY_CONNECTIONS,
            ]
            .contains(code) =>
            {
                self.away(reason)
            }
            _ => DatabaseError::Other { path, reason },
        }
    }

    /// Reports that no answer came within a time.
    pub(super) fn no_answer(&self, time: Duration) -> DatabaseError {
        self.away(format!("no answer within {time:?}"))
    }

    fn away(&self, reason: String) -> DatabaseError {
        DatabaseError::Away {
            path: self.to_string(),
            reason,
        }
    }
}

impl fmt::Display for ErrorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns what an operator can do about an error.
fn remedy(code: &SqlState) -> Option<&'static str> {
    match code {
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Some(FIND_PRIMARY),
        code if [
            SqlState::DUPLICATE_PSTATEMENT,
            SqlState::INVALID_SQL_STATEMENT_NAME,
        ]
        .contains(code) =>
        {
            Some(KEEP_STATEMENTS)
        }
        code if [
            SqlState::INVALID_PASSWORD,
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        ]
        .contains(code) =>
        {
            Some("correct the user and the password in the URL of the database")
        }
        code if *code == SqlState::INVALID_CATALOG_NAME => {
            Some("create it with createdb, or correct its name in the URL")
        }
        _ => None,
    }
}

/// Returns whether a change may succeed if it runs again at once.
pub(super) fn is_conflict(error: &DatabaseError) -> bool {
    matches!(error, DatabaseError::Busy { .. })
}
