//! `pkgtool completions`.

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::exit::{Exit, Failure};
use super::{Cli, output};
use pkgtool_base::diagnostic::RuleMeta;
use pkgtool_check::validate;

/// Arguments of `pkgtool completions`.
#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// Shell to print the completion script for
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command.
pub(super) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "pkgtool", &mut script);
    let script = String::from_utf8_lossy(&script);
    output::print(&with_codes(args.shell, &script))?;
    Ok(Exit::Clean)
}

/// Adds the codes of the rules to a completion script. Only the scripts for Bash and Zsh have them
/// already, because `clap_complete` omits the values of arguments in the others.
fn with_codes(shell: Shell, script: &str) -> String {
    // The line after which the codes are inserted, and the inserted line of a rule.
    let (head, line): (&str, fn(&RuleMeta) -> String) = match shell {
        Shell::Fish => ("", |rule| {
            let when = "__fish_pkgtool_using_subcommand explain";
            format!(
                "complete -c pkgtool -n \"{when}\" -f -a \"{}\" -d '{}'\n",
                rule.code, rule.name
            )
        }),
        Shell::PowerShell => ("        'pkgtool;explain' {\n", |rule| {
            let RuleMeta { code, name, .. } = rule;
            let kind = "[CompletionResultType]::ParameterValue";
            format!("            [CompletionResult]::new('{code}', '{code}', {kind}, '{name}')\n")
        }),
        Shell::Elvish => ("        &'pkgtool;explain'= {\n", |rule| {
            format!("            cand {} '{}'\n", rule.code, rule.name)
        }),
        _ => return script.to_owned(),
    };
    let lines: String = validate::rule_metas().into_iter().map(line).collect();
    if head.is_empty() {
        return format!("{script}{lines}");
    }
    script.replacen(head, &format!("{head}{lines}"), 1)
}

/// Returns the command line as a user sees it: without hidden commands, and with the codes of the
/// rules as values of arguments that expect a rule.
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
