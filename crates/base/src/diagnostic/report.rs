//! Findings, diagnostics, and the report of a run.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::Serialize;

use super::{Fix, RuleMeta, Severity};
use crate::source::{Document, JsonPath, LineIndex, Span, TextPosition};

/// Maximum length of a message or a help text, in characters. Signatures of large models are long.
const MAX_TEXT_CHARS: usize = 2000;
/// Maximum number of further locations of a fault that are listed.
const MAX_LISTED_LOCATIONS: usize = 3;

/// The location of a finding, as a rule states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anchor {
    /// The whole file.
    File,
    /// A value.
    Value(JsonPath),
    /// The key of a member.
    Key(JsonPath),
    /// A span of text in a file that could not be parsed.
    Text(Span),
    /// A path with a known span: the path may match several members, or the document may not be
    /// available.
    At(JsonPath, Span),
}

impl Anchor {
    /// Returns the path of a value or key.
    pub fn path(&self) -> Option<&JsonPath> {
        match self {
            Self::Value(path) | Self::Key(path) | Self::At(path, _) => Some(path),
            Self::File | Self::Text(_) => None,
        }
    }
}

/// A finding of a rule.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The rule.
    pub rule: &'static RuleMeta,
    /// Severity of this finding.
    pub severity: Severity,
    /// Location in the file.
    pub anchor: Anchor,
    /// Expected and found values.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
    /// The faulty file, if it is not the one with the finding.
    pub subject: Option<PathBuf>,
    /// The fix, if there is one.
    pub fix: Option<Fix>,
}

/// A finding in a file, with its byte span.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// The rule.
    pub rule: &'static RuleMeta,
    /// Severity of the finding.
    pub severity: Severity,
    /// Expected and found values.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
    /// The file.
    pub source: Arc<SourceText>,
    /// JSON pointer of the value; `""` for the whole file.
    pub pointer: String,
    /// Span in the file.
    pub span: Span,
    /// The faulty file, if it is not the one with the finding.
    pub subject: Option<PathBuf>,
    /// The fix, if there is one.
    pub fix: Option<Fix>,
}

/// A checked file: its path and text.
#[derive(Debug)]
pub struct SourceText {
    /// Path for display, with `/` as the separator.
    pub path: String,
    /// The text; empty if the file could not be read.
    pub text: String,
    lines: OnceLock<LineIndex>,
}

/// The findings of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Paths of the checked files, sorted.
    pub files: Vec<String>,
    /// Number of package configs among the files.
    pub packages: usize,
    /// Number of precision lists among the files.
    pub lists: usize,
    /// Diagnostics in stable order: by path, location, code, message.
    pub diagnostics: Vec<Diagnostic>,
    /// Number of removed diagnostics by severity. They are counted, but not shown.
    pub withheld: BTreeMap<Severity, usize>,
    /// Paths of files whose warnings count as errors because of settings.
    pub denied: BTreeSet<String>,
}

/// The counts of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ReportSummary {
    /// Number of checked package configs.
    pub packages: usize,
    /// Number of errors.
    pub errors: usize,
    /// Number of warnings.
    pub warnings: usize,
    /// Number of notes.
    pub notes: usize,
}

impl RuleMeta {
    /// Creates a finding of this rule with its default severity.
    pub fn finding(&'static self, anchor: Anchor, message: impl Into<String>) -> Finding {
        Finding {
            rule: self,
            severity: self.severity,
            anchor,
            message: cut(message.into()),
            help: None,
            subject: None,
            fix: None,
        }
    }
}

impl Finding {
    /// Sets the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(cut(help.into()));
        self
    }

    /// Sets the fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<Option<Fix>>) -> Self {
        self.fix = fix.into();
        self
    }

    /// Sets the faulty file. Findings of one rule about the same file are merged into one.
    #[must_use]
    pub fn about(mut self, subject: &Path) -> Self {
        self.subject = Some(subject.to_owned());
        self
    }

    /// Overrides the rule's default severity.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Returns the span of the finding in the file.
    pub fn span(&self, document: Option<&Document>) -> Span {
        match (&self.anchor, document) {
            (Anchor::Text(span) | Anchor::At(_, span), _) => *span,
            (Anchor::Value(path), Some(document)) => document.value_span(path),
            (Anchor::Key(path), Some(document)) => document.key_span(path),
            (Anchor::File, Some(document)) => document.root.span,
            (_, None) => Span::new(0, 0),
        }
    }

    /// Converts the finding to a diagnostic with a location in the file's text.
    pub fn locate(self, source: &Arc<SourceText>, document: Option<&Document>) -> Diagnostic {
        let span = self.span(document);
        let pointer = match (&self.anchor, document) {
            (Anchor::At(path, _), _) | (Anchor::Value(path) | Anchor::Key(path), Some(_)) => {
                path.to_pointer()
            }
            _ => String::new(),
        };
        Diagnostic {
            rule: self.rule,
            severity: self.severity,
            message: self.message,
            help: self.help,
            source: Arc::clone(source),
            pointer,
            span,
            subject: self.subject,
            fix: self.fix,
        }
    }
}

/// Truncates a text, since text quoted from a file may be megabytes long.
fn cut(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(MAX_TEXT_CHARS) {
        text.truncate(at);
        text.push('…');
    }
    text
}

impl SourceText {
    /// Creates a file with this path and text.
    pub fn new(path: String, text: String) -> Self {
        Self {
            path,
            lines: OnceLock::new(),
            text,
        }
    }

    /// Returns line and column of a byte offset.
    pub fn position(&self, offset: usize) -> TextPosition {
        self.lines().position(&self.text, offset)
    }

    /// Returns the line index, which is computed on first use: most files have no findings.
    pub fn lines(&self) -> &LineIndex {
        self.lines.get_or_init(|| LineIndex::new(&self.text))
    }
}

impl Diagnostic {
    /// Returns the start position.
    pub fn start(&self) -> TextPosition {
        self.source.position(self.span.start)
    }

    /// Returns the end position, after the last character.
    pub fn end(&self) -> TextPosition {
        self.source.position(self.span.end)
    }

    fn order(&self, other: &Self) -> Ordering {
        let key = |d: &Self| (d.span.start, d.span.end, d.rule.code);
        self.source
            .path
            .cmp(&other.source.path)
            .then_with(|| key(self).cmp(&key(other)))
            .then_with(|| self.pointer.cmp(&other.pointer))
            .then_with(|| self.message.cmp(&other.message))
    }
}

impl Report {
    /// Sorts files and diagnostics into their stable order. Diagnostics of one rule about the same
    /// faulty file are merged into one, at the first location that names the file.
    pub fn sort(&mut self) {
        self.files.sort();
        self.diagnostics.sort_by(Diagnostic::order);
        self.merge_subjects();
    }

    fn merge_subjects(&mut self) {
        let mut first: HashMap<(&'static str, PathBuf), usize> = HashMap::new();
        let mut others: HashMap<usize, Vec<String>> = HashMap::new();
        let mut kept: Vec<Diagnostic> = Vec::with_capacity(self.diagnostics.len());
        for diagnostic in std::mem::take(&mut self.diagnostics) {
            if let Some(subject) = &diagnostic.subject {
                let key = (diagnostic.rule.code, subject.clone());
                let place = *first.entry(key).or_insert(kept.len());
                if place < kept.len() {
                    let place = others.entry(place).or_default();
                    place.push(format!("{}#{}", diagnostic.source.path, diagnostic.pointer));
                    continue;
                }
            }
            kept.push(diagnostic);
        }
        for (at, places) in others {
            let shown = places
                .iter()
                .take(MAX_LISTED_LOCATIONS)
                .cloned()
                .collect::<Vec<_>>();
            let more = match places.len().saturating_sub(MAX_LISTED_LOCATIONS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let message = &mut kept[at].message;
            *message = format!("{message} (also named at {}{more})", shown.join(", "));
        }
        self.diagnostics = kept;
    }

    /// Keeps the `most` most severe diagnostics, the first ones of equal severity. The others are
    /// still counted. Returns the number of removed diagnostics.
    pub fn keep_worst(&mut self, most: usize) -> usize {
        let mut order: Vec<usize> = (0..self.diagnostics.len()).collect();
        order.sort_by_key(|at| Reverse(self.diagnostics[*at].severity));
        let kept: HashSet<usize> = order.into_iter().take(most).collect();
        let all = std::mem::take(&mut self.diagnostics);
        let others = all.len() - kept.len();
        for (at, diagnostic) in all.into_iter().enumerate() {
            if kept.contains(&at) {
                self.diagnostics.push(diagnostic);
            } else {
                *self.withheld.entry(diagnostic.severity).or_default() += 1;
            }
        }
        others
    }

    /// Returns the counts.
    pub fn summary(&self) -> ReportSummary {
        let count = |severity| {
            let all = self.diagnostics.iter();
            let shown = all.filter(|d| d.severity == severity).count();
            shown + self.withheld.get(&severity).copied().unwrap_or(0)
        };
        ReportSummary {
            packages: self.packages,
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            notes: count(Severity::Note),
        }
    }
}
