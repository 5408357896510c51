//! A PostgreSQL database: its connections, schema and migrations.
//!
//! The connections belong to a runtime of their own, so that commands, too, can wait for them.
//!
//! Invariant: a change runs as if no other ran meanwhile (isolation level `SERIALIZABLE`); one that PostgreSQL refuses
//! for this reason runs again. The schema is migrated before anything else reads it, by one process at a time.

mod connection;
mod driver;
mod error;
mod statement;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime as PoolRuntime,
};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, IsolationLevel, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::blocking::off_runtime;
use super::sql::SqlConnection;
use super::{DatabaseError, DatabaseResult};
use connection::PostgresSession;
use driver::Driver;
use error::{ErrorPlace, is_conflict};

/// Migrations, in order. The schema's version is the number of migrations that have run.
const MIGRATIONS: [&str; 1] = [include_str!("schema.sql")];
/// Number of the lock that a migrating process holds: the letters `pkgtool`.
const MIGRATION_LOCK: i64 = 0x70_6b67_746f_6f6c;
/// Maximum number of connections of a process.
const MAX_CONNECTIONS: usize = 16;
/// Maximum time to connect, and to wait for a free connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Maximum number of attempts of a change that conflicts with others.
const MAX_ATTEMPTS: u32 = 20;
/// Pause after the first conflict; each further one is longer by as much.
const CONFLICT_PAUSE: Duration = Duration::from_millis(2);

/// A database that is open and migrated.
#[derive(Clone)]
pub(crate) struct Postgres(Arc<OpenPostgres>);

struct OpenPostgres {
    pool: Pool,
    driver: Driver,
}

impl Postgres {
    /// Opens a database, and migrates its schema.
    pub(crate) fn open(url: &str) -> DatabaseResult<Self> {
        let place = ErrorPlace::of(url);
        let other = |reason: String| place.other(reason);
        let mut config: Config = url.parse().map_err(|error| place.error(&error))?;
        config.connect_timeout(CONNECT_TIME);
        if config.get_application_name().is_none() {
            config.application_name("pkgtool");
        }
        let driver = Driver::start(place.clone())?;
        let pool = Pool::builder(manager(config))
            .max_size(MAX_CONNECTIONS)
            .runtime(PoolRuntime::Tokio1)
            .wait_timeout(Some(CONNECT_TIME))
            .create_timeout(Some(CONNECT_TIME))
            .build();
        let pool = pool.map_err(|error| other(error.to_string()))?;
        let database = Self(Arc::new(OpenPostgres { pool, driver }));
        database.0.driver.wait(database.migrate())?;
        Ok(database)
    }

    /// Returns the database's hosts and name, for errors.
    pub(crate) fn place(&self) -> String {
        self.0.driver.place.to_string()
    }

    /// Calls a function with a connection. Each of its statements is a transaction.
    pub(crate) fn run<T: Send>(
        &self,
        call: impl FnOnce(&mut dyn SqlConnection) -> DatabaseResult<T> + Send,
    ) -> DatabaseResult<T> {
        off_runtime(|| {
            let client = self.0.driver.wait(self.client())?;
            call(&mut PostgresSession::new(&self.0.driver, &client))
        })
    }

    /// Calls a function in a transaction, and again if it conflicts with another one.
    pub(crate) fn change<T: Send>(
        &self,
        mut call: impl FnMut(&mut dyn SqlConnection) -> DatabaseResult<T> + Send,
    ) -> DatabaseResult<T> {
        off_runtime(|| {
            let mut client = self.0.driver.wait(self.client())?;
            let mut attempt = 1;
            loop {
                let done = self.attempt(&mut client, &mut call);
                match done {
                    Err(error) if is_conflict(&error) && attempt < MAX_ATTEMPTS => {
                        std::thread::sleep(CONFLICT_PAUSE * attempt);
                        attempt += 1;
                    }
                    done => return done,
                }
            }
        })
    }

    fn attempt<T>(
        &self,
        client: &mut Object,
        call: &mut (impl FnMut(&mut dyn SqlConnection) -> DatabaseResult<T> + Send),
    ) -> DatabaseResult<T> {
        let driver = &self.0.driver;
        let fault = |error: tokio_postgres::Error| driver.place.error(&error);
        let begin = client.build_transaction();
        let begin = begin.isolation_level(IsolationLevel::Serializable);
        let transaction = driver.wait(begin.start()).map_err(fault)?;
        // Dropping the transaction rolls it back.
        let done = call(&mut PostgresSession::new(driver, &transaction))?;
        driver.wait(transaction.commit()).map_err(fault)?;
        Ok(done)
    }

    async fn client(&self) -> DatabaseResult<Object> {
        let client = self.0.pool.get().await;
        client.map_err(|error| self.0.driver.place.pool_error(error))
    }

    /// Brings the schema to the version of this release.
    async fn migrate(&self) -> DatabaseResult<()> {
        let mut client = self.client().await?;
        let fault = |error: tokio_postgres::Error| self.0.driver.place.error(&error);
        let transaction = client.transaction().await.map_err(fault)?;
        // It ends with the transaction, so that it works behind a pooler of transactions, too.
        let lock = format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})");
        transaction.batch_execute(&lock).await.map_err(fault)?;
        let table = "CREATE TABLE IF NOT EXISTS pkgtool_schema (version BIGINT NOT NULL)";
        transaction.batch_execute(table).await.map_err(fault)?;
        let found = transaction
            .query_opt("SELECT version FROM pkgtool_schema", &[])
            .await;
        let found: i64 = found.map_err(fault)?.map_or(0, |row| row.get(0));
        let known = MIGRATIONS.len();
        let Some(missing) = usize::try_from(found)
            .ok()
            .and_then(|found| MIGRATIONS.get(found..))
        else {
            return Err(DatabaseError::TooNew {
                path: self.0.driver.place.to_string(),
                found,
                known: i64::try_from(known).unwrap_or(i64::MAX),
            });
        };
        if missing.is_empty() {
            return Ok(());
        }
        for migration in missing {
            transaction.batch_execute(migration).await.map_err(fault)?;
        }
        let version =
            format!("DELETE FROM pkgtool_schema; INSERT INTO pkgtool_schema VALUES ({known})");
        transaction.batch_execute(&version).await.map_err(fault)?;
        transaction.commit().await.map_err(fault)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.0.driver.place)
    }
}

/// Connects with TLS, unless the URL says `sslmode=disable`.
fn manager(config: Config) -> Manager {
    let recycling = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    if config.get_ssl_mode() == SslMode::Disable {
        return Manager::from_config(config, NoTls, recycling);
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let tls = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Manager::from_config(config, MakeRustlsConnect::new(tls), recycling)
}
