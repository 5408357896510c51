//! `pkgtool fix`: applies the fixes that findings carry.
//!
//! Each file is fixed in memory, round by round, until no rule proposes a fix; then it is written
//! atomically. Invariant: no file gets worse. If a file would have more errors than before, or
//! would no longer parse, it is left unchanged. This module knows no specific rule.

mod diff;
mod draft;
mod guard;
mod rename;
mod write;

use std::collections::BTreeSet;
use std::path::PathBuf;

use rayon::prelude::*;

use crate::policy::Policy;
use crate::validate::{self, Recheck};
use guard::ReferenceGuard;
use pkgtool_base::diagnostic::{Applicability, Diagnostic, Rename, RuleMeta, Severity};
use pkgtool_base::package::{Discovery, FoundFile, LoadedFile};
use rename::ProposedRename;

pub use diff::unified;
pub use draft::Draft;

/// Maximum number of passes over all files. Each pass ends with renamings, after which files are
/// checked again.
const MAX_PASSES: usize = 8;
/// Number of threads that write files. They mostly wait for the disk.
const WRITERS: usize = 16;

/// The findings to fix, and the settings.
#[derive(Debug, Clone)]
pub struct FixOptions {
    /// The files, and the settings of their validation.
    pub validate: validate::ValidationOptions,
    /// The riskiest applicability of fixes to apply.
    pub max_applicability: Applicability,
    /// Codes of the rules whose findings are fixed; empty for all.
    pub only: BTreeSet<&'static str>,
    /// Write the files; otherwise only compute the changes.
    pub writes: bool,
}

/// The result for all files.
#[derive(Debug, Default)]
pub struct FixOutcome {
    /// Files with fixes, renamings or refusals, sorted by path.
    pub files: Vec<FileResult>,
    /// The remaining findings, after the real or planned fixes. Findings that compare several files
    /// are not included.
    pub left: Vec<Diagnostic>,
    /// Number of checked files.
    pub checked: usize,
}

/// The result for one file.
#[derive(Debug)]
pub struct FileResult {
    /// Its path.
    pub path: PathBuf,
    /// The path as reports show it.
    pub shown: String,
    /// The original text.
    pub before: String,
    /// The new text, written or planned.
    pub after: String,
    /// The applied fixes.
    pub fixed: Vec<Fixed>,
    /// Renamed files.
    pub renamed: Vec<Rename>,
    /// The reason why a fix was not applied.
    pub refused: Option<String>,
}

/// An applied fix.
#[derive(Debug, Clone)]
pub struct Fixed {
    /// The rule whose finding it fixes.
    pub rule: &'static RuleMeta,
    /// The change, as an imperative phrase.
    pub title: String,
    /// The applicability of the fix: safe or unsafe.
    pub applicability: Applicability,
}

/// Fixes everything below the given paths, under the project's settings.
pub fn fix(options: &FixOptions, policy: &Policy) -> Result<FixOutcome, validate::ValidationError> {
    validate::check_names(&options.validate.paths)?;
    let mut outcome = FixOutcome::default();
    for pass in 0..MAX_PASSES {
        let mut discovery = policy.discover(&options.validate.paths);
        validate::check_exist(&discovery.absent)?;
        if let Some(list) = &options.validate.precisions {
            discovery.add_list(list);
        }
        let ruling = policy.ruling(&options.validate);
        let recheck = Recheck::new(&options.validate, &discovery, &ruling)?;
        let drafts = drafts(options, &discovery, &recheck)?;
        outcome.checked = drafts.len();
        let renames = rename::proposed(options, &drafts);
        outcome.left = drafts
            .iter()
            .flat_map(|draft| draft.diagnostics.clone())
            .collect();
        let refusals_before = outcome.refusals();
        for draft in drafts {
            outcome.take(draft);
        }
        if renames.is_empty() || pass + 1 == MAX_PASSES || outcome.refusals() > refusals_before {
            break;
        }
        let guard = ReferenceGuard::new(
            options,
            &discovery,
            renames.iter().map(ProposedRename::places),
        );
        for proposed in renames {
            rename::carry_out(options, &guard, proposed, &mut outcome);
        }
        if !options.writes || outcome.refusals() > refusals_before {
            break;
        }
    }
    outcome
        .files
        .sort_by(|one, other| one.shown.cmp(&other.shown));
    Ok(outcome)
}

/// Fixes every file in memory and writes it if requested.
fn drafts(
    options: &FixOptions,
    discovery: &Discovery,
    recheck: &Recheck<'_>,
) -> Result<Vec<Draft>, validate::ValidationError> {
    let mend = |found: &FoundFile| {
        let draft = Draft::of(options, recheck, found, &LoadedFile::read(&found.path))?;
        if options.writes {
            write::remove_leftovers(&draft.path);
        }
        Some(draft)
    };
    if discovery.found.len() < 2 || options.validate.jobs == 1 {
        let mut drafts: Vec<Draft> = discovery.found.iter().filter_map(mend).collect();
        if options.writes {
            drafts.iter_mut().for_each(write_out);
        }
        return Ok(drafts);
    }
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let found = discovery.found.par_iter();
    let mut drafts: Vec<Draft> =
        pool(options.validate.jobs)?.install(|| found.filter_map(mend).collect());
    if options.writes {
        pool(WRITERS)?.install(|| drafts.par_iter_mut().for_each(write_out));
    }
    Ok(drafts)
}

/// Writes a fixed file.
fn write_out(draft: &mut Draft) {
    if draft.is_changed()
        && let Err(error) = write::replace(&draft.path, &draft.before, &draft.text)
    {
        draft.refuse(&error.to_string());
    }
}

impl FixOptions {
    /// Returns whether the fix of a finding is selected.
    fn wants(&self, diagnostic: &Diagnostic) -> bool {
        let is_selected = self.only.is_empty() || self.only.contains(diagnostic.rule.code);
        let fix = diagnostic.fix.as_ref();
        is_selected && fix.is_some_and(|fix| fix.applicability <= self.max_applicability)
    }
}

impl FixOutcome {
    /// Returns the number of applied or planned fixes.
    pub fn fixes(&self) -> usize {
        self.files.iter().map(|file| file.fixed.len()).sum()
    }

    /// Returns the number of files that could not be fixed.
    pub fn refusals(&self) -> usize {
        let files = self.files.iter();
        files.filter(|file| file.refused.is_some()).count()
    }

    /// Marks the fix of a remaining finding as unsafe if it was not applied for that reason.
    pub fn mark_consent(&self, finding: &mut Diagnostic) {
        let is_same = |one: &&Diagnostic| {
            one.rule.code == finding.rule.code
                && one.pointer == finding.pointer
                && one.source.path == finding.source.path
        };
        let known = self
            .left
            .iter()
            .find(is_same)
            .and_then(|one| one.fix.as_ref());
        if let (Some(fix), Some(known)) = (&mut finding.fix, known)
            && fix.title == known.title
        {
            fix.applicability = fix.applicability.max(known.applicability);
        }
    }

    fn take(&mut self, draft: Draft) {
        if draft.fixed.is_empty() && draft.refused.is_none() {
            return;
        }
        let file = self.entry(&draft.path, &draft.shown, &draft.before);
        file.after = draft.text;
        file.fixed.extend(draft.fixed);
        file.refused = draft.refused;
    }

    /// Returns the entry of a file; creates it with the file's current text.
    fn entry(&mut self, path: &PathBuf, shown: &str, text: &str) -> &mut FileResult {
        let known = self.files.iter().position(|file| file.path == *path);
        let at = known.unwrap_or_else(|| {
            self.files.push(FileResult {
                path: path.clone(),
                shown: shown.to_owned(),
                before: text.to_owned(),
                after: text.to_owned(),
                fixed: Vec::new(),
                renamed: Vec::new(),
                refused: None,
            });
            self.files.len() - 1
        });
        &mut self.files[at]
    }
}

/// Counts the errors among the findings.
fn errors(diagnostics: &[Diagnostic]) -> usize {
    let all = diagnostics.iter();
    all.filter(|one| one.severity == Severity::Error).count()
}
