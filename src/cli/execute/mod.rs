//! The commands that run models.

mod backends;
mod bench;
mod chat;
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
use crate::engine::EngineError;
use crate::model::executorch::body::{ProgramBody, known_wrong};
use crate::runtime::process::sandbox::Mode;
use crate::runtime::selection::{Selection, SelectionError};
use crate::runtime::target::{self, Candidate, StartError, Started, Wish};
use crate::runtime::worker::{self, Launcher};
use crate::runtime::{parsers, process};
use crate::source::FileSource;
use crate::tensor::Tensor;
use crate::text::parsing;
use target_args::{TargetArgs, Which};

/// `run`, `chat`, `bench`, `compare`, `backends`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Run a variant and show or write its outputs
    Run(Box<run::Args>),
    /// Talk with a package's text model
    Chat(Box<chat::Args>),
    /// Time variants and engines side by side
    Bench(Box<bench::Args>),
    /// Compare two variants, engines or model files on the same inputs
    Compare(Box<compare::Args>),
    /// Show what this machine has for each backend, by trying it
    Backends(backends::Args),
    /// Work for another pkgtool at the other end of standard input
    #[command(name = process::ARGUMENT, hide = true)]
    Worker {
        /// What for
        #[arg(default_value = "models")]
        work: Work,
    },
}

/// What a worker does.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Work {
    /// Runs models.
    Models,
    /// Reads bytes of others: chat templates, pictures, texts.
    #[value(name = parsers::WORK)]
    Parsers,
}

/// Runs the command.
pub(super) fn run(command: &Command) -> Result<Exit, Failure> {
    sandbox(command).choose();
    match command {
        Command::Run(args) => run::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Backends(args) => backends::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Worker { work } => {
            match work {
                Work::Models => worker::serve()?,
                Work::Parsers => parsing::serve()?,
            }
            Ok(Exit::Clean)
        }
    }
}

/// How the processes that a command starts are confined.
fn sandbox(command: &Command) -> Mode {
    match command {
        Command::Run(args) => args.target.sandbox,
        Command::Chat(args) => args.target.sandbox,
        Command::Bench(args) => args.target.sandbox,
        Command::Compare(args) => args.target.sandbox,
        Command::Backends(args) => args.sandbox,
        Command::Worker { .. } => Mode::default(),
    }
}

/// Selects a method below `path`.
fn selected(args: &TargetArgs, path: &Path, which: Which<'_>) -> Result<Selection, Failure> {
    args.select(path, which)
        .map_err(|error| not_selected(&error))
}

fn not_selected(error: &SelectionError) -> Failure {
    match error {
        SelectionError::Nothing(message) => Failure::Nothing(message.clone()),
        other => Failure::Other(other.to_string()),
    }
}

/// Tells what ExecuTorch's own runtime is known to compute wrongly in what was run, whoever ran it; what
/// is wrong for rare inputs only if these are compared.
fn tell_wrong(wish: &Wish, started: &Started, rare: bool) {
    if wish.format != "executorch" {
        return;
    }
    let Ok(source) = FileSource::open(&wish.model) else {
        return;
    };
    let body = ProgramBody::read(&source).ok();
    let method = body
        .as_ref()
        .and_then(|body| body.method(&wish.signature.method));
    let wrong = method.map(|method| known_wrong(&source, method));
    let engine = started.candidate.engine;
    let whose = if engine == "executorch" {
        "its answer is not to be relied on there".to_owned()
    } else {
        format!("{engine} does not, and answers otherwise than a device there")
    };
    let wrong = wrong.unwrap_or_default().into_iter();
    for known in wrong.filter(|known| known.rare == rare) {
        output::note(&format!(
            "ExecuTorch's `{}` {}; {whose}",
            known.operator, known.what
        ));
    }
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
    tell_wrong(wish, &started, false);
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
