//! `pkgtool admin purge`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::directory::{DataDirectoryArgs, shown, span};
use super::super::exit::{Exit, Failure};
use super::super::{objects, output};
use super::data;
use pkgtool_serve::database::Timestamp;
use pkgtool_serve::gateway::settings::{CONFIG_FILE, GatewaySettings};
use pkgtool_serve::objects::ObjectsUrl;
use pkgtool_serve::task::{Stores, remove_in_batches};

/// Arguments of `pkgtool admin purge`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct PurgeArgs {
    /// Delete tasks that ended at least this long ago: 30m, 12h, 7d [default: the setting
    /// `tasks.record_ttl_days`]
    #[arg(long, value_name = "TIME", value_parser = span)]
    older_than: Option<Duration>,

    /// Settings file [default: `gateway.toml` in the data directory, if it exists]
    #[arg(long, value_name = "FILE", env = "PKGTOOL_CONFIG")]
    config: Option<PathBuf>,

    /// Bucket of the objects, `s3://BUCKET/PREFIX` [default: the one that the gateway uses with this
    /// data directory]
    #[arg(long, value_name = "URL")]
    objects: Option<ObjectsUrl>,

    #[command(flatten)]
    place: DataDirectoryArgs,
}

/// Runs the command.
pub(super) async fn run(args: &PurgeArgs) -> Result<Exit, Failure> {
    let (directory, database) = data(&args.place)?;
    let age = match args.older_than {
        Some(age) => age,
        None => ttl(args.config.as_deref(), &directory)?,
    };
    let before = Timestamp::now().before(age);
    let stores = Stores::open(&database).await?;
    let tasks = stores.tasks().await?;
    let accounts = stores.accounts().await?;
    let blobs = objects::open_for_command(&directory, args.objects.as_ref(), &*accounts).await?;
    let deleted = remove_in_batches(&blobs, |most| tasks.purge(before, most)).await?;
    let expired = remove_in_batches(&blobs, |most| tasks.sweep(Timestamp::now(), most)).await?;
    let orphans = blobs.sweep_all_orphans(&*tasks).await;
    output::print(&format!(
        "deleted {deleted} tasks that ended before {}; removed {expired} expired results and {orphans} \
         blobs without a task\n",
        shown(before)
    ))?;
    Ok(Exit::Clean)
}

/// Returns how long the server keeps tasks that have ended.
fn ttl(config: Option<&Path>, directory: &Path) -> Result<Duration, Failure> {
    let own = directory.join(CONFIG_FILE);
    let config = config.or_else(|| own.is_file().then_some(own.as_path()));
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let settings = GatewaySettings::read(config, variables);
    let settings = settings.map_err(|error| Failure::Other(error.to_string()))?;
    settings.tasks.record_ttl().ok_or_else(|| {
        let message = "`tasks.record_ttl_days` is 0, so tasks are kept forever; choose the tasks to \
                       delete with --older-than, such as --older-than 30d";
        Failure::Other(message.to_owned())
    })
}
