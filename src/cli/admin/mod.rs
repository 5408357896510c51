//! `pkgtool admin`: what an operator does with a gateway's data directory, whether it runs or not.

mod backup;
mod purge;
mod status;

use super::directory::Place;
use super::exit::{Exit, Failure};
use crate::database::DatabaseUrl;

/// `admin backup`, `admin purge`, `admin status`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Show how much is stored: tasks by state, blobs, the database, the disk
    Status(status::Args),
    /// Delete tasks that ended some time ago, beside a running server
    Purge(purge::Args),
    /// Copy all records and blobs into a directory, beside a running server
    Backup(backup::Args),
}

/// Runs the command.
pub(super) fn run(command: &Command) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(format!("no runtime can be started: {error}")))?;
    runtime.block_on(async {
        match command {
            Command::Status(args) => status::run(args).await,
            Command::Purge(args) => purge::run(args).await,
            Command::Backup(args) => backup::run(args).await,
        }
    })
}

/// The data directory, which must have a database: a mistyped name makes none.
fn data(place: &Place) -> Result<std::path::PathBuf, Failure> {
    let directory = place.directory()?;
    let DatabaseUrl::Sqlite(file) = DatabaseUrl::in_directory(&directory);
    if file.is_file() {
        return Ok(directory);
    }
    Err(Failure::Nothing(format!(
        "{}: there is no gateway's data; name its directory with --data-dir",
        directory.display()
    )))
}

/// Bytes as people read them.
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
