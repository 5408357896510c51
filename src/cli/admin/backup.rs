//! `pkgtool admin backup`.

use std::path::PathBuf;

use super::super::directory::DataDirectoryArgs;
use super::super::exit::{Exit, Failure};
use super::super::output;
use super::{bytes, data, warn_of_missing};
use pkgtool_base::diagnostic::book;
use pkgtool_serve::database::DatabaseUrl;
use pkgtool_serve::task::{BackupError, backup};

/// Arguments of `pkgtool admin backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "serve/operations"))]
pub(in super::super) struct BackupArgs {
    /// Directory of the backup, which must not exist yet
    #[arg(value_name = "DIR")]
    into: PathBuf,

    #[command(flatten)]
    place: DataDirectoryArgs,
}

const EXAMPLES: &str = "\
Restore a backup by copying it, and serve from the copy:
  cp -r DIR /var/lib/pkgtool
  pkgtool serve models/ --data-dir /var/lib/pkgtool

Exit codes:
  0   success
  1   stored bodies were missing or altered before the backup; it lists them and has the rest
  2   the command failed";

/// Runs the command.
pub(super) async fn run(args: &BackupArgs) -> Result<Exit, Failure> {
    let (directory, database) = data(&args.place)?;
    if let DatabaseUrl::Postgres(_) = database {
        return Err(Failure::Other(format!(
            "{database}: a backup needs an SQLite database; back up a PostgreSQL database by its own tools, such as \
             `pg_dump`"
        )));
    }
    let made = backup(&directory, &args.into).await?;
    let tasks = &made.tasks;
    output::print(&format!(
        "{}: {} tasks ({} waiting, {} running), {} of database, {} blobs of {}\n",
        args.into.display(),
        tasks.waiting + tasks.running + tasks.completed + tasks.canceled,
        tasks.waiting,
        tasks.running,
        bytes(made.database_bytes),
        made.blobs,
        bytes(made.blob_bytes),
    ))?;
    if let Some(bucket) = &made.bucket {
        let message = format!(
            "the objects in {bucket} are not in this backup: bodies, results, datasets, files of batches; protect \
             them by versioning or replication of the bucket"
        );
        output::print_message("warning", &message);
    }
    Ok(warn_of_missing(&made.missing, "backup"))
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        Self::Other(error.to_string())
    }
}
