//! `pkgtool admin copy`.

use std::path::{Path, PathBuf};

use super::super::exit::{Exit, Failure};
use super::super::{data_dir, objects, output};
use super::{bytes, require_data, warn_of_missing};
use pkgtool_base::diagnostic::book;
use pkgtool_serve::database::{DataLock, DatabaseUrl, server_name};
use pkgtool_serve::gateway::settings::DatabaseSetting;
use pkgtool_serve::objects::ObjectsUrl;
use pkgtool_serve::package::{NewPackage, PackageKind, PackageObjects, PackagePublisher};
use pkgtool_serve::task::{Blobs, Stores, TransferError, transfer};
use pkgtool_serve::train::{directory_of, results_directory};

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
    let trained = publish_trained(&directory, &into, &blobs).await?;
    if trained > 0 {
        output::print(&format!(
            "{trained} trained services are published for all servers\n"
        ))?;
    }
    Ok(warn_of_missing(&done.missing, "copy"))
}

/// Publishes the results of trainings for the servers of a database. Returns their number.
async fn publish_trained(data: &Path, into: &DatabaseUrl, blobs: &Blobs) -> Result<usize, Failure> {
    let stores = Stores::open(into).await?;
    let (Some(packages), Some(storage)) = (stores.packages(), blobs.bucket()) else {
        return Ok(0);
    };
    let publisher = PackagePublisher::new(packages, PackageObjects::in_storage(storage));
    let accounts = stores.accounts().await?.accounts().await?;
    let mut count = 0;
    for account in accounts {
        let folder = directory_of(&results_directory(data), account.id);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let new = NewPackage {
                owner: account.id,
                owner_name: &account.name,
                name: &name,
                kind: PackageKind::Trained,
                directory: &entry.path(),
            };
            publisher.publish(new).await?;
            count += 1;
        }
    }
    Ok(count)
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        Self::Other(error.to_string())
    }
}
