//! `pkgtool admin copy`.

use std::path::PathBuf;

use super::super::exit::{Exit, Failure};
use super::super::{data_dir, objects, output};
use super::{bytes, require_data, warn_of_missing};
use pkgtool_base::diagnostic::book;
use pkgtool_serve::database::{DataLock, DatabaseUrl, server_name};
use pkgtool_serve::gateway::settings::DatabaseSetting;
use pkgtool_serve::objects::ObjectsUrl;
use pkgtool_serve::task::{Stores, TransferError, transfer};

/// Arguments of `pkgtool admin copy`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "serve/cluster"))]
pub(in super::super) struct CopyArgs {
    /// PostgreSQL database to copy into, which is empty or has a part of the same copy
    #[arg(long, value_name = "URL", hide_env_values = true)]
    to_database: DatabaseSetting,

    /// Bucket or folder to copy bodies, results, datasets and files into: `s3://BUCKET/PREFIX` or
    /// `file:///FOLDER`
    #[arg(long, value_name = "URL")]
    to_objects: ObjectsUrl,

    /// Data directory of the gateway, which must not run [default: the user's data directory]
    #[arg(long, value_name = "DIR", env = "PKGTOOL_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Example:
  pkgtool admin copy --data-dir data --to-database postgres://…/gateway --to-objects s3://gateway/production
  pkgtool serve models/ --data-dir new --database postgres://…/gateway --objects s3://gateway/production

The command can be repeated after an interruption: it continues.

Exit codes:
  0   success
  1   stored bodies were missing or altered before the copy; it lists them and has the rest
  2   the command failed";

/// Runs the command.
pub(super) async fn run(args: &CopyArgs) -> Result<Exit, Failure> {
    let directory = data_dir::of(&args.data_dir.clone().unwrap_or_default());
    let directory = directory.map_err(Failure::Other)?;
    require_data(&directory, &DatabaseUrl::file_in(&directory))?;
    let into = args.to_database.url(&directory);
    let DatabaseUrl::Postgres(_) = into else {
        return Err(Failure::Other(
            "--to-database is empty; expected postgres://USER:PASSWORD@HOST/DATABASE".to_owned(),
        ));
    };
    // Nothing may change meanwhile.
    let _lock = DataLock::take(&directory)?;
    let name = server_name(&directory)?;
    let stores = Stores::open(&DatabaseUrl::in_directory(&directory)).await?;
    let accounts = stores.accounts().await?;
    let blobs = objects::open_target(&args.to_objects, &*accounts).await?;
    let done = transfer((&directory, &name), &into, &blobs).await?;
    output::print(&format!(
        "{into}: {} tasks, {} other records, {} objects of {}, and {} objects that were there\n",
        done.tasks,
        done.records,
        done.objects,
        bytes(done.object_bytes),
        done.present
    ))?;
    if directory.join("trained").is_dir() {
        output::note(
            "trained services stay in the directory `trained`: copy it into the data directory of the server that \
             shall serve them",
        );
    }
    Ok(warn_of_missing(&done.missing, "copy"))
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        Self::Other(error.to_string())
    }
}
