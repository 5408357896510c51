//! `pkgtool completions`.

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::exit::{Exit, Failure};
use super::{Cli, output};
use crate::validate;

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
    clap_complete::generate(args.shell, &mut command(), "pkgtool", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Clean)
}

/// The command line as a user sees it: without hidden commands, and with the rules' codes where a
/// rule is asked for.
fn command() -> Command {
    let full = Cli::command();
    let shown = full
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let codes = validate::rule_metas().into_iter().map(|rule| rule.code);
    Command::new("pkgtool")
        .version(env!("CARGO_PKG_VERSION"))
        .args(full.get_arguments())
        .subcommands(shown.cloned())
        .mut_subcommand("explain", |explain| {
            explain.mut_arg("code", |code| {
                code.value_parser(PossibleValuesParser::new(codes))
            })
        })
}
