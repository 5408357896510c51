//! Fixes one file in memory.
//!
//! Invariant: safe fixes leave no new finding. A safe fix that would cause one, even together with
//! the safe fixes of the new findings, is treated as unsafe. If the original text did not parse,
//! its findings were unknown, so every finding after it first parses counts as old.

use std::collections::HashSet;
use std::path::PathBuf;

use super::{FixOptions, Fixed, errors};
use crate::validate::Recheck;
use pkgtool_base::diagnostic::{Applicability, Diagnostic, Fix};
use pkgtool_base::package::{FoundFile, LoadedFile};
use pkgtool_base::source::Span;
use pkgtool_base::source::edit::{TextEdit, apply};

/// Maximum number of rounds per file. A round applies all known fixes that do not overlap; the next
/// round fixes the findings that appear then.
const MAX_ROUNDS: usize = 32;
/// Maximum number of fixes tried one by one.
const MAX_TRIES: usize = 200;

/// A file before and after its fixes.
#[derive(Debug)]
pub struct Draft {
    /// The path of the file.
    pub path: PathBuf,
    /// Its path as reports show it.
    pub shown: String,
    /// The original text.
    pub before: String,
    /// The text with the fixes applied.
    pub text: String,
    /// The applied fixes, in order.
    pub fixed: Vec<Fixed>,
    /// The findings in `text`.
    pub diagnostics: Vec<Diagnostic>,
    /// The reason why something was not fixed.
    pub refused: Option<String>,
    /// The findings in `before`.
    found_before: Vec<Diagnostic>,
}

/// Identifies the fix of a finding across versions of the text.
type FixKey = (&'static str, String, String);

impl Draft {
    /// Applies every selected fix; `None` if the file is not part of a package.
    pub fn of(
        options: &FixOptions,
        recheck: &Recheck<'_>,
        found: &FoundFile,
        loaded: &LoadedFile,
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
        let bench = FixContext {
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

    /// Returns whether the text has changed.
    pub(super) fn is_changed(&self) -> bool {
        self.text != self.before
    }

    /// Restores the original text and records the reason.
    pub(super) fn refuse(&mut self, reason: &str) {
        self.reset();
        self.refused = Some(reason.to_owned());
    }

    fn reset(&mut self) {
        self.text.clone_from(&self.before);
        self.diagnostics.clone_from(&self.found_before);
        self.fixed.clear();
    }

    /// Applies all fixes, as many as possible at a time. Returns whether the result is no worse
    /// than the original.
    fn all_together(&mut self, bench: &FixContext<'_>) -> bool {
        let before = self.found_before.clone();
        let Some(after) = bench.apply_until_stable(IntermediateText::of(self), |_| true) else {
            return false;
        };
        let is_better = !bench.is_worse(&after.known_from(&before), &after.diagnostics);
        if is_better {
            self.take(after);
        }
        is_better
    }

    /// Applies the fixes one by one, each with the fixes of the findings that it causes. Skips a
    /// fix after which the file would be worse.
    fn one_by_one(&mut self, bench: &FixContext<'_>) {
        let mut left: HashSet<FixKey> = HashSet::new();
        let mut demoted: HashSet<FixKey> = HashSet::new();
        let mut seen = HashSet::from([self.text.clone()]);
        for _ in 0..MAX_TRIES {
            let next = selected_fixes(bench.options, &self.diagnostics)
                .find(|(one, fix)| !left.contains(&key_of(one, fix)));
            let Some((one, fix)) = next else { break };
            let (key, made) = (key_of(one, fix), Fixed::new(one, fix));
            let before = self.diagnostics.clone();
            let start = IntermediateText::of(self).with(bench, [made.clone()], &fix.edits);
            let was_json = !does_not_parse(&before);
            let is_new = |one: &Diagnostic| {
                was_json && first_new_finding(&before, std::slice::from_ref(one)).is_some()
            };
            let after = start.and_then(|start| bench.apply_until_stable(start, is_new));
            let after = after.filter(|after| !seen.contains(&after.text));
            match after {
                Some(after) if !bench.is_worse(&after.known_from(&before), &after.diagnostics) => {
                    seen.insert(after.text.clone());
                    self.take(after);
                }
                Some(after) if !has_more_errors(&before, &after.diagnostics) => {
                    demoted.insert(key.clone());
                    left.insert(key);
                }
                _ => {
                    let (code, name) = (made.rule.code, made.rule.name);
                    self.refused.get_or_insert_with(|| {
                        format!(
                            "{code} {name}: the fix would cause more errors than it fixes: {}",
                            made.title
                        )
                    });
                    left.insert(key);
                }
            }
        }
        for one in &mut self.diagnostics {
            let key = one.fix.as_ref().map(|fix| key_of(one, fix));
            if let (Some(fix), Some(key)) = (&mut one.fix, key)
                && demoted.contains(&key)
            {
                fix.applicability = Applicability::Unsafe;
            }
        }
    }

    fn take(&mut self, state: IntermediateText) {
        self.text = state.text;
        self.fixed = state.fixed;
        self.diagnostics = state.diagnostics;
    }
}

/// An intermediate text with its findings.
struct IntermediateText {
    text: String,
    fixed: Vec<Fixed>,
    diagnostics: Vec<Diagnostic>,
    /// The findings when the text first parsed, if the original did not.
    first_parsed: Option<Vec<Diagnostic>>,
}

impl IntermediateText {
    fn of(draft: &Draft) -> Self {
        Self {
            text: draft.text.clone(),
            fixed: draft.fixed.clone(),
            diagnostics: draft.diagnostics.clone(),
            first_parsed: None,
        }
    }

    /// Applies more edits; `None` if they overlap.
    fn with(
        mut self,
        bench: &FixContext<'_>,
        fixed: impl IntoIterator<Item = Fixed>,
        edits: &[TextEdit],
    ) -> Option<Self> {
        self.text = apply(&self.text, edits)?;
        let diagnostics = bench.check(&self.text)?;
        if does_not_parse(&self.diagnostics) && !does_not_parse(&diagnostics) {
            self.first_parsed = Some(diagnostics.clone());
        }
        self.diagnostics = diagnostics;
        self.fixed.extend(fixed);
        Some(self)
    }

    /// Returns the findings that existed before any fix, as far as they could be known.
    fn known_from(&self, before: &[Diagnostic]) -> Vec<Diagnostic> {
        self.first_parsed.clone().unwrap_or_else(|| before.to_vec())
    }
}

/// The context for checking a file.
struct FixContext<'a> {
    options: &'a FixOptions,
    recheck: &'a Recheck<'a>,
    found: &'a FoundFile,
}

impl FixContext<'_> {
    /// Applies the fixes of all findings that `is_meant`, round by round, until none is left.
    /// `None` if fixes undo each other, or if the file is no longer part of a package.
    fn apply_until_stable(
        &self,
        mut state: IntermediateText,
        is_meant: impl Fn(&Diagnostic) -> bool,
    ) -> Option<IntermediateText> {
        let mut seen = HashSet::from([state.text.clone()]);
        for _ in 0..MAX_ROUNDS {
            let batch = non_overlapping(self.options, &state.diagnostics, &is_meant);
            if batch.is_empty() {
                break;
            }
            let edits: Vec<TextEdit> = batch
                .iter()
                .flat_map(|(_, fix)| fix.edits.clone())
                .collect();
            let fixed: Vec<Fixed> = batch
                .iter()
                .map(|(one, fix)| Fixed::new(one, fix))
                .collect();
            state = state.with(self, fixed, &edits)?;
            if !seen.insert(state.text.clone()) {
                return None;
            }
        }
        Some(state)
    }

    /// Returns whether the findings after the fixes are worse than before: more errors or, for safe
    /// fixes, any new finding.
    fn is_worse(&self, before: &[Diagnostic], after: &[Diagnostic]) -> bool {
        has_more_errors(before, after)
            || self.options.max_applicability == Applicability::Safe
                && first_new_finding(before, after).is_some()
    }

    fn check(&self, text: &str) -> Option<Vec<Diagnostic>> {
        let loaded = LoadedFile::from_bytes(text.as_bytes().to_vec());
        self.recheck.check(self.found, &loaded)
    }
}

impl Fixed {
    /// Records a finding and its fix.
    pub(super) fn new(diagnostic: &Diagnostic, fix: &Fix) -> Self {
        Self {
            rule: diagnostic.rule,
            title: fix.title.clone(),
            applicability: fix.applicability,
        }
    }
}

/// Returns the selected fixes that only edit text, with their findings.
fn selected_fixes<'d>(
    options: &'d FixOptions,
    diagnostics: &'d [Diagnostic],
) -> impl Iterator<Item = (&'d Diagnostic, &'d Fix)> {
    let wanted = diagnostics.iter().filter(|one| options.wants(one));
    let fixes = wanted.filter_map(|one| Some((one, one.fix.as_ref()?)));
    fixes.filter(|(_, fix)| fix.rename.is_none() && !fix.edits.is_empty())
}

/// Returns the fixes that do not overlap with an earlier one.
fn non_overlapping<'d>(
    options: &'d FixOptions,
    diagnostics: &'d [Diagnostic],
    is_meant: &dyn Fn(&Diagnostic) -> bool,
) -> Vec<(&'d Diagnostic, &'d Fix)> {
    let mut taken = ClaimedSpans::default();
    let fixes = selected_fixes(options, diagnostics).filter(|(one, _)| is_meant(one));
    fixes.filter(|(_, fix)| taken.take(&fix.edits)).collect()
}

fn key_of(one: &Diagnostic, fix: &Fix) -> FixKey {
    (one.rule.code, one.pointer.clone(), fix.title.clone())
}

/// Returns the first finding that did not exist before. A known finding may have moved or changed
/// its wording, but not both: elements move up when an earlier one is removed, and a list of
/// missing items gets shorter.
fn first_new_finding<'d>(before: &[Diagnostic], after: &'d [Diagnostic]) -> Option<&'d Diagnostic> {
    let places: HashSet<_> = before
        .iter()
        .map(|one| (one.rule.code, one.pointer.as_str()))
        .collect();
    let words: HashSet<_> = before
        .iter()
        .map(|one| (one.rule.code, one.message.as_str()))
        .collect();
    after.iter().find(|one| {
        let (code, pointer, message) = (one.rule.code, one.pointer.as_str(), one.message.as_str());
        !places.contains(&(code, pointer)) && !words.contains(&(code, message))
    })
}

/// The parts of the text that are already changed, by start offset.
#[derive(Default)]
struct ClaimedSpans {
    spans: std::collections::BTreeMap<usize, usize>,
}

impl ClaimedSpans {
    /// Claims the spans of all edits, unless one of them touches a claimed span.
    fn take(&mut self, edits: &[TextEdit]) -> bool {
        let is_free = edits.iter().all(|edit| self.is_free(edit.span));
        if is_free {
            let spans = edits.iter().map(|edit| (edit.span.start, edit.span.end));
            self.spans.extend(spans);
        }
        is_free
    }

    fn is_free(&self, span: Span) -> bool {
        // Claimed spans do not touch each other, so only the last one that starts before the end
        // matters.
        let before = self.spans.range(..=span.end).next_back();
        before.is_none_or(|(_, end)| *end < span.start)
    }
}

/// Returns whether the text does not parse; then nothing else is known about it.
fn does_not_parse(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|one| one.rule.name == "json-syntax")
}

/// Returns whether a text has more errors than before, or no longer parses.
fn has_more_errors(before: &[Diagnostic], after: &[Diagnostic]) -> bool {
    match (does_not_parse(before), does_not_parse(after)) {
        (true, false) => false,
        (false, true) => true,
        _ => errors(after) > errors(before),
    }
}
