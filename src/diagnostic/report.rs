//! Findings, diagnostics and the report of one run.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::Serialize;

use super::{Fix, RuleMeta, Severity};
use crate::source::{Document, JsonPath, LineIndex, Position, Span};

/// Longest message or help, in characters. Signatures of large models are long.
const MAX_TEXT: usize = 2000;
/// Most other places of one fault that are named.
const MAX_PLACES: usize = 3;

/// The place a finding is about, as a rule knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anchor {
    /// The file as a whole.
    File,
    /// A value.
    Value(JsonPath),
    /// The key of a member.
    Key(JsonPath),
    /// A piece of text, in a file that did not parse.
    Text(Span),
    /// A place whose bytes are known: a path may stand for several members, or its document be gone.
    At(JsonPath, Span),
}

impl Anchor {
    /// The path of a value or key.
    pub fn path(&self) -> Option<&JsonPath> {
        match self {
            Self::Value(path) | Self::Key(path) | Self::At(path, _) => Some(path),
            Self::File | Self::Text(_) => None,
        }
    }
}

/// Something a rule found.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The rule.
    pub rule: &'static RuleMeta,
    /// How bad this finding is.
    pub severity: Severity,
    /// Where.
    pub anchor: Anchor,
    /// What was expected and what was found.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// The file that is at fault, where it is not the one that the finding stands in.
    pub subject: Option<PathBuf>,
    /// What mends it.
    pub fix: Option<Fix>,
}

/// A finding in a file, with its byte span.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// The rule.
    pub rule: &'static RuleMeta,
    /// How bad it is.
    pub severity: Severity,
    /// What was expected and what was found.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// The file.
    pub source: Arc<SourceText>,
    /// JSON Pointer of the value; `""` for the file as a whole.
    pub pointer: String,
    /// Bytes of the file.
    pub span: Span,
    /// The file that is at fault, where it is not the one that the finding stands in.
    pub subject: Option<PathBuf>,
    /// What mends it.
    pub fix: Option<Fix>,
}

/// A checked file: its path and text.
#[derive(Debug)]
pub struct SourceText {
    /// The path as shown, with `/` between its parts.
    pub path: String,
    /// The text; empty where it could not be read.
    pub text: String,
    lines: OnceLock<LineIndex>,
}

/// Everything one run found.
#[derive(Debug, Default)]
pub struct Report {
    /// Paths of the checked files, sorted.
    pub files: Vec<String>,
    /// How many of them are package configs.
    pub packages: usize,
    /// How many of them are precision lists.
    pub lists: usize,
    /// Diagnostics in stable order: by path, place, code, message.
    pub diagnostics: Vec<Diagnostic>,
    /// How many there were beside these, by severity; counted, but not shown.
    pub withheld: BTreeMap<Severity, usize>,
    /// Paths of files whose warnings count as errors, because a project says so.
    pub denied: BTreeSet<String>,
}

/// How many of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// Package configs checked.
    pub packages: usize,
    /// Findings that are errors.
    pub errors: usize,
    /// Findings that are warnings.
    pub warnings: usize,
    /// Findings that are notes.
    pub notes: usize,
}

impl RuleMeta {
    /// A finding of this rule, at its default severity.
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
    /// Says what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(cut(help.into()));
        self
    }

    /// Says what mends it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<Option<Fix>>) -> Self {
        self.fix = fix.into();
        self
    }

    /// Says that this file is at fault. Several findings of one rule about one file are one.
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

    /// The bytes of the file that it is about.
    pub fn span(&self, document: Option<&Document>) -> Span {
        match (&self.anchor, document) {
            (Anchor::Text(span) | Anchor::At(_, span), _) => *span,
            (Anchor::Value(path), Some(document)) => document.value_span(path),
            (Anchor::Key(path), Some(document)) => document.key_span(path),
            (Anchor::File, Some(document)) => document.root.span,
            (_, None) => Span::new(0, 0),
        }
    }

    /// Finds the place in the file's text.
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

/// A text short enough to show: what it quotes from a file may have megabytes.
fn cut(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(at);
        text.push('…');
    }
    text
}

impl SourceText {
    /// A file of this path and text.
    pub fn new(path: String, text: String) -> Self {
        Self {
            path,
            lines: OnceLock::new(),
            text,
        }
    }

    /// Line and column of a byte offset.
    pub fn position(&self, offset: usize) -> Position {
        self.lines().position(&self.text, offset)
    }

    /// The line starts, looked for when they are first asked for: most files have no findings.
    pub fn lines(&self) -> &LineIndex {
        self.lines.get_or_init(|| LineIndex::new(&self.text))
    }
}

impl Diagnostic {
    /// Where it begins.
    pub fn start(&self) -> Position {
        self.source.position(self.span.start)
    }

    /// Where it ends (the position after its last character).
    pub fn end(&self) -> Position {
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
    /// Puts files and diagnostics into their stable order, and makes what one rule says of one file
    /// one diagnostic, at the first place that names the file.
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
            let shown = places.iter().take(MAX_PLACES).cloned().collect::<Vec<_>>();
            let more = match places.len().saturating_sub(MAX_PLACES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let message = &mut kept[at].message;
            *message = format!("{message} (also named at {}{more})", shown.join(", "));
        }
        self.diagnostics = kept;
    }

    /// Keeps the worst `most` diagnostics, of equal severity the first ones; the others still count.
    /// Gives how many others there are.
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

    /// Counts.
    pub fn summary(&self) -> Summary {
        let count = |severity| {
            let all = self.diagnostics.iter();
            let shown = all.filter(|d| d.severity == severity).count();
            shown + self.withheld.get(&severity).copied().unwrap_or(0)
        };
        Summary {
            packages: self.packages,
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            notes: count(Severity::Note),
        }
    }
}
