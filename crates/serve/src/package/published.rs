//! The packages that all servers of a database serve.
//!
//! Invariant: whoever writes or removes objects of packages has the turn, so that nobody removes a file that another one
//! is about to need.

use std::time::Duration;

use tokio_postgres::Row;

use crate::account::AccountId;
use crate::database::postgres::Postgres;
use crate::database::{DatabaseResult, Timestamp};

/// How long a turn lasts if it is not renewed.
const TURN_TIME: Duration = Duration::from_mins(2);

/// The kind of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackageKind {
    /// A directory that an operator published.
    Published,
    /// The result of a training.
    Trained,
}

impl PackageKind {
    /// Returns the word for the kind.
    pub fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Trained => "trained",
        }
    }
}

/// A package that all servers serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedPackage {
    /// The account that owns its services.
    pub owner: AccountId,
    /// The name of that account.
    pub owner_name: String,
    /// Its name among the packages of this kind and owner.
    pub name: String,
    /// Its kind.
    pub kind: PackageKind,
    /// The version of its manifest.
    pub version: String,
    /// Size of its files, in bytes.
    pub bytes: u64,
    /// When this version was published.
    pub published_at: Timestamp,
}

/// The packages that all servers of a database serve.
#[derive(Debug, Clone)]
pub struct PublishedPackages(Postgres);

impl PublishedPackages {
    pub(crate) fn new(database: Postgres) -> Self {
        Self(database)
    }

    /// Lists them by owner and name.
    pub async fn list(&self) -> DatabaseResult<Vec<PublishedPackage>> {
        let list = self.0.with(|client| {
            Box::pin(async {
                let sql = "SELECT owner, account.name, published.name, is_trained, version, bytes, published_at
                    FROM published_package AS published JOIN account ON account.id = owner
                    ORDER BY owner, published.name, is_trained";
                let list = client.prepare_cached(sql).await?;
                let rows = client.query(&list, &[]).await?;
                rows.iter().map(read).collect()
            })
        });
        list.await
    }

    /// Records a version as the one that is to be served.
    pub(super) async fn put(&self, package: PublishedPackage) -> DatabaseResult<()> {
        let put = self.0.with(move |client| {
            let it = package.clone();
            Box::pin(async move {
                let sql = "INSERT INTO published_package
                        (owner, name, is_trained, version, bytes, published_at)
                    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (owner, is_trained, name)
                    DO UPDATE SET version = $4, bytes = $5, published_at = $6";
                let bytes = i64::try_from(it.bytes).unwrap_or(i64::MAX);
                let is_trained = it.kind == PackageKind::Trained;
                client
                    .execute(
                        sql,
                        &[
                            &it.owner.0,
                            &it.name,
                            &is_trained,
                            &it.version,
                            &bytes,
                            &it.published_at.0,
                        ],
                    )
                    .await
            })
        });
        put.await.map(drop)
    }

    /// Forgets a package that an operator published. Returns `false` if there is none of this name.
    pub(super) async fn remove(&self, owner: AccountId, name: &str) -> DatabaseResult<bool> {
        let name = name.to_owned();
        let remove = self.0.with(move |client| {
            let name = name.clone();
            Box::pin(async move {
                let sql = "DELETE FROM published_package
                    WHERE owner = $1 AND name = $2 AND NOT is_trained";
                client.execute(sql, &[&owner.0, &name]).await
            })
        });
        Ok(remove.await? > 0)
    }

    /// Takes the turn, or keeps it. Returns `false` while another process has it.
    pub(super) async fn take_turn(&self, holder: &str) -> DatabaseResult<bool> {
        self.change_turn(holder, TURN_TIME).await
    }

    /// Ends the turn.
    pub(super) async fn end_turn(&self, holder: &str) -> DatabaseResult<()> {
        self.change_turn(holder, Duration::ZERO).await.map(drop)
    }

    async fn change_turn(&self, holder: &str, time: Duration) -> DatabaseResult<bool> {
        let holder = holder.to_owned();
        let time = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let change = self.0.with(move |client| {
            let holder = holder.clone();
            Box::pin(async move {
                let sql = "UPDATE publish_turn SET holder = $1, until = clock_ms() + $2
                    WHERE holder = $1 OR until <= clock_ms()";
                client.execute(sql, &[&holder, &time]).await
            })
        });
        Ok(change.await? > 0)
    }
}

fn read(row: &Row) -> Result<PublishedPackage, tokio_postgres::Error> {
    let bytes: i64 = row.try_get(5)?;
    Ok(PublishedPackage {
        owner: AccountId(row.try_get(0)?),
        owner_name: row.try_get(1)?,
        name: row.try_get(2)?,
        kind: if row.try_get(3)? {
            PackageKind::Trained
        } else {
            PackageKind::Published
        },
        version: row.try_get(4)?,
        bytes: u64::try_from(bytes).unwrap_or(0),
        published_at: Timestamp(row.try_get(6)?),
    })
}
