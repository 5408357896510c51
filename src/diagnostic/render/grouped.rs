//! Many findings put together by their causes, so that a long report can be read.
//!
//! Invariant: each finding is in exactly one group; what differs between findings of one cause is what
//! their messages quote, and numbers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::text::defuse_line;

/// So many findings are shown one by one.
pub(super) const FEW: usize = 40;
/// Most places named under a group.
const MAX_PLACES: usize = 5;
/// Most causes named at the end.
const MAX_FIRST: usize = 3;

/// Findings of one cause, in the report's order; at least one.
pub(super) struct Group<'a> {
    findings: Vec<&'a Diagnostic>,
}

/// The groups, the most severe first, then in the report's order.
pub(super) fn groups(diagnostics: &[Diagnostic]) -> Vec<Group<'_>> {
    let mut known: HashMap<(&str, Severity, String), usize> = HashMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for diagnostic in diagnostics {
        let key = (
            diagnostic.rule.code,
            diagnostic.severity,
            cause(&diagnostic.message),
        );
        let at = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.findings.push(diagnostic),
            None => groups.push(Group {
                findings: vec![diagnostic],
            }),
        }
    }
    groups.sort_by_key(|group| Reverse(group.first().severity));
    groups
}

impl<'a> Group<'a> {
    pub(super) fn first(&self) -> &'a Diagnostic {
        self.findings[0]
    }

    /// A line about the findings behind the first.
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

    /// All findings, in the report's order.
    pub(super) fn findings(&self) -> &[&'a Diagnostic] {
        &self.findings
    }

    pub(super) fn files(&self) -> usize {
        let paths = self.findings.iter().map(|one| one.source.path.as_str());
        paths.collect::<std::collections::HashSet<_>>().len()
    }
}

/// The last lines of a long report.
pub(super) fn what_to_do_first(groups: &[Group<'_>]) -> String {
    let mut order: Vec<&Group<'_>> = groups.iter().collect();
    // What is wrong with a file as a whole hides everything else that is wrong in it.
    let hides = |group: &Group<'_>| group.first().pointer.is_empty();
    order.sort_by_key(|group| {
        let severity = group.first().severity;
        Reverse((severity, hides(group), group.findings.len()))
    });
    let mut text = "What to do first:\n".to_owned();
    for (number, group) in order.iter().take(MAX_FIRST).enumerate() {
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
    text + "`pkgtool explain CODE` tells more of a rule, `--ungrouped` shows every finding\n"
}

fn short(help: &str) -> String {
    match help.char_indices().nth(120) {
        Some((at, _)) => format!("{}…", &help[..at]),
        None => help.to_owned(),
    }
}

/// `path:line:column`.
pub(super) fn place(diagnostic: &Diagnostic) -> String {
    let start = diagnostic.start();
    let path = defuse_line(&diagnostic.source.path);
    format!("{path}:{}:{}", start.line, start.column)
}

/// A message without what it quotes and without numbers.
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
