//! Renames model files on the disk and in every config that references them.
//!
//! Order of steps: the file first gets its new name as a second name (a hard link). Then the
//! configs are written, the one with the finding last. Then the old name is removed. An
//! interruption at any point leaves valid configs, and another run completes the renaming, because
//! the rules recognize a file with two names. A directory cannot have two names, so it is renamed
//! first.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::draft::Draft;
use super::guard::ReferenceGuard;
use super::{FixOptions, FixOutcome, Fixed, write};
use pkgtool_base::diagnostic::{Diagnostic, Fix, Rename};
use pkgtool_base::package::reference::{normalize, resolve};
use pkgtool_base::package::{Config, FoundFile, FoundKind, LoadedFile, Roots, roots};
use pkgtool_base::source::edit::{TextEdit, apply};
use pkgtool_base::source::replace::sync_directory;
use pkgtool_base::source::same_file::is_same_file;

/// A renaming and the finding that it fixes.
pub(super) struct ProposedRename {
    path: PathBuf,
    shown: String,
    diagnostic: Diagnostic,
    fix: Fix,
    rename: Rename,
}

impl ProposedRename {
    /// Returns the config with the finding, and the file.
    pub(super) fn places(&self) -> [&Path; 2] {
        [&self.path, &self.rename.from]
    }
}

/// Returns the selected renamings, each file and each new name only once.
pub(super) fn proposed(options: &FixOptions, drafts: &[Draft]) -> Vec<ProposedRename> {
    let mut proposed: Vec<ProposedRename> = Vec::new();
    for draft in drafts.iter().filter(|draft| draft.refused.is_none()) {
        for diagnostic in draft.diagnostics.iter().filter(|one| options.wants(one)) {
            let Some((fix, rename)) = diagnostic
                .fix
                .as_ref()
                .and_then(|fix| Some((fix, fix.rename.clone()?)))
            else {
                continue;
            };
            let names = [&rename.from, &rename.to].map(|path| normalize(path));
            let is_taken = proposed.iter().any(|other| {
                let others = [&other.rename.from, &other.rename.to].map(|path| normalize(path));
                others.iter().any(|other| names.contains(other))
            });
            if !is_taken {
                proposed.push(ProposedRename {
                    path: draft.path.clone(),
                    shown: draft.shown.clone(),
                    diagnostic: diagnostic.clone(),
                    fix: fix.clone(),
                    rename,
                });
            }
        }
    }
    proposed
}

/// Renames a file, or records the planned renaming in a dry run.
pub(super) fn carry_out(
    options: &FixOptions,
    guard: &ReferenceGuard<'_>,
    proposed: ProposedRename,
    outcome: &mut FixOutcome,
) {
    let ProposedRename {
        path,
        shown,
        diagnostic,
        fix,
        rename,
    } = proposed;
    let mut changes = changes(guard, &path, &rename, outcome, options.writes);
    // The config with the finding is written last, so that an interrupted renaming can be
    // completed.
    changes.sort_by_key(|change| change.found.path == path);
    let texts = texts(outcome, &changes, options.writes);
    let objection = guard.objection(&path, &rename.from, &|real| texts.get(real).cloned());
    let done = if let Some(reason) = objection {
        Err(reason)
    } else if options.writes {
        rewrite(&rename, &changes)
    } else {
        // A dry run removes the finding that would be fixed.
        let is_it = |one: &Diagnostic| {
            let place = (one.rule.code, &one.source.path, &one.pointer);
            place
                == (
                    diagnostic.rule.code,
                    &diagnostic.source.path,
                    &diagnostic.pointer,
                )
        };
        outcome.left.retain(|one| !is_it(one));
        Ok(())
    };
    for change in changes {
        let file = outcome.entry(&change.found.path, &change.shown, &change.before);
        match &done {
            Ok(()) => file.after = change.after,
            Err(_) => continue,
        }
        if change.found.path != path {
            file.fixed.push(Fixed::new(&diagnostic, &fix));
        }
    }
    let text = LoadedFile::read(&path).text;
    let file = outcome.entry(&path, &shown, &text);
    match done {
        Ok(()) => {
            file.fixed.push(Fixed::new(&diagnostic, &fix));
            file.renamed.push(rename);
        }
        Err(reason) => file.refused = Some(reason),
    }
}

/// A config in which a reference changes.
struct ConfigChange<'d> {
    found: &'d FoundFile,
    shown: String,
    before: String,
    after: String,
}

/// Returns the changes in all configs that reference the file. A dry run starts from the planned
/// texts.
fn changes<'d>(
    guard: &ReferenceGuard<'d>,
    path: &Path,
    rename: &Rename,
    outcome: &FixOutcome,
    is_written: bool,
) -> Vec<ConfigChange<'d>> {
    let (discovery, roots) = (guard.discovery, &guard.roots);
    let from = roots.absolute(&rename.from);
    let configs = discovery
        .found
        .iter()
        .filter(|found| found.kind != FoundKind::PrecisionList);
    let changes = configs.filter_map(|found| {
        let pending = outcome
            .files
            .iter()
            .find(|file| !is_written && file.path == found.path);
        let loaded = match pending {
            Some(file) => LoadedFile::from_bytes(file.after.clone().into_bytes()),
            None => LoadedFile::read(&found.path),
        };
        if found.path != path && !found.is_config(&loaded) {
            return None;
        }
        let after = apply(&loaded.text, &edits(roots, found, &loaded, &from, rename)?)?;
        (after != loaded.text).then(|| ConfigChange {
            found,
            shown: roots.shown(&found.path),
            before: loaded.text,
            after,
        })
    });
    changes.collect()
}

/// Returns the planned texts of configs by their real paths, as far as they are not written yet.
fn texts(
    outcome: &FixOutcome,
    changes: &[ConfigChange<'_>],
    is_written: bool,
) -> HashMap<PathBuf, String> {
    let pending = outcome.files.iter().filter(|_| !is_written);
    let pending = pending.map(|file| (&file.path, &file.after));
    let new = changes
        .iter()
        .map(|change| (&change.found.path, &change.after));
    let all = pending.chain(new);
    all.filter_map(|(path, text)| Some((path.canonicalize().ok()?, text.clone())))
        .collect()
}

/// Returns edits that replace the references to the file.
fn edits(
    roots: &Roots,
    found: &FoundFile,
    loaded: &LoadedFile,
    from: &Path,
    rename: &Rename,
) -> Option<Vec<TextEdit>> {
    let document = loaded.document.as_ref().ok()?;
    let old = rename.from.file_name()?.to_str()?;
    let new = rename.to.file_name()?.to_str()?;
    let directory = roots.absolute(found.path.parent().unwrap_or(Path::new("")));
    let depth = roots::depth_below(&directory, &roots.package_root(&directory));
    let config = Config::from_document(document);
    let named = config
        .files()
        .filter(|file| resolve(&directory, depth, &file.reference).is_ok_and(|path| path == from));
    let edits = named.filter_map(|file| {
        let prefix = file.reference.strip_suffix(old)?;
        let text = Value::from(format!("{prefix}{new}")).to_string();
        Some(TextEdit::replace(document.value_span(&file.path), text))
    });
    Some(edits.collect())
}

fn rewrite(rename: &Rename, changes: &[ConfigChange<'_>]) -> Result<(), String> {
    let Rename { from, to } = rename;
    let failed = |error: &dyn std::fmt::Display| {
        format!(
            "cannot rename {} to {}: {error}",
            from.display(),
            to.display()
        )
    };
    let metadata = fs::symlink_metadata(from).map_err(|error| failed(&error))?;
    // The file already has both names after an interrupted run.
    if !is_same_file(from, to) && (!metadata.is_file() || fs::hard_link(from, to).is_err()) {
        if to.symlink_metadata().is_ok() {
            return Err(failed(&io::Error::from(io::ErrorKind::AlreadyExists)));
        }
        fs::rename(from, to).map_err(|error| failed(&error))?;
    }
    for change in changes {
        let written = write::replace(&change.found.path, &change.before, &change.after);
        written.map_err(|error| format!("{}: {error}", change.shown))?;
    }
    sync_directory(to);
    // Only the second name of the same file is removed, never a file that someone put there
    // meanwhile.
    if is_same_file(from, to) {
        fs::remove_file(from).map_err(|error| failed(&error))?;
        sync_directory(from);
    }
    Ok(())
}
