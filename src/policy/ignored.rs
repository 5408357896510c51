//! What git ignores in checkouts: what `.gitignore` files and `.git/info/exclude` match, less what it tracks all
//! the same.
//!
//! Invariant: git is asked once for each checkout, and only if something that a walk looks at would be left out.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::git;
use crate::package::{Roots, is_looked_at};
use crate::source;

/// The name of git's own files.
const GITIGNORE: &str = ".gitignore";
/// Where a repository has more of them, for itself alone.
const EXCLUDE: &str = "info/exclude";

/// Largest of them that is read, in bytes.
const MAX_SIZE: u64 = 1024 * 1024;

/// What git ignores where one walk goes.
#[derive(Default)]
pub(super) struct Ignored {
    /// The directory that the walk began with.
    top: PathBuf,
    /// The root of the checkout that the walk began in.
    checkout: Option<PathBuf>,
    /// What is matched below directories.
    files: HashMap<PathBuf, Gitignore>,
    /// What is matched besides in checkouts, by their roots.
    excludes: HashMap<PathBuf, Gitignore>,
    /// What git tracks in checkouts; `None` where it cannot say.
    tracked: HashMap<PathBuf, Option<HashSet<PathBuf>>>,
    /// Directories that are matched and walked all the same, because something in them is tracked.
    entered: HashSet<PathBuf>,
}

impl Ignored {
    /// A walk begins.
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

    /// There is a `.gitignore` or a `.git` in a directory.
    pub(super) fn learn(&mut self, directory: &Path, name: &OsStr) {
        if name == GITIGNORE {
            if self.checkout.is_some() || directory.join(".git").symlink_metadata().is_ok() {
                self.read_gitignore(directory);
            }
        } else if self.checkout.as_deref() != Some(directory) {
            self.read_exclude(directory);
        }
    }

    /// Whether nothing is matched anywhere.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.excludes.is_empty()
    }

    /// Why something is left out; `None` if it is not.
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
        // What git ignores is ignored with all that is in it.
        let matching = matching.or_else(|| is_inside.then_some(GITIGNORE))?;
        if is_inside || is_wanted(path, is_directory) {
            let tracked = self.tracked.entry(checkout);
            let checkout = tracked.key().clone();
            if let Some(tracked) = tracked.or_insert_with(|| ask(&checkout)) {
                let below = path.strip_prefix(&checkout).unwrap_or(path);
                if !tracked.contains(below) {
                    return Some("git ignores it; --no-gitignore looks at it".to_owned());
                }
                if is_directory {
                    self.entered.insert(path.to_owned());
                }
                return None;
            }
        }
        Some(format!("{matching} matches it; --no-gitignore looks at it"))
    }

    /// The name of the file that has something ignored.
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

    /// Whether something is in a directory that is walked for what is tracked in it alone, and of the same
    /// checkout.
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
        // Most have nothing but a comment.
        if matcher.num_ignores() > 0 && !covers_all_of(&matcher, &self.top) {
            self.excludes.insert(checkout.to_owned(), matcher);
        }
    }
}

/// Whether a walk that is not told otherwise goes into a directory, or looks at a file.
fn is_wanted(path: &Path, is_directory: bool) -> bool {
    let name = path.file_name().unwrap_or_default();
    if is_directory {
        // Neither is ever walked.
        return !name.as_encoded_bytes().starts_with(b".") && name != "node_modules";
    }
    is_looked_at(name)
}

/// What git tracks in a checkout: files and the directories that they are in.
fn ask(checkout: &Path) -> Option<HashSet<PathBuf>> {
    let mut tracked = HashSet::new();
    for file in git::tracked(checkout).ok()? {
        for path in file.ancestors() {
            // What is above was taken with what is beside.
            if !tracked.insert(path.to_owned()) {
                break;
            }
        }
    }
    Some(tracked)
}

/// The file of a repository that has more lines like those of a `.gitignore`.
fn exclude_of(checkout: &Path) -> Option<PathBuf> {
    let git = checkout.join(".git");
    if git.is_dir() {
        return Some(git.join(EXCLUDE));
    }
    // A working tree beside others, or a submodule: a file says where the repository is.
    let said = |file: &Path| {
        let text = source::read_text(file, MAX_SIZE).ok()?;
        Some(text.trim_end_matches(['\n', '\r']).to_owned())
    };
    let directory = checkout.join(said(&git)?.strip_prefix("gitdir: ")?);
    let common = said(&directory.join("commondir"));
    Some(
        common
            .map_or(directory.clone(), |common| directory.join(common))
            .join(EXCLUDE),
    )
}

/// What a file with lines of git's form matches below `root`. A line that git cannot read is passed over, as git does.
fn matcher(root: &Path, file: &Path) -> Option<Gitignore> {
    let bytes = source::read(file, MAX_SIZE).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new(root);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok()
}

/// Whether git ignores all that is in a directory at or below that of the file.
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
