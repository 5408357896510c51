//! A PostgreSQL database: its connections, schema and migrations.
//!
//! The connections belong to a runtime of their own, so that commands, too, can wait for them.
//!
//! Invariant: a change runs as if no other ran meanwhile (isolation level `SERIALIZABLE`); one that PostgreSQL refuses
//! for this reason runs again. The schema is migrated before anything else reads it, by one process at a time.

mod connection;
mod driver;
mod error;
mod listen;
mod node;
mod pooler;
mod room;
mod statement;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod,
    Runtime as PoolRuntime, Transaction,
};
use futures_util::future::BoxFuture;
use rustls::{ClientConfig, RootCertStore};
use tokio::task::AbortHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, IsolationLevel, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::blocking::off_runtime;
use super::sql::{SqlConnection, SqlRow};
use super::{DatabaseError, DatabaseResult, DatabaseSize};
pub(crate) use listen::Listener;
pub use node::NodeOptions;
pub(crate) use node::ServerNode;

use connection::PostgresSession;
use driver::Driver;
use error::{ErrorPlace, is_conflict};
use room::DiskRoom;

/// Migrations, in order. The schema's version is the number of migrations that have run.
const MIGRATIONS: [&str; 3] = [
    include_str!("schema.sql"),
    include_str!("task.sql"),
    include_str!("package.sql"),
];
/// Migrations that releases of an older schema can run beside: all after this one.
const OLDEST_COMPATIBLE: usize = 2;
/// Number of the lock that a migrating process holds: the letters `pkgtool`.
const MIGRATION_LOCK: i64 = 0x70_6b67_746f_6f6c;
/// Maximum number of connections of a process.
const MAX_CONNECTIONS: usize = 16;
/// Maximum time to connect, and to wait for a free connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Maximum time of a piece of work with a connection.
const MAX_WORK_TIME: Duration = Duration::from_secs(15);
/// Maximum time between two statements of a transaction.
const MAX_IDLE_TIME: Duration = Duration::from_secs(8);
/// Maximum number of attempts of a change that conflicts with others.
const MAX_ATTEMPTS: u32 = 20;
/// Pause after the first conflict; each further one is longer by as much.
const CONFLICT_PAUSE: Duration = Duration::from_millis(2);

/// A database that is open and migrated.
#[derive(Clone)]
pub(crate) struct Postgres(Arc<OpenPostgres>);

struct OpenPostgres {
    config: Config,
    pool: Pool,
    driver: Driver,
    node: ServerNode,
    room: DiskRoom,
}

/// Work in the background, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct BackgroundWork(AbortHandle);

impl Drop for BackgroundWork {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Postgres {
    /// Opens a database, and migrates its schema.
    pub(crate) fn open(url: &str, node: NodeOptions) -> DatabaseResult<Self> {
        let place = ErrorPlace::of(url);
        let other = |reason: String| place.other(reason);
        let mut config: Config = url.parse().map_err(|error| place.error(&error))?;
        config
            .connect_timeout(CONNECT_TIME)
            .keepalives_idle(MAX_WORK_TIME)
            .tcp_user_timeout(MAX_WORK_TIME);
        if config.get_application_name().is_none() {
            config.application_name("pkgtool");
        }
        let driver = Driver::start(place.clone())?;
        let begin = Hook::async_fn(|client: &mut ClientWrapper, _| {
            Box::pin(async {
                let bounded = client.batch_execute(&bounded_session()).await;
                bounded.map_err(HookError::Backend)
            })
        });
        let pool = Pool::builder(manager(config.clone()))
            .post_create(begin)
            .max_size(MAX_CONNECTIONS)
            .runtime(PoolRuntime::Tokio1)
            .wait_timeout(Some(CONNECT_TIME))
            .create_timeout(Some(CONNECT_TIME))
            .build();
        let pool = pool.map_err(|error| other(error.to_string()))?;
        let database = Self(Arc::new(OpenPostgres {
            config,
            pool,
            driver,
            node: ServerNode::new(node),
            room: DiskRoom::default(),
        }));
        let opened = async {
            if !database.node().name().is_empty() {
                pooler::check(&database).await?;
            }
            database.migrate().await?;
            let client = database.connection().await?;
            let read = node::read_clock(&client).await;
            read.map_err(|error| database.0.driver.place.error(&error))
        };
        database.0.driver.wait(opened)?;
        Ok(database)
    }

    /// Returns the database's hosts and name, for errors.
    pub(crate) fn place(&self) -> String {
        self.0.driver.place.to_string()
    }

    /// Returns its disk usage. The space that is free for reuse is not known.
    pub(crate) fn space(&self) -> DatabaseResult<DatabaseSize> {
        self.run(|connection| {
            let read = |row: &SqlRow| row.get(0);
            let sql = "SELECT pg_database_size(current_database())";
            let bytes: i64 = connection.only_row(sql, &[], read)?;
            Ok(DatabaseSize {
                bytes: u64::try_from(bytes).unwrap_or(0),
                reusable: 0,
            })
        })
    }

    /// Returns this server among those that share the database.
    pub(crate) fn node(&self) -> &ServerNode {
        &self.0.node
    }

    /// Calls a function with a connection, on the runtime of the connections, and again if it conflicts with another
    /// one. It goes on even if the caller leaves.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        call: impl for<'c> Fn(&'c mut Object) -> BoxFuture<'c, Result<T, tokio_postgres::Error>>
        + Send
        + Sync
        + 'static,
    ) -> DatabaseResult<T> {
        let own = self.clone();
        let done = self.0.driver.spawn(async move {
            let mut attempt = 1;
            loop {
                match own.attempt_with(&call).await {
                    Err(error) if is_conflict(&error) && attempt < MAX_ATTEMPTS => {
                        tokio::time::sleep(CONFLICT_PAUSE * attempt).await;
                        attempt += 1;
                    }
                    done => return done,
                }
            }
        });
        let done = done.await;
        done.map_err(|error| self.0.driver.place.other(error.to_string()))?
    }

    /// Calls a function in a transaction whose statements see what was committed before each of them. Otherwise like
    /// [`Self::with`].
    pub(crate) async fn transact<T: Send + 'static>(
        &self,
        change: impl for<'t> Fn(&'t Transaction<'t>) -> BoxFuture<'t, Result<T, tokio_postgres::Error>>
        + Clone
        + Send
        + Sync
        + 'static,
    ) -> DatabaseResult<T> {
        self.with(move |client| {
            let change = change.clone();
            Box::pin(async move {
                let begin = client.build_transaction();
                let begin = begin.isolation_level(IsolationLevel::ReadCommitted);
                let transaction = begin.start().await?;
                let done = change(&transaction).await?;
                transaction.commit().await?;
                Ok(done)
            })
        })
        .await
    }

    async fn attempt_with<T>(
        &self,
        call: &impl for<'c> Fn(&'c mut Object) -> BoxFuture<'c, Result<T, tokio_postgres::Error>>,
    ) -> DatabaseResult<T> {
        let mut client = self.connection().await?;
        let place = &self.0.driver.place;
        let Ok(done) = tokio::time::timeout(MAX_WORK_TIME, call(&mut client)).await else {
            // The answer to this call may still arrive, so no other call may use the connection.
            drop(Object::take(client));
            return Err(place.no_answer(MAX_WORK_TIME));
        };
        self.0.room.learn(done.map_err(|error| place.error(&error)))
    }

    /// Checks that changes can be stored, and that the schema is one that this release can use.
    pub(crate) async fn health(&self) -> DatabaseResult<()> {
        let probes_room = self.0.room.is_full();
        let found = self.transact(move |transaction| {
            Box::pin(async move {
                let sql = "UPDATE pkgtool_schema SET version = version RETURNING version, oldest";
                let versions = transaction.query_one(sql, &[]).await?;
                if probes_room {
                    room::probe(transaction).await?;
                }
                Ok((versions.try_get(0)?, versions.try_get(1)?))
            })
        });
        let found = found.await?;
        if probes_room {
            self.0.room.was_found();
        }
        self.check_schema(found)
    }

    /// Returns an error if a schema, by its version and the oldest release that can use it, is too new.
    fn check_schema(&self, (found, oldest): (i64, i64)) -> DatabaseResult<()> {
        let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        if oldest <= known {
            return Ok(());
        }
        Err(DatabaseError::TooNew {
            path: self.place(),
            found,
            known,
        })
    }

    /// Runs work on the runtime of the connections until it ends or the handle is dropped.
    pub(crate) fn in_background(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> BackgroundWork {
        BackgroundWork(self.0.driver.spawn(work).abort_handle())
    }

    /// Returns a free connection. Must be called on the runtime of the connections.
    async fn connection(&self) -> DatabaseResult<Object> {
        let client = self.0.pool.get().await;
        client.map_err(|error| self.0.driver.place.pool_error(error))
    }

    /// Calls a function with a connection. Each of its statements is a transaction.
    pub(crate) fn run<T: Send>(
        &self,
        call: impl FnOnce(&mut dyn SqlConnection) -> DatabaseResult<T> + Send,
    ) -> DatabaseResult<T> {
        off_runtime(|| {
            let client = self.0.driver.wait(self.connection())?;
            let done = call(&mut PostgresSession::new(&self.0.driver, &client));
            keep_sound(client, self.0.room.learn(done))
        })
    }

    /// Calls a function in a transaction, and again if it conflicts with another one.
    pub(crate) fn change<T: Send>(
        &self,
        mut call: impl FnMut(&mut dyn SqlConnection) -> DatabaseResult<T> + Send,
    ) -> DatabaseResult<T> {
        off_runtime(|| {
            let mut client = self.0.driver.wait(self.connection())?;
            let mut attempt = 1;
            loop {
                let done = self.attempt(&mut client, &mut call);
                match done {
                    Err(error) if is_conflict(&error) && attempt < MAX_ATTEMPTS => {
                        std::thread::sleep(CONFLICT_PAUSE * attempt);
                        attempt += 1;
                    }
                    done => return keep_sound(client, self.0.room.learn(done)),
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
        let transaction = driver.wait_for_statement(begin.start())?.map_err(fault)?;
        // Dropping the transaction rolls it back.
        let done = call(&mut PostgresSession::new(driver, &transaction))?;
        let committed = driver.wait_for_statement(transaction.commit())?;
        committed.map_err(fault)?;
        Ok(done)
    }

    /// Brings the schema to the version of this release.
    async fn migrate(&self) -> DatabaseResult<()> {
        let mut client = self.connection().await?;
        let fault = |error: tokio_postgres::Error| self.0.driver.place.error(&error);
        let transaction = client.transaction().await.map_err(fault)?;
        // It ends with the transaction, so that it works behind a pooler of transactions, too.
        let lock = format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})");
        transaction.batch_execute(&lock).await.map_err(fault)?;
        let table = "CREATE TABLE IF NOT EXISTS pkgtool_schema (version BIGINT NOT NULL, oldest BIGINT NOT NULL)";
        transaction.batch_execute(table).await.map_err(fault)?;
        let found = transaction
            .query_opt("SELECT version, oldest FROM pkgtool_schema", &[])
            .await;
        let found = found.map_err(fault)?;
        let (found, oldest): (i64, i64) = found.map_or((0, 0), |row| (row.get(0), row.get(1)));
        self.check_schema((found, oldest))?;
        let found = usize::try_from(found).unwrap_or(0);
        // None are missing if a later release has migrated, whose schema this one can use.
        let missing = MIGRATIONS.get(found..).unwrap_or_default();
        if missing.is_empty() {
            return Ok(());
        }
        for migration in missing {
            transaction.batch_execute(migration).await.map_err(fault)?;
        }
        let version = format!(
            "DELETE FROM pkgtool_schema; INSERT INTO pkgtool_schema VALUES ({}, {OLDEST_COMPATIBLE})",
            MIGRATIONS.len()
        );
        transaction.batch_execute(&version).await.map_err(fault)?;
        transaction.commit().await.map_err(fault)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.0.driver.place)
    }
}

/// Bounds how long a server that is frozen in a transaction keeps others from the rows that it holds.
fn bounded_session() -> String {
    format!(
        "SET idle_in_transaction_session_timeout = {}",
        MAX_IDLE_TIME.as_millis()
    )
}

/// Returns what was done. A connection that gave no answer does not go back to the pool.
fn keep_sound<T>(client: Object, done: DatabaseResult<T>) -> DatabaseResult<T> {
    if let Err(DatabaseError::Away { .. }) = done {
        drop(Object::take(client));
    }
    done
}

/// Connects with TLS, unless the URL says `sslmode=disable`.
fn manager(config: Config) -> Manager {
    let recycling = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    match tls(&config) {
        None => Manager::from_config(config, NoTls, recycling),
        Some(tls) => Manager::from_config(config, tls, recycling),
    }
}

/// Returns what connects with TLS; `None` if the URL says `sslmode=disable`.
fn tls(config: &Config) -> Option<MakeRustlsConnect> {
    if config.get_ssl_mode() == SslMode::Disable {
        return None;
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let tls = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Some(MakeRustlsConnect::new(tls))
}
