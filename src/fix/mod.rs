//! Mending: findings that carry a fix, carried out.
//!
//! Each file is mended in memory, round by round, until its rules have nothing more to propose; then it is
//! written, whole or not at all. Invariant: no file gets worse: with more errors than it had, or no longer
//! JSON, it is left as it was. Knows no rule.

mod diff;
mod draft;
mod guard;
mod rename;
mod write;

use std::collections::BTreeSet;
use std::path::PathBuf;

use rayon::prelude::*;

use crate::diagnostic::{Applicability, Diagnostic, Rename, RuleMeta, Severity};
use crate::package::{Discovery, Found, Loaded};
use crate::policy::Policy;
use crate::validate::{self, Recheck};
use guard::Guard;
use rename::Proposed;

pub use diff::unified;
pub use draft::Draft;

/// Most passes over all files: each ends with renamings, after which files are looked at anew.
const MAX_PASSES: usize = 8;
/// Threads that write files: they mostly wait for the disk.
const WRITERS: usize = 16;

/// What to mend, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The files, and how they are checked.
    pub validate: validate::Options,
    /// The boldest fixes that are made.
    pub boldest: Applicability,
    /// Codes of the rules whose findings are mended; empty for all.
    pub only: BTreeSet<&'static str>,
    /// Whether files are changed; otherwise it is only told how they would be.
    pub writes: bool,
}

/// What became of all files.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Files for which there was something to do, in the order of their paths.
    pub files: Vec<Mended>,
    /// What is left in the files, as they are or would be; without what is said of several files together.
    pub left: Vec<Diagnostic>,
    /// How many files were looked at.
    pub checked: usize,
}

/// What became of one file.
#[derive(Debug)]
pub struct Mended {
    /// Its path.
    pub path: PathBuf,
    /// The path as reports show it.
    pub shown: String,
    /// The text as it was.
    pub before: String,
    /// The text as it is, or would be.
    pub after: String,
    /// What was fixed.
    pub fixed: Vec<Fixed>,
    /// Files that got another name.
    pub renamed: Vec<Rename>,
    /// Why it was not done.
    pub refused: Option<String>,
}

/// A fix that was made.
#[derive(Debug, Clone)]
pub struct Fixed {
    /// The rule whose finding it mends.
    pub rule: &'static RuleMeta,
    /// What it does, as an order.
    pub title: String,
    /// Whether it is made unasked.
    pub applicability: Applicability,
}

/// Mends everything below the paths of the options, as far as the project wants to hear of it.
pub fn fix(options: &Options, policy: &Policy) -> Result<Outcome, validate::Error> {
    validate::check_names(&options.validate.paths)?;
    let mut outcome = Outcome::default();
    for pass in 0..MAX_PASSES {
        let mut discovery = policy.discover(&options.validate.paths);
        validate::check_there(&discovery.absent)?;
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
        let guard = Guard::new(options, &discovery, renames.iter().map(Proposed::places));
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

/// Every file mended in memory and, if that is wanted, written.
fn drafts(
    options: &Options,
    discovery: &Discovery,
    recheck: &Recheck<'_>,
) -> Result<Vec<Draft>, validate::Error> {
    let mend = |found: &Found| {
        let draft = Draft::of(options, recheck, found, &Loaded::read(&found.path))?;
        if options.writes {
            write::tidy(&draft.path);
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

/// Writes a file that was mended.
fn write_out(draft: &mut Draft) {
    if draft.is_changed()
        && let Err(error) = write::replace(&draft.path, &draft.before, &draft.text)
    {
        draft.refuse(&error.to_string());
    }
}

impl Options {
    /// Whether a finding's fix is to be made.
    fn wants(&self, diagnostic: &Diagnostic) -> bool {
        let is_selected = self.only.is_empty() || self.only.contains(diagnostic.rule.code);
        let fix = diagnostic.fix.as_ref();
        is_selected && fix.is_some_and(|fix| fix.applicability <= self.boldest)
    }
}

impl Outcome {
    /// How many fixes were made, or would be.
    pub fn fixes(&self) -> usize {
        self.files.iter().map(|file| file.fixed.len()).sum()
    }

    /// How many files could not be mended.
    pub fn refusals(&self) -> usize {
        let files = self.files.iter();
        files.filter(|file| file.refused.is_some()).count()
    }

    /// Marks the fix of a finding that is left as one that needs consent, if that is why it was not made.
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

    /// What is told of a file; begun with the text that it has now.
    fn entry(&mut self, path: &PathBuf, shown: &str, text: &str) -> &mut Mended {
        let known = self.files.iter().position(|file| file.path == *path);
        let at = known.unwrap_or_else(|| {
            self.files.push(Mended {
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

/// How many findings are errors.
fn errors(diagnostics: &[Diagnostic]) -> usize {
    let all = diagnostics.iter();
    all.filter(|one| one.severity == Severity::Error).count()
}
