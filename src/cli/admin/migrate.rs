//! `pkgtool admin migrate`.

use super::super::directory::DataDirectoryArgs;
use super::super::exit::{Exit, Failure};
use super::super::output;
use pkgtool_serve::task::Stores;

/// Arguments of `pkgtool admin migrate`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct MigrateArgs {
    #[command(flatten)]
    place: DataDirectoryArgs,
}

/// Runs the command.
pub(super) async fn run(args: &MigrateArgs) -> Result<Exit, Failure> {
    let database = args.place.database()?;
    // Opening a database migrates it.
    Stores::open(&database).await?;
    output::print(&format!("{database}: its schema is that of this release\n"))?;
    Ok(Exit::Clean)
}
