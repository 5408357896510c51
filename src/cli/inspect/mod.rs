//! `pkgtool inspect`.

mod json;
#[cfg(feature = "run")]
mod package;
#[cfg(not(feature = "run"))]
#[path = "package_absent.rs"]
mod package;
mod payloads;
#[cfg(feature = "run")]
mod portable;
#[cfg(not(feature = "run"))]
#[path = "portable_absent.rs"]
mod portable;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::exit::{Exit, Failure};
use super::far;
use super::output;
use super::report::{self, CommandReport};
use payloads::Payloads;
use pkgtool_base::source::FileSource;
use pkgtool_model::executorch::Payload;
use pkgtool_model::executorch::body::{KnownDefect, ProgramBody, known_defects};
use pkgtool_model::{self as model, Method, ModelInfo};

/// Arguments of `pkgtool inspect`.
#[derive(Debug, clap::Args)]
pub(super) struct InspectArgs {
    /// Model file: a path, an https:// address, or hf:OWNER/REPOSITORY/PATH. Or a package: the model that `run`
    /// takes, and the recipe for its answers
    file: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Also print the requests and bytes read from a server
    #[arg(long, short)]
    verbose: bool,

    #[command(flatten)]
    far: far::FarArgs,
}

/// A model file, as the command shows it.
struct InspectedModel<'a> {
    path: &'a str,
    info: &'a ModelInfo,
    size: u64,
    beside: &'a ExtraFacts,
}

impl CommandReport for InspectedModel<'_> {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        table::render(text, self.path, self.info, self.size, self.beside);
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        json::document(self.info, self.size, self.beside)
    }
}

/// Runs the command.
pub(super) fn run(args: &InspectArgs) -> Result<Exit, Failure> {
    if let Some(done) = package::shown(&args.file, args.json) {
        return done;
    }
    let far = far::open(std::slice::from_ref(&args.file), &args.far, true)?;
    let file = &far.paths()[0];
    let path = far.shown(&file.display().to_string());
    let opened = model::open(file);
    // An error in fetching the file is reported as such, not as a fault of the model.
    if opened.is_err() {
        far.check()?;
    }
    let (info, size) = opened.map_err(|error| Failure::Other(format!("{path}: {error}")))?;
    let is_local = path == file.display().to_string();
    let beside = ExtraFacts::of(file, &info, is_local);
    let inspected = InspectedModel {
        path: &path,
        info: &info,
        size,
        beside: &beside,
    };
    report::print(&inspected, args.json)?;
    if let Some(named_as) = info.format_by_name {
        let format = info.format;
        output::note(&format!(
            "the file has format {format}, but its name suggests {named_as}: rename it"
        ));
    }
    // For a file on a server, the files beside it are not fetched.
    if is_local {
        note_missing_data(file, &info);
    }
    if args.verbose {
        far.tell_traffic();
    }
    if let Err(failure) = far.check() {
        output::note(&format!("the file was read only partially: {failure}"));
    }
    Ok(Exit::Clean)
}

/// Prints a note if an external data file of the model is missing or has the wrong content.
fn note_missing_data(file: &Path, info: &ModelInfo) {
    let directory = file.parent().filter(|parent| parent != &Path::new(""));
    let directory = directory.unwrap_or(Path::new("."));
    let mut faults = info.external.iter();
    let first = faults.find_map(|external| external.locate(directory).err());
    if let Some(fault) = first {
        output::note(&format!(
            "the model cannot be loaded without its data: it {fault}; put the data file beside the model"
        ));
    }
}

/// Facts that are shown besides the model's description.
#[derive(Default)]
struct ExtraFacts {
    /// Path of the model file.
    path: PathBuf,
    /// Operators that ExecuTorch's runtime is known to compute wrongly, by method.
    wrong: BTreeMap<String, Vec<KnownDefect>>,
    /// Contents of the delegates' payloads.
    payloads: Payloads,
}

impl ExtraFacts {
    fn of(path: &Path, info: &ModelInfo, is_local: bool) -> Self {
        // A model that cannot be read completely cannot run anywhere.
        let alone = || Self {
            path: path.to_owned(),
            ..Self::default()
        };
        if info.format != "executorch" {
            // The graph of a model on a server would be read in many small parts.
            return if is_local { alone() } else { Self::default() };
        }
        let Ok(source) = FileSource::open(path) else {
            return alone();
        };
        let Ok(body) = ProgramBody::read(&source) else {
            return alone();
        };
        let methods = body.methods.iter();
        let wrong = methods.map(|method| (method.name.clone(), known_defects(&source, method)));
        Self {
            path: path.to_owned(),
            wrong: wrong.collect(),
            payloads: payloads::read(&source, &body),
        }
    }

    fn wrong(&self, method: &Method) -> &[KnownDefect] {
        self.wrong.get(&method.name).map_or(&[], Vec::as_slice)
    }

    /// Returns the payloads of a method, one entry per delegate, or an empty slice if they could
    /// not be read.
    fn payloads(&self, method: &Method) -> &[Option<Payload>] {
        self.payloads.get(&method.name).map_or(&[], Vec::as_slice)
    }
}
