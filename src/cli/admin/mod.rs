//! `pkgtool admin`: operations on a gateway's data directory, whether the gateway is running or
//! not.

mod backup;
mod copy;
mod migrate;
mod packages;
mod purge;
mod servers;
mod status;

use std::path::{Path, PathBuf};

use super::block_on::block_on;
use super::directory::DataDirectoryArgs;
use super::exit::{Exit, Failure};
use super::output;
use pkgtool_serve::database::DatabaseUrl;
use pkgtool_serve::package::PublishedPackages;
use pkgtool_serve::task::{SharedServers, Stores};

/// The commands below `admin`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum AdminCommand {
    /// Show the amount of stored data: tasks by state, blobs, database, disk
    Status(status::StatusArgs),
    /// Delete tasks that ended some time ago; the gateway may be running
    Purge(purge::PurgeArgs),
    /// Copy all records and blobs to a directory; the gateway may be running
    Backup(backup::BackupArgs),
    /// Bring the schema of the database to that of this release, before servers of this release start
    Migrate(migrate::MigrateArgs),
    /// Copy the data of a server into a PostgreSQL database and a bucket or folder, for several servers
    Copy(copy::CopyArgs),
    /// Let all servers that share a database serve the packages of a directory
    Publish(packages::PublishArgs),
    /// List the published packages
    Packages(packages::PackagesArgs),
    /// Let no server serve a published package any more
    Unpublish(packages::UnpublishArgs),
    /// Let one of the servers that share a database claim no more tasks, and wait for those that it runs
    Drain(servers::DrainArgs),
    /// Return the running tasks of a server that is gone to the queue at once
    Requeue(servers::RequeueArgs),
}

/// Runs the command.
pub(super) fn run(command: &AdminCommand) -> Result<Exit, Failure> {
    block_on(async {
        match command {
            AdminCommand::Status(args) => status::run(args).await,
            AdminCommand::Purge(args) => purge::run(args).await,
            AdminCommand::Backup(args) => backup::run(args).await,
            AdminCommand::Copy(args) => copy::run(args).await,
            AdminCommand::Migrate(args) => migrate::run(args).await,
            AdminCommand::Publish(args) => packages::publish(args).await,
            AdminCommand::Packages(args) => packages::list(args).await,
            AdminCommand::Unpublish(args) => packages::unpublish(args).await,
            AdminCommand::Drain(args) => servers::drain(args).await,
            AdminCommand::Requeue(args) => servers::requeue(args).await,
        }
    })
}

/// Returns the data directory and the database. A file must exist, so that a mistyped name does not create one.
fn data(place: &DataDirectoryArgs) -> Result<(PathBuf, DatabaseUrl), Failure> {
    let directory = place.directory()?;
    let database = place.database()?;
    if let DatabaseUrl::Sqlite(file) = &database {
        require_data(&directory, file)?;
    }
    Ok((directory, database))
}

/// A database that several servers share.
struct SharedDatabase {
    stores: Stores,
    servers: SharedServers,
    packages: PublishedPackages,
}

impl SharedDatabase {
    async fn open(place: &DataDirectoryArgs) -> Result<Self, Failure> {
        let database = place.database()?;
        let not_shared = || {
            Failure::Other(format!(
                "{database}: servers can only share a PostgreSQL database; set --database"
            ))
        };
        // Opening a file would create it.
        if let DatabaseUrl::Sqlite(_) = database {
            return Err(not_shared());
        }
        let stores = Stores::open(&database).await?;
        Ok(Self {
            servers: stores.servers().ok_or_else(not_shared)?,
            packages: stores.packages().ok_or_else(not_shared)?,
            stores,
        })
    }
}

/// Checks that a data directory has its database.
fn require_data(directory: &Path, file: &Path) -> Result<(), Failure> {
    if file.is_file() {
        return Ok(());
    }
    Err(Failure::Nothing(format!(
        "{}: no gateway data found; set its directory with --data-dir",
        directory.display()
    )))
}

/// Warns of blobs that a copy lacks, and returns the exit code that says so. `copy` is `backup` or `copy`.
fn warn_of_missing(missing: &[String], copy: &str) -> Exit {
    for path in missing {
        let message =
            format!("blobs/{path} was missing or altered before the {copy}, so it is not included");
        output::print_message("warning", &message);
    }
    if missing.is_empty() {
        Exit::Clean
    } else {
        Exit::Findings
    }
}

/// Formats a number of bytes for people.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = count as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{size:.1} {}", UNITS[unit])
    }
}
