//! One file, fixed in memory.
//!
//! Invariant: what is fixed unasked leaves no finding that was not there. A safe fix that would, together with the
//! safe fixes of what it uncovers, is left to who gives consent. Of a text that did not parse nothing was known:
//! everything that is found in it afterwards was there.

use std::collections::HashSet;
use std::path::PathBuf;

use super::{Fixed, Options, errors};
use crate::diagnostic::{Applicability, Diagnostic, Fix};
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
#[derive(Debug)]
pub struct Draft {
    /// The file.
    pub path: PathBuf,
    /// Its path as reports show it.
    pub shown: String,
    /// The text as it was.
    pub before: String,
    /// The text with its fixes.
    pub text: String,
    /// The fixes, in their order.
    pub fixed: Vec<Fixed>,
    /// The findings in `text`.
    pub diagnostics: Vec<Diagnostic>,
    /// Why something was not fixed.
    pub refused: Option<String>,
    /// The findings in `before`.
    found_before: Vec<Diagnostic>,
}

/// A finding's fix, across texts.
type FixKey = (&'static str, String, String);

impl Draft {
    /// Makes every fix that is wanted; `None` if the file is no package's.
    pub fn of(
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

    /// Makes all fixes, as many as possible at a time. Returns whether the file is no worse than it was.
    fn all_together(&mut self, bench: &Bench<'_>) -> bool {
        let before = self.found_before.clone();
        let Some(after) = bench.closed(State::of(self), |_| true) else {
            return false;
        };
        let is_better = !bench.is_worse(&after.known_from(&before), &after.diagnostics);
        if is_better {
            self.take(after);
        }
        is_better
    }

    /// Makes one fix after the other, each with the fixes of what it uncovers; leaves those after which the file
    /// would be worse.
    fn one_by_one(&mut self, bench: &Bench<'_>) {
        let mut left: HashSet<FixKey> = HashSet::new();
        let mut demoted: HashSet<FixKey> = HashSet::new();
        let mut seen = HashSet::from([self.text.clone()]);
        for _ in 0..MAX_TRIES {
            let next = wanted(bench.options, &self.diagnostics)
                .find(|(one, fix)| !left.contains(&key_of(one, fix)));
            let Some((one, fix)) = next else { break };
            let (key, made) = (key_of(one, fix), Fixed::new(one, fix));
            let before = self.diagnostics.clone();
            let start = State::of(self).with(bench, [made.clone()], &fix.edits);
            let was_json = !is_no_json(&before);
            let is_new =
                |one: &Diagnostic| was_json && added(&before, std::slice::from_ref(one)).is_some();
            let after = start.and_then(|start| bench.closed(start, is_new));
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
                            "{code} {name}: to {} would make more errors than it fixes",
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

    fn take(&mut self, state: State) {
        self.text = state.text;
        self.fixed = state.fixed;
        self.diagnostics = state.diagnostics;
    }
}

/// A text on its way, with what is found in it.
struct State {
    text: String,
    fixed: Vec<Fixed>,
    diagnostics: Vec<Diagnostic>,
    /// What was found when the text first parsed, if it did not at the beginning.
    first_parsed: Option<Vec<Diagnostic>>,
}

impl State {
    fn of(draft: &Draft) -> Self {
        Self {
            text: draft.text.clone(),
            fixed: draft.fixed.clone(),
            diagnostics: draft.diagnostics.clone(),
            first_parsed: None,
        }
    }

    /// The text with more edits; `None` if they do not go together.
    fn with(
        mut self,
        bench: &Bench<'_>,
        fixed: impl IntoIterator<Item = Fixed>,
        edits: &[TextEdit],
    ) -> Option<Self> {
        self.text = apply(&self.text, edits)?;
        let diagnostics = bench.check(&self.text)?;
        if is_no_json(&self.diagnostics) && !is_no_json(&diagnostics) {
            self.first_parsed = Some(diagnostics.clone());
        }
        self.diagnostics = diagnostics;
        self.fixed.extend(fixed);
        Some(self)
    }

    /// The findings that were there before any fix, as far as they could be known.
    fn known_from(&self, before: &[Diagnostic]) -> Vec<Diagnostic> {
        self.first_parsed.clone().unwrap_or_else(|| before.to_vec())
    }
}

/// What a file is checked with.
struct Bench<'a> {
    options: &'a Options,
    recheck: &'a Recheck<'a>,
    found: &'a Found,
}

impl Bench<'_> {
    /// Makes the fixes of all findings that `is_meant`, round by round, until none is proposed; `None` if they undo
    /// one another or leave no package.
    fn closed(&self, mut state: State, is_meant: impl Fn(&Diagnostic) -> bool) -> Option<State> {
        let mut seen = HashSet::from([state.text.clone()]);
        for _ in 0..MAX_ROUNDS {
            let batch = picked(self.options, &state.diagnostics, &is_meant);
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

    /// Whether findings after fixes are worse than those before: more errors, or, of fixes that nobody consented
    /// to, anything that was not there.
    fn is_worse(&self, before: &[Diagnostic], after: &[Diagnostic]) -> bool {
        has_more_errors(before, after)
            || self.options.boldest == Applicability::Safe && added(before, after).is_some()
    }

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
    is_meant: &dyn Fn(&Diagnostic) -> bool,
) -> Vec<(&'d Diagnostic, &'d Fix)> {
    let mut taken = Taken::default();
    let fixes = wanted(options, diagnostics).filter(|(one, _)| is_meant(one));
    fixes.filter(|(_, fix)| taken.take(&fix.edits)).collect()
}

fn key_of(one: &Diagnostic, fix: &Fix) -> FixKey {
    (one.rule.code, one.pointer.clone(), fix.title.clone())
}

/// The first finding after fixes that was not there before. Of one that is known, the place or the words may have
/// changed, not both: elements move up when one before them goes, and a list of what is missing gets shorter.
fn added<'d>(before: &[Diagnostic], after: &'d [Diagnostic]) -> Option<&'d Diagnostic> {
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

/// Whether a text does not parse: of such a text nothing else is known.
fn is_no_json(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|one| one.rule.name == "json-syntax")
}

/// Whether a text has more errors than one before it, or does not parse where that did.
fn has_more_errors(before: &[Diagnostic], after: &[Diagnostic]) -> bool {
    match (is_no_json(before), is_no_json(after)) {
        (true, false) => false,
        (false, true) => true,
        _ => errors(after) > errors(before),
    }
}
