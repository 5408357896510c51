//! `pkgtool explain`.

use super::exit::{Exit, Failure};
use super::output;
use crate::diagnostic::{Applicability, RuleMeta};
use crate::validate;

/// Arguments of `pkgtool explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A rule's code or name: PKG012, or methods-unknown-component
    code: String,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let rule = validate::rule_named(&args.code)
        .map_err(|help| Failure::Other(format!("there is no rule `{}`; {help}", args.code)))?;
    output::print(&format!(
        "{} {} ({})\n{}\n{}\n{}\n",
        rule.code,
        rule.name,
        rule.severity.name(),
        rule.summary,
        fixable(rule),
        rule.explanation_text()
    ))?;
    Ok(Exit::Clean)
}

/// A line about the fixes of a rule's findings; empty if there are none.
fn fixable(rule: &RuleMeta) -> &'static str {
    match rule.fix {
        None => "",
        Some(Applicability::Safe) => "Fixable: `pkgtool fix` mends it where it can.\n",
        Some(Applicability::Unsafe) => {
            "Fixable: `pkgtool fix` mends it where it can, some of it only with `--unsafe`.\n"
        }
    }
}
