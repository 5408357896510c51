//! `pkgtool rules`.

use std::path::Path;

use clap::ValueEnum;
use serde_json::json;

use super::exit::{Exit, Failure};
use super::output;
use super::policy_args::SettingsArgs;
use pkgtool_base::diagnostic::{Applicability, RuleMeta, TextTable, book};
use pkgtool_check::policy::{Cause, Overrides, PolicySettings, RuleLevel};
use pkgtool_check::validate;

/// Arguments of `pkgtool rules`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = book::help(
        "The settings are those for files in the working directory. The formats `markdown` and `page` ignore settings.",
        "rules"
    )
)]
pub(super) struct RulesArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,

    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    /// Aligned columns
    Table,
    /// A Markdown table
    Markdown,
    /// JSON
    Json,
    /// A Markdown page with the output of `explain` for each rule
    Page,
}

/// Runs the command.
pub(super) fn run(args: &RulesArgs) -> Result<Exit, Failure> {
    let rules = validate::rule_metas();
    let policy = args.settings.policy(Overrides::default())?;
    let settings = policy.settings_for(Path::new(""));
    let settings = settings.as_deref();
    output::print(&match args.format {
        ListFormat::Table => match settings {
            None => table(&rules),
            Some(settings) => table_with_settings(settings, &rules),
        },
        ListFormat::Markdown => markdown(&rules),
        ListFormat::Json => json(&rules, settings),
        ListFormat::Page => page(&rules),
    })?;
    let wrong = settings.map_or(0, |settings| settings.findings.len());
    if wrong > 0 {
        let plural = if wrong == 1 { "" } else { "s" };
        let file = settings.map_or("", settings_file);
        output::note(&format!(
            "{file} has {wrong} error{plural}; run `pkgtool validate {file}` to show them"
        ));
    }
    Ok(Exit::Clean)
}

fn table(rules: &[&RuleMeta]) -> String {
    let mut table = TextTable::of_text(5);
    for rule in rules {
        table.row([
            rule.code,
            rule.severity.name(),
            applicability_name(rule).unwrap_or("-"),
            rule.name,
            rule.summary,
        ]);
    }
    table.to_string()
}

/// Returns the table with the severity in force before the default one, and with the setting that
/// caused the difference at the end.
fn table_with_settings(settings: &PolicySettings, rules: &[&RuleMeta]) -> String {
    let file = settings_file(settings);
    let head = format!(
        "# {file}: code, severity in force, default severity, fix, rule, reason for the difference\n"
    );
    let mut table = TextTable::of_text(6);
    for rule in rules {
        let (level, cause) = settings.in_force(rule);
        let cause = cause.map(|cause| match cause {
            Cause::Select => "not in `select`".to_owned(),
            Cause::Ignore(one) => format!("`ignore` lists `{}`", one.text()),
            Cause::Severity(one) => {
                format!("`severity` has `{} = \"{}\"`", one.text(), level.name())
            }
        });
        let mut globs = settings.disabled_globs(rule).peekable();
        let globs = globs.peek().is_some().then(|| {
            let globs: Vec<String> = globs.map(|glob| format!("`{glob}`")).collect();
            format!("not in {}", globs.join(", "))
        });
        let reasons: Vec<String> = cause.into_iter().chain(globs).collect();
        table.row([
            rule.code,
            level.name(),
            rule.severity.name(),
            applicability_name(rule).unwrap_or("-"),
            rule.name,
            &reasons.join("; "),
        ]);
    }
    format!("{head}{table}")
}

/// Returns the path of the settings file as reports show it.
fn settings_file(settings: &PolicySettings) -> &str {
    let nested = settings.tightened_by.last().map(String::as_str);
    let file = || Some(settings.file.as_ref()?.1.path.as_str());
    nested.or_else(file).unwrap_or_default()
}

fn markdown(rules: &[&RuleMeta]) -> String {
    let mut table = TextTable::of_text(5);
    table.row(["code", "rule", "severity", "fix", "a finding means"]);
    for rule in rules {
        let name = format!("`{}`", rule.name);
        let fix = applicability_name(rule).unwrap_or_default();
        let severity = rule.severity.name();
        table.row([rule.code, &name, severity, fix, rule.summary]);
    }
    table.to_markdown()
}

/// Returns the least safe applicability of the rule's fixes: `safe` or `unsafe`.
fn applicability_name(rule: &RuleMeta) -> Option<&'static str> {
    rule.fix.map(Applicability::name)
}

fn json(rules: &[&RuleMeta], settings: Option<&PolicySettings>) -> String {
    let rules: Vec<_> = rules
        .iter()
        .map(|rule| {
            let own = (RuleLevel::At(rule.severity), None);
            let (level, cause) = settings.map_or(own, |settings| settings.in_force(rule));
            let globs = settings.map(|settings| settings.disabled_globs(rule).collect::<Vec<_>>());
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
        |settings| json!({ "file": settings_file(settings), "deny_warnings": settings.deny_warnings }),
    );
    format!(
        "{:#}\n",
        json!({ "version": 1, "settings": settings, "rules": rules })
    )
}

/// Renders a page with one section per rule. Each heading is the code alone, so that the code is
/// its anchor.
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
        let fixable =
            applicability_name(rule).map_or_else(String::new, |fix| format!(" Fixes: {fix}."));
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
    // Sections begin and end with an empty line.
    page.replace("\n\n\n", "\n\n")
}
