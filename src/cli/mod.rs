//! The command line: one file a subcommand.
//!
//! Each command turns its arguments once into the options of the layer that does the work, and its
//! outcome into an [`Exit`]. Only `output` writes to the terminal.

#[cfg(feature = "serve")]
mod admin;
mod completions;
#[cfg(feature = "serve")]
mod data_dir;
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
mod init;
mod inspect;
mod json_option;
mod lsp;
mod man;
mod output;
mod policy_args;
#[cfg(feature = "remote")]
mod pull;
#[cfg(not(feature = "remote"))]
#[path = "pull_absent.rs"]
mod pull;
#[cfg(feature = "serve")]
mod remote;
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

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

pub use exit::Exit;

use crate::source::bounds;

/// The tool for on-device model packages.
///
/// Checks package configs (config.json) of models for phones against their schema, their files and
/// what the model files themselves say, and shows what a model file says.
#[derive(Debug, Parser)]
#[command(name = "pkgtool", version, long_version = env!("VERSION_AND_COMMIT"), after_help = exit::HELP, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check packages: schema, files, names, and signatures against the model files
    Validate(Box<validate::Args>),
    /// Mend packages: edits that keep the author's formatting and order
    Fix(fix::Args),
    /// Write configs for the model files that are there, and say what each field was inferred from
    Init(init::Args),
    /// Show what a model file says of itself, from its header alone
    Inspect(inspect::Args),
    /// Show what changed between two versions of packages, for those who use them
    Diff(diff::Args),
    #[command(flatten)]
    Pull(pull::Command),
    #[command(flatten)]
    Execute(execute::Command),
    #[command(flatten)]
    Services(services::Command),
    /// Serve editors: findings, hints and completion as configs are written (a language server)
    Lsp(lsp::Args),
    /// Explain a rule: what it checks, why, an example, the fix
    Explain(explain::Args),
    /// List all rules, and what the settings in force make of them
    Rules(rules::Args),
    /// Print a JSON Schema or the precision list that is built in
    Schema(schema::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print the manual page, or write those of all commands
    Man(man::Args),
}

/// Parses the process's arguments, runs the command and gives the exit code. A panic is a bug of
/// this tool and is reported as one.
pub fn main() -> ExitCode {
    bounds::choose_arguments(std::env::args_os().skip(1));
    let cli = Cli::parse_from(json_option::understood(
        std::env::args_os(),
        &Cli::command(),
    ));
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
    match outcome {
        Ok(exit) => exit,
        // Whoever reads our output has gone: there is nobody to tell.
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
