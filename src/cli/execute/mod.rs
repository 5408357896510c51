//! The commands that run models.

mod backends;
mod bench;
mod compare;
mod deadline;
mod input_args;
mod run;
mod sides;
mod sizes;
mod target_args;

use std::path::Path;

use super::exit::{Exit, Failure};
use super::output;
use crate::runtime::selection::{Selection, SelectionError};
use crate::runtime::target::{self, Candidate, StartError, Started, Wish};
use crate::runtime::worker::{self, Launcher};
use crate::runtime::{EngineError, Tensor};
use target_args::TargetArgs;

/// `run`, `bench`, `compare`, `backends`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Run a variant and show or write its outputs
    Run(Box<run::Args>),
    /// Time variants and engines side by side
    Bench(Box<bench::Args>),
    /// Compare two variants, engines or model files on the same inputs
    Compare(Box<compare::Args>),
    /// Show what this machine has for each backend, by trying it
    Backends(backends::Args),
    /// Run models for another pkgtool at the other end of standard input
    #[command(name = worker::ARGUMENT, hide = true)]
    Worker,
}

/// Runs the command.
pub(super) fn run(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Backends(args) => backends::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Worker => {
            worker::serve()?;
            Ok(Exit::Clean)
        }
    }
}

/// Selects a method below `path`.
fn selected(args: &TargetArgs, path: &Path, precision: Option<&str>) -> Result<Selection, Failure> {
    args.select(path, precision).map_err(|error| match error {
        SelectionError::Nothing(message) => Failure::Nothing(message),
        other => Failure::Other(other.to_string()),
    })
}

/// Whether a limit ended it, which another engine would reach as well.
fn by_limit(tried: &[(Candidate, EngineError)]) -> bool {
    let mut errors = tried.iter().map(|(_, error)| error);
    errors.any(|error| matches!(error, EngineError::Limit { .. }))
}

/// Loads and runs once, and tells the user of every fallback.
fn started(wish: &Wish, inputs: &[Tensor], launcher: &Launcher) -> Result<Started, Failure> {
    let started = target::start(wish, inputs, launcher).map_err(|error| {
        let model = wish.model.display();
        let others = match &error {
            StartError::Failed(tried) if wish.engine.is_some() && !by_limit(tried) => {
                "; without `--engine` others are tried"
            }
            _ => "",
        };
        Failure::Other(format!("{model}: {error}{others}"))
    })?;
    // Who names an engine knows that it is not the backend; the answer says so too.
    if let Some(why) = started.off_target().filter(|_| wish.engine.is_none()) {
        let backend = wish.backend.map_or("", crate::package::Backend::name);
        output::tell(
            "warning",
            &format!("not run on {backend}, but on {}; {why}", started.candidate),
        );
    }
    Ok(started)
}
