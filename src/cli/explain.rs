//! `pkgtool explain`.

use super::exit::{Exit, Failure};
use super::output;
use pkgtool_base::diagnostic::{Applicability, RuleMeta};
use pkgtool_check::validate;

/// Arguments of `pkgtool explain`.
#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// Code or name of the rule, such as PKG012 or methods-unknown-component
    code: String,
}

/// Runs the command.
pub(super) fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let rule = validate::find_rule(&args.code)
        .map_err(|help| Failure::Other(format!("unknown rule `{}`: {help}", args.code)))?;
    output::print(&format!(
        "{} {} ({})\n{}\n{}\n{}\n\nMore: {}\n",
        rule.code,
        rule.name,
        rule.severity.name(),
        rule.summary,
        describe_fixes(rule),
        rule.explanation_text(),
        rule.page()
    ))?;
    Ok(Exit::Clean)
}

/// Returns a line about the rule's fixes, empty if it has none.
fn describe_fixes(rule: &RuleMeta) -> &'static str {
    match rule.fix {
        None => "",
        Some(Applicability::Safe) => "Fixable: `pkgtool fix` can fix some of its findings.\n",
        Some(Applicability::Unsafe) => {
            "Fixable: `pkgtool fix` can fix some of its findings, a part of them only with `--unsafe`.\n"
        }
    }
}
