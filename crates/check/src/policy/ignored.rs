//! Finds the paths that Git ignores in a checkout: those matched by `.gitignore` files or
//! `.git/info/exclude`, except tracked files.
//!
//! Invariant: Git is run once per checkout, and only if a path of interest would be left out.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use pkgtool_base::git;
use pkgtool_base::package::{Roots, is_inspected};
use pkgtool_base::source;

/// Name of Git's ignore files.
const GITIGNORE: &str = ".gitignore";
/// The ignore file of a repository that is not shared with others.
const EXCLUDE_FILE: &str = "info/exclude";

/// Maximum size of an ignore file, in bytes.
const MAX_IGNORE_FILE_BYTES: u64 = 1024 * 1024;

/// The paths that Git ignores in one walk.
#[derive(Default)]
pub(super) struct GitIgnored {
    /// The start directory of the walk.
    top: PathBuf,
    /// The root of the checkout that contains the start directory.
    checkout: Option<PathBuf>,
    /// Patterns of `.gitignore` files by directory.
    files: HashMap<PathBuf, Gitignore>,
    /// Patterns of `.git/info/exclude` by the root of the checkout.
    excludes: HashMap<PathBuf, Gitignore>,
    /// Tracked paths by the root of the checkout; `None` if Git cannot list them.
    tracked: HashMap<PathBuf, Option<HashSet<PathBuf>>>,
    /// Ignored directories that are walked because they contain tracked files.
    entered: HashSet<PathBuf>,
}

impl GitIgnored {
    /// Starts a walk.
    pub(super) fn begin(&mut self, top: &Path, roots: &Roots) {
        self.files.clear();
        self.excludes.clear();
        self.entered.clear();
        top.clone_into(&mut self.top);
        self.checkout = roots.checkout(top);
        if let Some(checkout) = self.checkout.clone() {
            let above = top.ancestors().skip(1);
            for directory in above.take_while(|above| above.starts_with(&checkout)) {
                self.read_gitignore(directory);
            }
            self.read_exclude(&checkout);
        }
    }

    /// Reads the patterns that apply to a directory with a `.gitignore` or a `.git`.
    pub(super) fn read_patterns(&mut self, directory: &Path, name: &OsStr) {
        if name == GITIGNORE {
            if self.checkout.is_some() || directory.join(".git").symlink_metadata().is_ok() {
                self.read_gitignore(directory);
            }
        } else if self.checkout.as_deref() != Some(directory) {
            self.read_exclude(directory);
        }
    }

    /// Returns whether the list of patterns is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.excludes.is_empty()
    }

    /// Returns why a path is left out, or `None` if it is not.
    pub(super) fn leaves_out(
        &mut self,
        path: &Path,
        is_directory: bool,
        roots: &Roots,
    ) -> Option<String> {
        let matching = self.matching(path, is_directory);
        if matching.is_none() && self.entered.is_empty() {
            return None;
        }
        let checkout = roots.checkout(path.parent()?)?;
        let is_inside = self.is_inside(path, &checkout);
        // Everything below an ignored directory is ignored.
        let matching = matching.or_else(|| is_inside.then_some(GITIGNORE))?;
        if is_inside || is_walked_by_default(path, is_directory) {
            let tracked = self.tracked.entry(checkout);
            let checkout = tracked.key().clone();
            if let Some(tracked) = tracked.or_insert_with(|| tracked_paths(&checkout)) {
                let below = path.strip_prefix(&checkout).unwrap_or(path);
                if !tracked.contains(below) {
                    return Some("ignored by Git; include it with --no-gitignore".to_owned());
                }
                if is_directory {
                    self.entered.insert(path.to_owned());
                }
                return None;
            }
        }
        Some(format!(
            "matched by {matching}; include it with --no-gitignore"
        ))
    }

    /// Returns the name of the ignore file that matches the path.
    fn matching(&self, path: &Path, is_directory: bool) -> Option<&'static str> {
        for directory in path.ancestors().skip(1) {
            let files = [
                (&self.files, GITIGNORE),
                (&self.excludes, ".git/info/exclude"),
            ];
            for (files, name) in files {
                let matcher = files.get(directory);
                match matcher.map(|it| it.matched(path, is_directory)) {
                    Some(Match::Ignore(_)) => return Some(name),
                    Some(Match::Whitelist(_)) => return None,
                    _ => {}
                }
            }
            if self.checkout.as_deref() == Some(directory) {
                break;
            }
        }
        None
    }

    /// Returns whether the path is below an ignored directory of the same checkout that is walked
    /// only for its tracked files.
    fn is_inside(&self, path: &Path, checkout: &Path) -> bool {
        let mut above = path.ancestors().skip(1);
        !self.entered.is_empty()
            && above.any(|one| {
                self.entered.contains(one) && one.starts_with(checkout) && one != checkout
            })
    }

    fn read_gitignore(&mut self, directory: &Path) {
        if let Some(matcher) = matcher(directory, &directory.join(GITIGNORE))
            && !covers_all_of(&matcher, &self.top)
        {
            self.files.insert(directory.to_owned(), matcher);
        }
    }

    fn read_exclude(&mut self, checkout: &Path) {
        let Some(matcher) = exclude_of(checkout).and_then(|file| matcher(checkout, &file)) else {
            return;
        };
        // Most of these files contain only comments.
        if matcher.num_ignores() > 0 && !covers_all_of(&matcher, &self.top) {
            self.excludes.insert(checkout.to_owned(), matcher);
        }
    }
}

/// Returns whether a walk enters the directory or reads the file by default.
fn is_walked_by_default(path: &Path, is_directory: bool) -> bool {
    let name = path.file_name().unwrap_or_default();
    if is_directory {
        // Hidden directories and `node_modules` are never walked.
        return !name.as_encoded_bytes().starts_with(b".") && name != "node_modules";
    }
    is_inspected(name)
}

/// Returns the tracked files of a checkout and the directories that contain them.
fn tracked_paths(checkout: &Path) -> Option<HashSet<PathBuf>> {
    let mut tracked = HashSet::new();
    for file in git::tracked(checkout).ok()? {
        for path in file.ancestors() {
            // The directories above were added together with a sibling.
            if !tracked.insert(path.to_owned()) {
                break;
            }
        }
    }
    Some(tracked)
}

/// Returns the path of a repository's `info/exclude`.
fn exclude_of(checkout: &Path) -> Option<PathBuf> {
    let git = checkout.join(".git");
    if git.is_dir() {
        return Some(git.join(EXCLUDE_FILE));
    }
    // In a linked working tree or a submodule, `.git` is a file that names the repository.
    let said = |file: &Path| {
        let text = source::read_text(file, MAX_IGNORE_FILE_BYTES).ok()?;
        Some(text.trim_end_matches(['\n', '\r']).to_owned())
    };
    let directory = checkout.join(said(&git)?.strip_prefix("gitdir: ")?);
    let common = said(&directory.join("commondir"));
    Some(
        common
            .map_or(directory.clone(), |common| directory.join(common))
            .join(EXCLUDE_FILE),
    )
}

/// Reads the patterns of an ignore file that apply below `root`. Invalid lines are skipped, as in
/// Git.
fn matcher(root: &Path, file: &Path) -> Option<Gitignore> {
    let bytes = source::read(file, MAX_IGNORE_FILE_BYTES).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new(root);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok()
}

/// Returns whether the patterns ignore everything in a directory, which is at or below the
/// directory of the file.
fn covers_all_of(matcher: &Gitignore, directory: &Path) -> bool {
    let root = matcher.path();
    let is_ignored =
        |path: &Path, is_directory| matches!(matcher.matched(path, is_directory), Match::Ignore(_));
    let between = directory
        .ancestors()
        .take_while(|one| *one != root && one.starts_with(root));
    let mut between = between.peekable();
    between.any(|one| is_ignored(one, true) || is_ignored(&one.join("\u{1}"), false))
}
