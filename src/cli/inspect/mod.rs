//! `pkgtool inspect`.

mod json;
mod table;

use std::path::{Path, PathBuf};

use super::exit::{Exit, Failure};
use super::output;
use crate::model::{self, FORMATS, ModelInfo};
use crate::source::lfs::{self, Pointer};
use crate::source::{FileSource, ReadAt};

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
    let fail = |reason: String| Failure::Other(format!("{}: {reason}", args.file.display()));
    let source = FileSource::open(&args.file).map_err(|error| fail(error.to_string()))?;
    if let Some(pointer) = lfs_pointer(&source) {
        return Err(fail(format!(
            "is a Git LFS pointer to {} bytes, not the model itself; run `git lfs pull`",
            pointer.size
        )));
    }
    let info = read(&args.file, &source).map_err(fail)?;
    output::print(&if args.json {
        json::render(&info, source.len())
    } else {
        table::render(&args.file.display().to_string(), &info, source.len())
    })?;
    Ok(Exit::Clean)
}

fn read(path: &Path, source: &FileSource) -> Result<ModelInfo, String> {
    if source.is_empty() {
        return Err("is empty (0 bytes)".to_owned());
    }
    let info = model::inspect(path, source).map_err(|error| format!("is broken: {error}"))?;
    info.ok_or_else(|| {
        let known: Vec<&str> = FORMATS.iter().map(|format| format.name()).collect();
        format!(
            "has a format that is not read here; formats that are: {}",
            known.join(", ")
        )
    })
}

fn lfs_pointer(source: &FileSource) -> Option<Pointer> {
    if source.len() > lfs::MAX_POINTER_SIZE {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(source.len()).ok()?];
    source.read_exact_at(0, &mut bytes).ok()?;
    Pointer::parse(&bytes)
}
