//! One file, mended in memory.

use std::collections::HashSet;
use std::path::PathBuf;

use super::{Fixed, Options, errors};
use crate::diagnostic::{Diagnostic, Fix};
use crate::package::{Found, Loaded};
use crate::source::Span;
use crate::source::edit::{TextEdit, apply};
use crate::validate::Recheck;

/// Most rounds of one file. A round makes every fix that is known and touches no other; what they uncover is
/// the next one's.
const MAX_ROUNDS: usize = 32;
/// Most fixes that are tried one by one.
const MAX_TRIES: usize = 200;

/// A file as it was, and as it shall be.
pub(super) struct Draft {
    pub(super) path: PathBuf,
    pub(super) shown: String,
    pub(super) before: String,
    pub(super) text: String,
    pub(super) fixed: Vec<Fixed>,
    /// What is found in `text`.
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) refused: Option<String>,
    /// What was found in `before`.
    found_before: Vec<Diagnostic>,
}

impl Draft {
    /// Makes every fix that is wanted; `None` if the file is no package's.
    pub(super) fn of(
        options: &Options,
        recheck: &Recheck<'_>,
        found: &Found,
        loaded: &Loaded,
    ) -> Option<Self> {
        let diagnostics = recheck.check(found, loaded)?;
        let mut draft = Self {
            path: found.path.clone(),
            shown: recheck.shown(found),
            before: loaded.text.clone(),
            text: loaded.text.clone(),
            fixed: Vec::new(),
            found_before: diagnostics.clone(),
            diagnostics,
            refused: None,
        };
        let bench = Bench {
            options,
            recheck,
            found,
        };
        if !draft.all_together(&bench) {
            draft.reset();
            draft.one_by_one(&bench);
        }
        Some(draft)
    }

    /// Whether the text is another than it was.
    pub(super) fn is_changed(&self) -> bool {
        self.text != self.before
    }

    /// Leaves the file as it was.
    pub(super) fn refuse(&mut self, reason: &str) {
        self.reset();
        self.refused = Some(reason.to_owned());
    }

    fn reset(&mut self) {
        self.text.clone_from(&self.before);
        self.diagnostics.clone_from(&self.found_before);
        self.fixed.clear();
    }

    /// All fixes, as many as possible at a time. Whether the file is no worse than it was.
    fn all_together(&mut self, bench: &Bench<'_>) -> bool {
        let mut seen = HashSet::from([self.text.clone()]);
        for _ in 0..MAX_ROUNDS {
            let batch = picked(bench.options, &self.diagnostics);
            if batch.is_empty() {
                break;
            }
            let edits: Vec<TextEdit> = batch
                .iter()
                .flat_map(|(_, fix)| fix.edits.clone())
                .collect();
            let Some(text) = apply(&self.text, &edits) else {
                return false;
            };
            // Fixes that undo one another would go on for ever.
            if !seen.insert(text.clone()) {
                return false;
            }
            let Some(diagnostics) = bench.check(&text) else {
                return false;
            };
            self.fixed
                .extend(batch.iter().map(|(one, fix)| Fixed::new(one, fix)));
            self.text = text;
            self.diagnostics = diagnostics;
        }
        !is_worse(&self.found_before, &self.diagnostics)
    }

    /// One fix after the other; those that make more errors than they mend are left.
    fn one_by_one(&mut self, bench: &Bench<'_>) {
        let mut refused = HashSet::new();
        let mut reason = None;
        let mut seen = HashSet::from([self.text.clone()]);
        for _ in 0..MAX_TRIES {
            let next = wanted(bench.options, &self.diagnostics).find_map(|(one, fix)| {
                let key = (one.rule.code, one.pointer.clone(), fix.title.clone());
                let is_new = !refused.contains(&key);
                is_new.then(|| (key, Fixed::new(one, fix), fix.edits.clone()))
            });
            let Some((key, made, edits)) = next else {
                break;
            };
            let attempt = apply(&self.text, &edits).filter(|text| !seen.contains(text));
            let attempt = attempt.and_then(|text| Some((bench.check(&text)?, text)));
            match attempt {
                Some((diagnostics, text)) if !is_worse(&self.diagnostics, &diagnostics) => {
                    self.fixed.push(made);
                    seen.insert(text.clone());
                    self.text = text;
                    self.diagnostics = diagnostics;
                }
                _ => {
                    let (code, name) = (made.rule.code, made.rule.name);
                    reason.get_or_insert_with(|| {
                        format!(
                            "{code} {name}: to {} would make more errors than it mends",
                            made.title
                        )
                    });
                    refused.insert(key);
                }
            }
        }
        self.refused = reason;
    }
}

/// What a file is checked with.
struct Bench<'a> {
    options: &'a Options,
    recheck: &'a Recheck<'a>,
    found: &'a Found,
}

impl Bench<'_> {
    fn check(&self, text: &str) -> Option<Vec<Diagnostic>> {
        let loaded = Loaded::from_bytes(text.as_bytes().to_vec());
        self.recheck.check(self.found, &loaded)
    }
}

impl Fixed {
    /// A finding and its fix.
    pub(super) fn new(diagnostic: &Diagnostic, fix: &Fix) -> Self {
        Self {
            rule: diagnostic.rule,
            title: fix.title.clone(),
            applicability: fix.applicability,
        }
    }
}

/// Fixes of texts that are to be made, with their findings.
fn wanted<'d>(
    options: &'d Options,
    diagnostics: &'d [Diagnostic],
) -> impl Iterator<Item = (&'d Diagnostic, &'d Fix)> {
    let wanted = diagnostics.iter().filter(|one| options.wants(one));
    let fixes = wanted.filter_map(|one| Some((one, one.fix.as_ref()?)));
    fixes.filter(|(_, fix)| fix.rename.is_none() && !fix.edits.is_empty())
}

/// Those of them that do not touch one another, the first before the others.
fn picked<'d>(
    options: &'d Options,
    diagnostics: &'d [Diagnostic],
) -> Vec<(&'d Diagnostic, &'d Fix)> {
    let mut taken = Taken::default();
    let fixes = wanted(options, diagnostics);
    fixes.filter(|(_, fix)| taken.take(&fix.edits)).collect()
}

/// Pieces of the text that are changed already, by where they begin.
#[derive(Default)]
struct Taken {
    spans: std::collections::BTreeMap<usize, usize>,
}

impl Taken {
    /// Takes all of these pieces, unless one of them touches what is taken.
    fn take(&mut self, edits: &[TextEdit]) -> bool {
        let is_free = edits.iter().all(|edit| self.is_free(edit.span));
        if is_free {
            let spans = edits.iter().map(|edit| (edit.span.start, edit.span.end));
            self.spans.extend(spans);
        }
        is_free
    }

    fn is_free(&self, span: Span) -> bool {
        // Pieces that are taken do not touch: the last that begins before the end is the one to ask.
        let before = self.spans.range(..=span.end).next_back();
        before.is_none_or(|(_, end)| *end < span.start)
    }
}

/// Whether a text has more errors than one before it, or is no JSON where that was.
fn is_worse(before: &[Diagnostic], after: &[Diagnostic]) -> bool {
    let is_text = |diagnostics: &[Diagnostic]| {
        // Of what does not parse nothing else is known: this finding is the only one then.
        diagnostics.iter().any(|one| one.rule.name == "json-syntax")
    };
    match (is_text(before), is_text(after)) {
        (true, false) => false,
        (false, true) => true,
        _ => errors(after) > errors(before),
    }
}
