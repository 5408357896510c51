//! `pkgtool man`.

use std::path::PathBuf;

use clap::CommandFactory;

use super::exit::{Exit, Failure};
use super::{Cli, output};

/// Arguments of `pkgtool man`.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Write the pages of all commands to this directory instead of printing the main page
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    if let Some(directory) = &args.dir {
        let failed = |error| {
            let directory = directory.display();
            Failure::Other(format!("cannot write manual pages to {directory}: {error}"))
        };
        std::fs::create_dir_all(directory).map_err(failed)?;
        clap_mangen::generate_to(Cli::command(), directory).map_err(failed)?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        output::print(&String::from_utf8_lossy(&page))?;
    }
    Ok(Exit::Clean)
}
