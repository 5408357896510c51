//! The commands that run models.

mod answering;
mod backends;
mod bench;
mod built_in;
mod chat;
mod compare;
mod deadline;
mod devices;
mod embedding;
mod eval;
mod findings;
mod input_args;
mod limits;
mod parsing;
mod profile;
mod run;
mod sides;
mod sizes;
mod talking;
mod target_args;
mod times;

use std::fs;
use std::path::Path;

use super::exit::{Exit, Failure};
use super::output;
use pkgtool_base::source::FileSource;
use pkgtool_base::source::text::escape;
use pkgtool_engine::EngineError;
use pkgtool_engine::runtime::device;
#[cfg(unix)]
use pkgtool_engine::runtime::device::VersionText;
use pkgtool_engine::runtime::process::sandbox::SandboxMode;
use pkgtool_engine::runtime::selection::{Selection, SelectionError};
use pkgtool_engine::runtime::target::{self, Candidate, StartError, StartRequest, Started};
use pkgtool_engine::runtime::worker::{self, Launcher};
use pkgtool_engine::runtime::{parsers, process};
use pkgtool_engine::tensor::Tensor;
use pkgtool_model::executorch::body::{ProgramBody, known_defects};
use target_args::{TargetArgs, VariantChoice};

/// The commands `run`, `chat`, `bench`, `compare`, `eval` and `backends`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ExecuteCommand {
    /// Run a variant and print or write its outputs
    Run(Box<run::RunArgs>),
    /// Chat with a package's text model
    Chat(Box<chat::ChatArgs>),
    /// Benchmark variants and engines side by side
    Bench(Box<bench::BenchArgs>),
    /// Compare the outputs of two variants, engines or model files
    Compare(Box<compare::CompareArgs>),
    /// Measure the accuracy of variants on a data set
    Eval(Box<eval::EvalArgs>),
    /// Show the engines and backends that work on this machine
    Backends(backends::BackendsArgs),
    /// List reachable devices, or remove the tool's files from them
    Devices(devices::DevicesArgs),
    /// Run as a worker process of another pkgtool, connected through standard input
    #[command(name = process::WORKER_ARGUMENT, hide = true)]
    Worker {
        /// Kind of work
        #[arg(default_value = "models")]
        work: Work,
    },
}

/// The kind of work of a worker process.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Work {
    /// Run models.
    Models,
    /// Parse untrusted data: chat templates, images, texts.
    #[value(name = parsers::WORK)]
    Parsers,
    /// Be the agent of another machine.
    #[cfg(unix)]
    #[value(name = device::WORK)]
    Device,
}

/// Runs the command.
pub(super) fn run(command: &ExecuteCommand) -> Result<Exit, Failure> {
    sandbox(command).choose();
    if let Some(target) = target_of_one(command) {
        target.device.require_one()?;
    }
    match command {
        ExecuteCommand::Run(args) => run::run(args),
        ExecuteCommand::Devices(args) => devices::run(args),
        ExecuteCommand::Chat(args) => chat::run(args),
        ExecuteCommand::Bench(args) => bench::run(args),
        ExecuteCommand::Backends(args) => backends::run(args),
        ExecuteCommand::Compare(args) => compare::run(args),
        ExecuteCommand::Eval(args) => eval::run(args),
        ExecuteCommand::Worker { work } => serve(*work),
    }
}

/// Serves another pkgtool, if one started this process. Its arguments need no command line, which takes longer to read.
pub(super) fn serve_another() -> Option<Result<Exit, Failure>> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != process::WORKER_ARGUMENT {
        return None;
    }
    let work = match arguments.next() {
        None => Work::Models,
        Some(name) => <Work as clap::ValueEnum>::from_str(&name, false).ok()?,
    };
    Some(serve(work))
}

/// Serves another pkgtool.
fn serve(work: Work) -> Result<Exit, Failure> {
    match work {
        Work::Models => worker::serve()?,
        Work::Parsers => parsing::serve()?,
        #[cfg(unix)]
        Work::Device => device::serve(VersionText(env!("VERSION_AND_COMMIT")))?,
    }
    Ok(Exit::Clean)
}

/// Returns the target of a command that runs on one device.
fn target_of_one(command: &ExecuteCommand) -> Option<&TargetArgs> {
    match command {
        ExecuteCommand::Run(args) => Some(&args.target),
        ExecuteCommand::Chat(args) => Some(&args.target),
        ExecuteCommand::Eval(args) => Some(&args.target),
        _ => None,
    }
}

/// Returns the sandbox mode of the processes that a command starts.
fn sandbox(command: &ExecuteCommand) -> SandboxMode {
    match command {
        ExecuteCommand::Run(args) => args.target.sandbox,
        ExecuteCommand::Chat(args) => args.target.sandbox,
        ExecuteCommand::Bench(args) => args.target.sandbox,
        ExecuteCommand::Compare(args) => args.target.sandbox,
        ExecuteCommand::Eval(args) => args.target.sandbox,
        ExecuteCommand::Backends(args) => args.sandbox,
        ExecuteCommand::Devices(_) | ExecuteCommand::Worker { .. } => SandboxMode::default(),
    }
}

/// Writes text to a file. Control characters and invisible characters are escaped.
fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, &*escape(text))
        .map_err(|error| Failure::Other(format!("cannot write {}: {error}", path.display())))
}

/// Selects a method of a model below `path`.
fn select_method(
    args: &TargetArgs,
    path: &Path,
    which: VariantChoice<'_>,
) -> Result<Selection, Failure> {
    args.select(path, which)
        .map_err(|error| selection_failure(&error))
}

fn selection_failure(error: &SelectionError) -> Failure {
    match error {
        SelectionError::Nothing(message) => Failure::Nothing(message.clone()),
        other => Failure::Other(other.to_string()),
    }
}

/// Prints notes about operators that ExecuTorch's runtime is known to compute wrongly, whichever
/// engine ran the model. Faults that affect only rare inputs are noted in comparisons only.
fn note_wrong_operators(wish: &StartRequest, started: &Started, rare: bool) {
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
    let wrong = method.map(|method| known_defects(&source, method));
    let engine = started.candidate.engine;
    let whose = if engine == "executorch" {
        "its output is unreliable there".to_owned()
    } else {
        format!("{engine} computes it correctly, so its output differs from a device's")
    };
    let wrong = wrong.unwrap_or_default().into_iter();
    for known in wrong.filter(|known| known.is_rare == rare) {
        output::note(&format!(
            "ExecuTorch's `{}` {}; {whose}",
            known.operator, known.what
        ));
    }
}

/// Returns whether another engine would fail as well: at a limit, or because of the machine.
fn is_final(tried: &[(Candidate, EngineError)]) -> bool {
    let mut errors = tried.iter().map(|(_, error)| error);
    errors.any(|error| {
        matches!(
            error,
            EngineError::Limit { .. } | EngineError::Device { .. }
        )
    })
}

/// Loads the model and runs it once. Prints a note about each fallback.
fn start_with_notes(
    wish: &StartRequest,
    inputs: &[Tensor],
    launcher: &Launcher,
) -> Result<Started, Failure> {
    let started = start(wish, inputs, launcher)?;
    note_wrong_operators(wish, &started, false);
    // With a named engine, the user knows that it is not the backend. The output says so, too.
    if let Some(why) = started.off_target().filter(|_| wish.engine.is_none()) {
        let backend = wish
            .backend
            .map_or("", pkgtool_base::package::Backend::name);
        output::print_message(
            "warning",
            &format!("ran on {} instead of {backend}; {why}", started.candidate),
        );
    }
    Ok(started)
}

/// Loads the model and runs it once.
fn start(wish: &StartRequest, inputs: &[Tensor], launcher: &Launcher) -> Result<Started, Failure> {
    target::start(wish, inputs, launcher).map_err(|error| {
        let model = wish.model.display();
        let others = match &error {
            StartError::Failed(tried) if wish.engine.is_some() && !is_final(tried) => {
                "; without `--engine`, other engines are tried"
            }
            _ => "",
        };
        Failure::Other(format!("{model}: {error}{others}"))
    })
}
