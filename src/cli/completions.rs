//! `pkgtool completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use super::exit::{Exit, Failure};
use super::{Cli, output};

/// Arguments of `pkgtool completions`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pkgtool", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Clean)
}
