//! Groups findings by their cause, so that long reports stay readable.
//!
//! Invariant: each finding is in exactly one group. Messages of one group differ only in quoted
//! text and numbers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::text::defuse_line;

/// Maximum number of findings that are shown without grouping.
pub(super) const MAX_UNGROUPED: usize = 40;
/// Maximum number of locations that are listed per group.
const MAX_PLACES: usize = 5;
/// Maximum number of causes that are listed at the end.
const MAX_CAUSES: usize = 3;

/// The findings of one cause in the order of the report, at least one.
pub(super) struct FindingGroup<'a> {
    findings: Vec<&'a Diagnostic>,
}

/// Returns the groups, most severe first, otherwise in the order of the report.
pub(super) fn groups(diagnostics: &[Diagnostic]) -> Vec<FindingGroup<'_>> {
    let mut known: HashMap<(&str, Severity, String), usize> = HashMap::new();
    let mut groups: Vec<FindingGroup<'_>> = Vec::new();
    for diagnostic in diagnostics {
        let key = (
            diagnostic.rule.code,
            diagnostic.severity,
            cause(&diagnostic.message),
        );
        let at = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.findings.push(diagnostic),
            None => groups.push(FindingGroup {
                findings: vec![diagnostic],
            }),
        }
    }
    groups.sort_by_key(|group| Reverse(group.first().severity));
    groups
}

impl<'a> FindingGroup<'a> {
    pub(super) fn first(&self) -> &'a Diagnostic {
        self.findings[0]
    }

    /// Returns a line about the findings after the first.
    pub(super) fn others(&self) -> Option<String> {
        let others = &self.findings[1..];
        if others.is_empty() {
            return None;
        }
        let places: Vec<String> = others
            .iter()
            .take(MAX_PLACES)
            .map(|one| place(one))
            .collect();
        let more = match others.len().saturating_sub(MAX_PLACES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "  {} more like this: {}{more}",
            others.len(),
            places.join(", ")
        ))
    }

    /// Returns all findings in the order of the report.
    pub(super) fn findings(&self) -> &[&'a Diagnostic] {
        &self.findings
    }

    pub(super) fn files(&self) -> usize {
        let paths = self.findings.iter().map(|one| one.source.path.as_str());
        paths.collect::<std::collections::HashSet<_>>().len()
    }
}

/// Returns the last lines of a long report.
pub(super) fn closing_lines(groups: &[FindingGroup<'_>]) -> String {
    let mut order: Vec<&FindingGroup<'_>> = groups.iter().collect();
    // An error of the whole file hides all other errors in it.
    let hides = |group: &FindingGroup<'_>| group.first().pointer.is_empty();
    order.sort_by_key(|group| {
        let severity = group.first().severity;
        Reverse((severity, hides(group), group.findings.len()))
    });
    let mut text = "What to do first:\n".to_owned();
    for (number, group) in order.iter().take(MAX_CAUSES).enumerate() {
        let first = group.first();
        let help = first.help.as_deref().unwrap_or(&first.message);
        let files = group.files();
        let _ = writeln!(
            text,
            "  {}. {} {}, {} in {files} file{}: {}",
            number + 1,
            first.rule.code,
            first.rule.name,
            group.findings.len(),
            if files == 1 { "" } else { "s" },
            defuse_line(&short(help)),
        );
    }
    text + "`pkgtool explain CODE` explains a rule, `--ungrouped` shows every finding\n"
}

fn short(help: &str) -> String {
    match help.char_indices().nth(120) {
        Some((at, _)) => format!("{}…", &help[..at]),
        None => help.to_owned(),
    }
}

/// Formats the location as `path:line:column`.
pub(super) fn place(diagnostic: &Diagnostic) -> String {
    let start = diagnostic.start();
    let path = defuse_line(&diagnostic.source.path);
    format!("{path}:{}:{}", start.line, start.column)
}

/// Returns a message without quoted text and numbers.
fn cause(message: &str) -> String {
    let mut cause = String::new();
    let mut quote = None;
    for c in message.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '`' | '"') => {
                quote = Some(c);
                cause.push('`');
            }
            (None, c) if c.is_ascii_digit() => {
                if !cause.ends_with('#') {
                    cause.push('#');
                }
            }
            (None, c) => cause.push(c),
        }
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::cause;

    #[test]
    fn what_is_quoted_is_no_cause() {
        let one = cause("`a.pte` is a Git LFS pointer to 23 bytes");
        assert_eq!(one, cause("`b_c.pte` is a Git LFS pointer to 4567 bytes"));
        assert_ne!(one, cause("`a.pte` is empty (0 bytes)"));
    }
}
