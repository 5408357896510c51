//! `pkgtool inspect`.

mod json;
#[cfg(feature = "run")]
mod portable;
#[cfg(not(feature = "run"))]
#[path = "portable_absent.rs"]
mod portable;
mod table;

use std::path::PathBuf;

use super::exit::{Exit, Failure};
use super::output;
use crate::model;

/// Arguments of `pkgtool inspect`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model file
    file: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let path = args.file.display();
    let (info, size) =
        model::open(&args.file).map_err(|error| Failure::Other(format!("{path}: {error}")))?;
    output::print(&if args.json {
        json::render(&info, size)
    } else {
        table::render(&path.to_string(), &info, size)
    })?;
    Ok(Exit::Clean)
}
