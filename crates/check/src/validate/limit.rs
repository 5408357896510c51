//! Limits the findings of one file: keeps the most severe ones and reports how many were dropped.
//!
//! Invariant: at most [`MAX_FINDINGS`] findings are kept between rules, and the reported text,
//! including pointers, has about [`MAX_TEXT_BYTES`] bytes at most.

use std::cmp::Reverse;
use std::sync::Arc;

use super::rules;
use pkgtool_base::diagnostic::{Diagnostic, Finding, Severity, SourceText};
use pkgtool_base::source::Document;

/// Maximum number of findings reported for one file.
const MAX_FINDINGS: usize = 1000;
/// Maximum size of messages, helps and pointers for one file, in bytes. A single finding may exceed
/// it.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// The most severe findings, and the number of dropped ones.
pub(super) struct FindingLimiter<'d> {
    document: Option<&'d Document>,
    kept: Vec<Finding>,
    dropped: usize,
}

impl<'d> FindingLimiter<'d> {
    pub(super) fn new(document: Option<&'d Document>) -> Self {
        Self {
            document,
            kept: Vec::new(),
            dropped: 0,
        }
    }

    /// Adds a rule's findings.
    pub(super) fn add(&mut self, findings: Vec<Finding>) {
        self.kept.extend(findings);
        let excess = self.kept.len().saturating_sub(MAX_FINDINGS);
        if excess > 0 {
            self.sort();
            self.kept.truncate(MAX_FINDINGS);
            self.dropped += excess;
        }
    }

    /// Locates the kept findings in the source text and adds a note if some were dropped. `source`
    /// is called only if there are findings.
    pub(super) fn locate(mut self, source: impl FnOnce() -> SourceText) -> Vec<Diagnostic> {
        if self.kept.is_empty() && self.dropped == 0 {
            return Vec::new();
        }
        let source = &Arc::new(source());
        self.sort();
        let mut diagnostics: Vec<Diagnostic> = Vec::with_capacity(self.kept.len());
        let mut text = 0;
        for finding in self.kept {
            if text > MAX_TEXT_BYTES {
                self.dropped += 1;
                continue;
            }
            let diagnostic = finding.locate(source, self.document);
            text += text_bytes(&diagnostic);
            diagnostics.push(diagnostic);
        }
        if self.dropped > 0 {
            let note = rules::findings_limit(self.dropped);
            diagnostics.push(note.locate(source, None));
        }
        diagnostics
    }

    fn sort(&mut self) {
        let document = self.document;
        let order = |finding: &Finding| -> (Reverse<Severity>, usize) {
            (Reverse(finding.severity), finding.span(document).start)
        };
        self.kept.sort_by_cached_key(order);
    }
}

fn text_bytes(diagnostic: &Diagnostic) -> usize {
    let help = diagnostic.help.as_ref().map_or(0, String::len);
    diagnostic.message.len() + help + diagnostic.pointer.len()
}
