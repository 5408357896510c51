//! `pkgtool inspect`.

mod json;
#[cfg(feature = "run")]
mod portable;
#[cfg(not(feature = "run"))]
#[path = "portable_absent.rs"]
mod portable;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::exit::{Exit, Failure};
use super::output;
use crate::model::executorch::body::{KnownWrong, ProgramBody, known_wrong};
use crate::model::{self, ModelInfo};
use crate::source::FileSource;

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
    let wrong = wrong(&args.file, &info);
    output::print(&if args.json {
        json::render(&info, size, &wrong)
    } else {
        table::render(&path.to_string(), &info, size, &wrong)
    })?;
    Ok(Exit::Clean)
}

/// What ExecuTorch's runtime is known to compute wrongly, by method.
type Wrong = BTreeMap<String, Vec<KnownWrong>>;

fn wrong(path: &Path, info: &ModelInfo) -> Wrong {
    if info.format != "executorch" {
        return Wrong::new();
    }
    // What cannot be read whole runs nowhere.
    let Ok(source) = FileSource::open(path) else {
        return Wrong::new();
    };
    let Ok(body) = ProgramBody::read(&source) else {
        return Wrong::new();
    };
    let methods = body.methods.iter();
    methods
        .map(|method| (method.name.clone(), known_wrong(&source, method)))
        .collect()
}
