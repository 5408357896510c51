//! `pkgtool rules`.

use clap::ValueEnum;
use serde_json::json;

use super::exit::{Exit, Failure};
use super::output;
use crate::diagnostic::{Applicability, RuleMeta};
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
    /// A Markdown page with what `explain` says of each
    Page,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let rules = validate::rule_metas();
    output::print(&match args.format {
        ListFormat::Table => table(&rules),
        ListFormat::Markdown => markdown(&rules),
        ListFormat::Json => json(&rules),
        ListFormat::Page => page(&rules),
    })?;
    Ok(Exit::Clean)
}

fn table(rules: &[&RuleMeta]) -> String {
    let width = rules.iter().map(|rule| rule.name.len()).max().unwrap_or(0);
    let lines = rules.iter().map(|rule| {
        format!(
            "{}  {:<8} {:<6}  {:<width$}  {}\n",
            rule.code,
            rule.severity.name(),
            fix(rule).unwrap_or("-"),
            rule.name,
            rule.summary
        )
    });
    lines.collect()
}

fn markdown(rules: &[&RuleMeta]) -> String {
    let head =
        "| code | rule | severity | fix | a finding means |\n|---|---|---|---|---|\n".to_owned();
    rules.iter().fold(head, |text, rule| {
        let RuleMeta {
            code,
            name,
            summary,
            ..
        } = rule;
        text + &format!(
            "| {code} | `{name}` | {} | {} | {summary} |\n",
            rule.severity.name(),
            fix(rule).unwrap_or_default(),
        )
    })
}

/// `safe` or `unsafe`, the boldest fix of a rule's findings.
fn fix(rule: &RuleMeta) -> Option<&'static str> {
    rule.fix.map(Applicability::name)
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
                "fix": rule.fix,
                "explanation": rule.explanation_text(),
            })
        })
        .collect();
    format!("{:#}\n", json!({ "version": 1, "rules": rules }))
}

/// Each rule under a heading of its code alone, so that the code is the heading's anchor.
fn page(rules: &[&RuleMeta]) -> String {
    let mut page = "# Rules\n\nThe output of `pkgtool rules --format page`.\n".to_owned();
    for rule in rules {
        let RuleMeta {
            code,
            name,
            summary,
            ..
        } = rule;
        let severity = rule.severity.name();
        let fixable = fix(rule).map_or_else(String::new, |fix| format!(" Fixes: {fix}."));
        let head = format!("\n## {code}\n\n`{name}`, {severity}: {summary}{fixable}");
        let mut lines = vec![head];
        let mut in_code = false;
        for line in rule.explanation_text().lines() {
            in_code ^= line.starts_with("```");
            lines.push(match line.strip_prefix("# ").filter(|_| !in_code) {
                Some(heading) => format!("\n### {heading}\n"),
                None => line.to_owned(),
            });
        }
        page.push_str(&lines.join("\n"));
        page.push('\n');
    }
    // Sections end with an empty line, and begin with one.
    page.replace("\n\n\n", "\n\n")
}

/// Where the page is to be read: in the repository that the package says it comes from, if it says one.
pub(super) fn page_url() -> Option<String> {
    page_in(env!("CARGO_PKG_REPOSITORY"))
}

fn page_in(repository: &str) -> Option<String> {
    let repository = repository.trim_end_matches('/');
    let version = env!("CARGO_PKG_VERSION");
    (!repository.is_empty())
        .then(|| format!("{repository}/blob/v{version}/src/validate/rules/README.md"))
}

#[cfg(test)]
mod tests {
    use super::page_in;

    #[test]
    fn a_page_is_where_the_repository_is() {
        assert_eq!(page_in(""), None);
        let version = env!("CARGO_PKG_VERSION");
        let page =
            format!("https://example.com/pkgtool/blob/v{version}/src/validate/rules/README.md");
        assert_eq!(page_in("https://example.com/pkgtool/"), Some(page));
    }
}
