//! `pkgtool rules`.

use std::path::Path;

use clap::ValueEnum;
use serde_json::json;

use super::exit::{Exit, Failure};
use super::output;
use super::policy_args::SettingsArgs;
use crate::diagnostic::{Applicability, RuleMeta};
use crate::policy::{Cause, Level, Overrides, Settings};
use crate::validate;

/// Arguments of `pkgtool rules`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The settings are those for files in the working directory. A Markdown table and the page say what \
                  rules are without any."
)]
pub(super) struct Args {
    /// How to print the list
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,

    #[command(flatten)]
    settings: SettingsArgs,
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
    let policy = args.settings.policy(Overrides::default())?;
    let settings = policy.settings_for(Path::new(""));
    let settings = settings.as_deref();
    output::print(&match args.format {
        ListFormat::Table => match settings {
            None => table(&rules),
            Some(settings) => table_under(settings, &rules),
        },
        ListFormat::Markdown => markdown(&rules),
        ListFormat::Json => json(&rules, settings),
        ListFormat::Page => page(&rules),
    })?;
    let wrong = settings.map_or(0, |settings| settings.findings.len());
    if wrong > 0 {
        let plural = if wrong == 1 { "" } else { "s" };
        let file = settings.map_or("", file_of);
        output::note(&format!(
            "{file} has {wrong} error{plural}; `pkgtool validate {file}` tells them"
        ));
    }
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

/// The same with the severity in force before the rule's own, and at the end the setting that makes the difference.
fn table_under(settings: &Settings, rules: &[&RuleMeta]) -> String {
    let width = rules.iter().map(|rule| rule.name.len()).max().unwrap_or(0);
    let file = file_of(settings);
    let mut text = format!(
        "# {file}: code, severity in force, by default, fix, rule, and why it has another\n"
    );
    for rule in rules {
        let (level, cause) = settings.in_force(rule);
        let cause = cause.map(|cause| match cause {
            Cause::Select => "`select` names others".to_owned(),
            Cause::Ignore(one) => format!("`ignore` has `{}`", one.text()),
            Cause::Severity(one) => {
                format!("`severity` has `{} = \"{}\"`", one.text(), level.name())
            }
        });
        let mut globs = settings.not_looked_at(rule).peekable();
        let globs = globs.peek().is_some().then(|| {
            let globs: Vec<String> = globs.map(|glob| format!("`{glob}`")).collect();
            format!("not in {}", globs.join(", "))
        });
        let told: Vec<String> = cause.into_iter().chain(globs).collect();
        let line = format!(
            "{}  {:<8} {:<8} {:<6}  {:<width$}  {}",
            rule.code,
            level.name(),
            rule.severity.name(),
            fix(rule).unwrap_or("-"),
            rule.name,
            told.join("; "),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The file that settings stand in, as reports show it.
fn file_of(settings: &Settings) -> &str {
    let nested = settings.tightened_by.last().map(String::as_str);
    let file = || Some(settings.file.as_ref()?.1.path.as_str());
    nested.or_else(file).unwrap_or_default()
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

fn json(rules: &[&RuleMeta], settings: Option<&Settings>) -> String {
    let rules: Vec<_> = rules
        .iter()
        .map(|rule| {
            let own = (Level::At(rule.severity), None);
            let (level, cause) = settings.map_or(own, |settings| settings.in_force(rule));
            let globs = settings.map(|settings| settings.not_looked_at(rule).collect::<Vec<_>>());
            json!({
                "code": rule.code,
                "rule": rule.name,
                "severity": rule.severity,
                "in_force": level.name(),
                "changed_by": cause.map(|cause| json!({ "setting": cause.key(), "rules": cause.rules() })),
                "not_in": globs.unwrap_or_default(),
                "summary": rule.summary,
                "fix": rule.fix,
                "explanation": rule.explanation_text(),
            })
        })
        .collect();
    let settings = settings.map(
        |settings| json!({ "file": file_of(settings), "deny_warnings": settings.deny_warnings }),
    );
    format!(
        "{:#}\n",
        json!({ "version": 1, "settings": settings, "rules": rules })
    )
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
