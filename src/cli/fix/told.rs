//! Reports of `pkgtool fix`: as text for people and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use pkgtool_base::diagnostic::{Applicability, Diagnostic, Severity};
use pkgtool_base::source::text::{defuse, defuse_line};
use pkgtool_check::fix::{FileResult, FixOptions, FixOutcome, Fixed};

/// Maximum number of findings in the text.
const MAX_LISTED: usize = 40;

/// Renders the report as text.
pub(in crate::cli) fn human(
    outcome: &FixOutcome,
    left: &[Diagnostic],
    options: &FixOptions,
) -> String {
    let mut text = String::new();
    for file in &outcome.files {
        write_file(&mut text, file);
    }
    for one in left.iter().take(MAX_LISTED) {
        let start = one.start();
        let (path, pointer) = (&one.source.path, &one.pointer);
        let (line, column) = (start.line, start.column);
        let place = match pointer.as_str() {
            "" => path.clone(),
            _ => format!("{path}:{line}:{column}"),
        };
        let message = defuse_line(&one.message);
        let (severity, code, name) = (one.severity.name(), one.rule.code, one.rule.name);
        write_line(
            &mut text,
            &format!("left: {place} {severity} {code} {name}: {message}"),
        );
        write_line(
            &mut text,
            &format!("      {}", defuse_line(&reason_not_fixed(one, options))),
        );
    }
    if left.len() > MAX_LISTED {
        write_line(
            &mut text,
            &format!(
                "left: {} more; `pkgtool validate` shows all",
                left.len() - MAX_LISTED
            ),
        );
    }
    write_line(&mut text, &summary(outcome, left, options));
    defuse(&text)
}

fn write_file(text: &mut String, file: &FileResult) {
    write_line(text, &file.shown);
    for fixed in &file.fixed {
        let (code, name) = (fixed.rule.code, fixed.rule.name);
        write_line(
            text,
            &format!("  {code} {name}: {}", defuse_line(&fixed.title)),
        );
    }
    if let Some(reason) = &file.refused {
        write_line(text, &format!("  not fixed: {}", defuse_line(reason)));
    }
}

fn write_line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

fn summary(outcome: &FixOutcome, left: &[Diagnostic], options: &FixOptions) -> String {
    let files = outcome
        .files
        .iter()
        .filter(|file| !file.fixed.is_empty())
        .count();
    let made = format!(
        "{} in {}",
        counted(outcome.fixes(), "fix", "fixes"),
        counted(files, "file", "files")
    );
    let done = match (outcome.fixes(), options.writes) {
        (0, true) => "nothing was changed".to_owned(),
        (0, false) => "nothing would change".to_owned(),
        (_, true) => made,
        (_, false) => format!("{made} would be made"),
    };
    let errors = errors(left);
    let rest = match left.len() {
        0 => "nothing is left".to_owned(),
        all => {
            let verb = if all == 1 { "is" } else { "are" };
            let errors = counted(errors, "error", "errors");
            format!(
                "{} {verb} left, including {errors}",
                counted(all, "finding", "findings")
            )
        }
    };
    format!("{done}; {rest}")
}

fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Returns why a finding was not fixed.
fn reason_not_fixed(diagnostic: &Diagnostic, options: &FixOptions) -> String {
    let help = diagnostic
        .help
        .as_deref()
        .unwrap_or("the author must decide");
    match &diagnostic.fix {
        Some(fix) if fix.applicability > options.max_applicability => {
            format!("--unsafe would {}", fix.title)
        }
        Some(_) if !options.only.is_empty() && !options.only.contains(diagnostic.rule.code) => {
            "it has a fix, but --rule excludes it".to_owned()
        }
        Some(fix) => format!("not fixed: {}", fix.title),
        None => format!("no fix: {help}"),
    }
}

/// Renders the report as one JSON document, version 1. Later versions only add fields.
pub(in crate::cli) fn json(
    outcome: &FixOutcome,
    left: &[Diagnostic],
    options: &FixOptions,
) -> String {
    let files: Vec<Value> = outcome
        .files
        .iter()
        .map(|file| file_json(file, options))
        .collect();
    let left_json: Vec<Value> = left
        .iter()
        .map(|one| remaining_finding_json(one, options))
        .collect();
    let document = json!({
        "version": 1,
        "summary": {
            "checked": outcome.checked,
            "fixed": outcome.fixes(),
            "files": outcome.files.iter().filter(|file| !file.fixed.is_empty()).count(),
            "refused": outcome.refusals(),
            "left": left.len(),
            "errors": errors(left),
            "written": options.writes,
        },
        "files": files,
        "left": left_json,
    });
    format!("{document:#}\n")
}

fn file_json(file: &FileResult, options: &FixOptions) -> Value {
    let fixed = file.fixed.iter().map(|fixed| {
        json!({
            "code": fixed.rule.code,
            "rule": fixed.rule.name,
            "title": fixed.title,
            "applicability": fixed.applicability,
        })
    });
    let renamed = file.renamed.iter().map(|rename| {
        let (from, to) = (rename.from.to_string_lossy(), rename.to.to_string_lossy());
        json!({ "from": from, "to": to })
    });
    let is_changed = file.before != file.after || !file.renamed.is_empty();
    json!({
        "path": file.shown,
        "written": options.writes && is_changed,
        "fixed": fixed.collect::<Vec<_>>(),
        "renamed": renamed.collect::<Vec<_>>(),
        "refused": file.refused,
    })
}

fn remaining_finding_json(one: &Diagnostic, options: &FixOptions) -> Value {
    let fix = one.fix.as_ref();
    json!({
        "code": one.rule.code,
        "rule": one.rule.name,
        "severity": one.severity,
        "message": one.message,
        "path": one.source.path,
        "pointer": one.pointer,
        "fix": fix.map(|fix| json!({ "title": fix.title, "applicability": fix.applicability })),
        "why": reason_not_fixed(one, options),
    })
}

/// Counts the findings that are errors.
pub(in crate::cli) fn errors(left: &[Diagnostic]) -> usize {
    left.iter()
        .filter(|one| one.severity == Severity::Error)
        .count()
}

/// Returns the files that could not be fixed, and the reasons.
pub(in crate::cli) fn failures(outcome: &FixOutcome) -> Vec<(&str, &str)> {
    let files = outcome.files.iter();
    files
        .filter_map(|file| Some((file.shown.as_str(), file.refused.as_deref()?)))
        .collect()
}

/// Formats one fix as a line.
pub(in crate::cli) fn fixed_line(shown: &str, fixed: &Fixed) -> String {
    let (code, name) = (fixed.rule.code, fixed.rule.name);
    let consent = match fixed.applicability {
        Applicability::Safe => "",
        Applicability::Unsafe => " (unsafe)",
    };
    format!("{shown}: {code} {name}: {}{consent}", fixed.title)
}
