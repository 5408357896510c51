//! `pkgtool rules`.

use clap::ValueEnum;
use serde_json::json;

use super::exit::{Exit, Failure};
use super::output;
use crate::diagnostic::RuleMeta;
use crate::validate;

/// Arguments of `pkgtool rules`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How to print the list
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    /// Columns
    Table,
    /// A Markdown table
    Markdown,
    /// JSON
    Json,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let rules = validate::rule_metas();
    output::print(&match args.format {
        ListFormat::Table => table(&rules),
        ListFormat::Markdown => markdown(&rules),
        ListFormat::Json => json(&rules),
    })?;
    Ok(Exit::Clean)
}

fn table(rules: &[&RuleMeta]) -> String {
    let width = rules.iter().map(|rule| rule.name.len()).max().unwrap_or(0);
    let lines = rules.iter().map(|rule| {
        format!(
            "{}  {:<8} {:<width$}  {}\n",
            rule.code,
            rule.severity.name(),
            rule.name,
            rule.summary
        )
    });
    lines.collect()
}

fn markdown(rules: &[&RuleMeta]) -> String {
    let head = "| code | rule | severity | a finding means |\n|---|---|---|---|\n".to_owned();
    rules.iter().fold(head, |text, rule| {
        let RuleMeta {
            code,
            name,
            summary,
            ..
        } = rule;
        text + &format!(
            "| {code} | `{name}` | {} | {summary} |\n",
            rule.severity.name()
        )
    })
}

fn json(rules: &[&RuleMeta]) -> String {
    let rules: Vec<_> = rules
        .iter()
        .map(|rule| {
            json!({
                "code": rule.code,
                "rule": rule.name,
                "severity": rule.severity,
                "summary": rule.summary,
                "explanation": rule.explanation_text(),
            })
        })
        .collect();
    format!("{:#}\n", json!({ "version": 1, "rules": rules }))
}
