//! The command line interface, with one file per subcommand.
//!
//! Each command converts its arguments once into the options of the layer that does the work, and
//! returns an [`Exit`]. Only the module `output` writes to the terminal.

#[cfg(feature = "serve")]
mod admin;
#[cfg(feature = "serve")]
mod attach;
#[cfg(feature = "serve")]
mod block_on;
#[cfg(feature = "run")]
mod byte_count;
mod completions;
#[cfg(feature = "run")]
mod data_dir;
#[cfg(feature = "run")]
mod device_args;
mod diff;
#[cfg(feature = "serve")]
mod directory;
#[cfg(feature = "run")]
mod execute;
#[cfg(not(feature = "run"))]
#[path = "execute_absent.rs"]
mod execute;
mod exit;
mod explain;
#[cfg(feature = "remote")]
mod far;
#[cfg(not(feature = "remote"))]
#[path = "far_absent.rs"]
mod far;
mod fix;
mod groups;
mod init;
mod inspect;
mod json_option;
#[cfg(feature = "serve")]
mod local_catalog;
mod lsp;
mod man;
#[cfg(feature = "serve")]
mod objects;
mod output;
mod policy_args;
#[cfg(feature = "run")]
mod progress;
#[cfg(feature = "remote")]
mod pull;
#[cfg(not(feature = "remote"))]
#[path = "pull_absent.rs"]
mod pull;
#[cfg(feature = "serve")]
mod remote;
mod report;
mod report_args;
mod rules;
mod schema;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod services;
#[cfg(not(feature = "serve"))]
#[path = "services_absent.rs"]
mod services;
#[cfg(feature = "serve")]
mod train;
mod validate;
#[cfg(feature = "serve")]
mod worker;
#[cfg(feature = "serve")]
mod workers;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub(crate) use exit::Exit;

use pkgtool_base::diagnostic::book;
use pkgtool_base::source::bounds;

/// A tool for on-device model packages.
///
/// A package is a directory with a config (config.json) and model files for phones. pkgtool checks
/// configs against their schema, against the files they name, and against the headers of the model
/// files.
#[derive(Debug, Parser)]
#[command(name = "pkgtool", version, long_version = env!("VERSION_AND_COMMIT"), after_help = book::help(exit::HELP, ""), propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check packages: schema, files, names, and model signatures
    Validate(Box<validate::ValidateArgs>),
    /// Fix packages, keeping the author's formatting and key order
    Fix(fix::FixArgs),
    /// Write configs for model files, with the evidence for each field
    Init(init::InitArgs),
    /// Show a model file's signatures, operators and metadata
    Inspect(inspect::InspectArgs),
    /// Show what changed between two versions, and what breaks users
    Diff(diff::DiffArgs),
    #[command(flatten)]
    Pull(pull::PullCommand),
    #[command(flatten)]
    Execute(execute::ExecuteCommand),
    #[command(flatten)]
    Services(services::ServicesCommand),
    /// Run the language server: diagnostics, hints and completion
    Lsp(lsp::LspArgs),
    /// Explain a rule: what it checks, why, an example, and the fix
    Explain(explain::ExplainArgs),
    /// List the rules and their severities under the current settings
    Rules(rules::RulesArgs),
    /// Print a JSON Schema or the built-in precision list
    Schema(schema::SchemaArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write those of all commands
    Man(man::ManArgs),
}

/// Parses the process's arguments, runs the command and returns the exit code. A panic is reported
/// as a bug of this tool.
pub(crate) fn main() -> ExitCode {
    if let Some(served) = std::panic::catch_unwind(execute::serve_another).transpose() {
        return served.map_or(Exit::Bug, finished).into();
    }
    bounds::choose_arguments(std::env::args_os().skip(1));
    let command = Cli::command();
    let arguments = json_option::normalize_json_options(std::env::args_os(), &command);
    let matches = groups::grouped(command).get_matches_from(arguments);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = std::panic::catch_unwind(|| run(cli.command));
    outcome.unwrap_or(Exit::Bug).into()
}

fn run(command: Command) -> Exit {
    let outcome = match command {
        Command::Validate(args) => validate::run(&args),
        Command::Fix(args) => fix::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Pull(command) => pull::run(&command),
        Command::Execute(command) => execute::run(&command),
        Command::Services(command) => services::run(&command),
        Command::Lsp(args) => lsp::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Rules(args) => rules::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    };
    finished(outcome)
}

/// Reports a failure. Returns the exit code.
fn finished(outcome: Result<Exit, exit::Failure>) -> Exit {
    match outcome {
        Ok(exit) => exit,
        // The reader of the output has closed the pipe.
        Err(exit::Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Exit::Clean
        }
        Err(failure) => {
            output::error(&failure.to_string());
            match failure {
                exit::Failure::Nothing(_) => Exit::Nothing,
                _ => Exit::Failure,
            }
        }
    }
}
