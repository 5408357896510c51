//! Access to Git repositories through the `git` program: files of a revision or of the index, and
//! changed files.
//!
//! Invariant: output is read up to a limit, and names from callers are never interpreted as
//! options. Nothing is fetched, the repository is never modified, and no program configured in the
//! repository is run. This module knows nothing about packages.

mod blobs;
mod command;
mod listing;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

pub use blobs::GitBlobs;
pub use listing::{GitEntry, GitListing, Mode};

use crate::source::lfs::{self, Pointer};
use crate::source::{self, same_bytes};
use command::{command, command_with, without_filters};

/// Maximum size of the output of a command, in bytes.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;
/// Maximum size of an error message that is shown, in bytes.
const MAX_ERROR_BYTES: u64 = 4096;

/// A comparison that only lists names. It excludes submodules, for which Git would start processes.
const DIFF: [&str; 7] = [
    "diff",
    "--name-only",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--ignore-submodules=dirty",
    "-z",
];

/// A repository with a working tree.
#[derive(Debug, Clone)]
pub struct Repository {
    top: PathBuf,
}

/// The reason why a Git operation failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program cannot be run.
    #[error("cannot run `git`: {0}; it must be installed and in the PATH")]
    NoGit(io::Error),
    /// The directory is not inside a repository.
    #[error("{path}: not in a Git repository with a working tree ({reason})", path = path.display())]
    NoRepository {
        /// The directory.
        path: PathBuf,
        /// The error message of Git.
        reason: String,
    },
    /// The name does not resolve to a commit.
    #[error("`{0}` is not a commit of this repository; `git log` and `git tag` list them")]
    NoCommit(String),
    /// A command failed.
    #[error("`git {command}` failed: {reason}")]
    Failed {
        /// The subcommand.
        command: String,
        /// The error message of Git.
        reason: String,
    },
    /// The repository has a filter that cannot be disabled.
    #[error(
        "the Git settings of this repository name a filter `{0}`, which cannot be disabled; remove it from them"
    )]
    FilterName(String),
    /// A listing exceeds the limit.
    #[error("`git {command}` lists more than {} MiB: the repository has too many files", MAX_OUTPUT / 1024 / 1024)]
    TooLong {
        /// The subcommand.
        command: String,
    },
    /// An object is missing, or is not a file.
    #[error("object {0} is not in this repository; fetch it, if the clone is a partial one")]
    NoObject(String),
    /// Writing a file, or reading the output of Git, failed.
    #[error("cannot read from git: {0}")]
    Io(#[from] io::Error),
}

impl Repository {
    /// Returns the repository that contains `path`.
    pub fn containing(path: &Path) -> Result<Self, GitError> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let directory = match path.parent() {
            Some(parent) if !path.is_dir() => existing_ancestor(parent),
            _ => path,
        };
        let said = run_git(directory, &["rev-parse", "--show-toplevel"]);
        match said {
            Ok(top) => Ok(Self {
                top: PathBuf::from(line(&top)),
            }),
            Err(GitError::Failed { reason, .. }) => Err(GitError::NoRepository {
                path: directory.to_owned(),
                reason,
            }),
            Err(error) => Err(error),
        }
    }

    /// Returns the absolute root of the working tree.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Resolves `revision` to the id of a commit.
    pub fn commit(&self, revision: &str) -> Result<String, GitError> {
        let unknown = || GitError::NoCommit(revision.to_owned());
        if revision.is_empty() || revision.starts_with('-') || revision.contains(['\0', '\n']) {
            return Err(unknown());
        }
        let name = format!("{revision}^{{commit}}");
        let said = run_git(&self.top, &["rev-parse", "--verify", "--quiet", &name]);
        match said {
            Ok(id) => Ok(line(&id)),
            Err(GitError::Failed { .. }) => Err(unknown()),
            Err(error) => Err(error),
        }
    }

    /// Returns the merge base of this branch and its upstream; `None` without an upstream or a
    /// common commit.
    pub fn base(&self) -> Option<String> {
        let base = run_git(&self.top, &["merge-base", "HEAD", "@{upstream}"]).ok()?;
        Some(line(&base)).filter(|id| !id.is_empty())
    }

    /// Returns the files that differ between the working tree and the commit, or exist in only one
    /// of them, including untracked files that are not ignored. Paths are relative to the root of
    /// the working tree.
    ///
    /// Filters are programs and are not run. A file in Git LFS is compared with its pointer. A file
    /// with another filter counts as changed if Git would have to read it.
    pub fn changed_since(&self, commit: &str) -> Result<Vec<PathBuf>, GitError> {
        let names = run_git(&self.top, &["config", "--list", "--name-only", "-z"])?;
        let compare = command_with(&self.top, &without_filters(&names)?)?;
        let arguments: Vec<&str> = DIFF.iter().copied().chain([commit, "--"]).collect();
        let mut changed = paths(&run_command(compare, &arguments)?);
        self.remove_unchanged_lfs(&mut changed, commit)?;
        let untracked = ["ls-files", "--others", "--exclude-standard", "-z"];
        changed.extend(paths(&run_git(&self.top, &untracked)?));
        Ok(changed)
    }

    /// Removes the files whose content matches the commit's Git LFS pointers.
    fn remove_unchanged_lfs(
        &self,
        changed: &mut Vec<PathBuf>,
        commit: &str,
    ) -> Result<(), GitError> {
        if changed.is_empty() {
            return Ok(());
        }
        let (tree, mut blobs) = (self.tree(commit)?, self.blobs()?);
        let mut error = None;
        changed.retain(|path| {
            let entry = tree
                .get(path)
                .filter(|entry| entry.mode == Mode::File && entry.size <= lfs::MAX_POINTER_SIZE);
            let Some(entry) = entry.filter(|_| error.is_none()) else {
                return true;
            };
            match blobs.bytes(&entry.id, lfs::MAX_POINTER_SIZE) {
                Ok(Ok(bytes)) => !Pointer::parse(&bytes)
                    .is_some_and(|pointer| matches_pointer(&self.top.join(path), &pointer)),
                Ok(Err(_)) => true,
                Err(wrong) => {
                    error = Some(wrong);
                    true
                }
            }
        });
        error.map_or(Ok(()), Err)
    }

    /// Returns the files that differ between the index and `HEAD`, or exist in only one of them.
    pub fn staged(&self) -> Result<Vec<PathBuf>, GitError> {
        let staged: Vec<&str> = DIFF.iter().copied().chain(["--cached", "--"]).collect();
        Ok(paths(&run_git(&self.top, &staged)?))
    }
}

/// Returns the files that Git tracks in the working tree with the absolute root `top`, relative to
/// it. Enclosing repositories are ignored.
pub fn tracked(top: &Path) -> Result<Vec<PathBuf>, GitError> {
    let mut command = command(top)?;
    command.env("GIT_CEILING_DIRECTORIES", top.parent().unwrap_or(top));
    Ok(paths(&run_command(command, &["ls-files", "-z"])?))
}

/// Returns whether a file is a regular file with the content that the pointer names.
fn matches_pointer(file: &Path, pointer: &Pointer) -> bool {
    let is_own = file.symlink_metadata().is_ok_and(|found| found.is_file());
    let has_size = || source::metadata(file).is_ok_and(|found| found.len() == pointer.size);
    let expected = pointer.oid.strip_prefix("sha256:");
    let has_sum = || same_bytes::sha256(file).is_ok_and(|sum| Some(sum.as_str()) == expected);
    is_own && has_size() && has_sum()
}

/// Returns the nearest ancestor that is an existing directory.
fn existing_ancestor(path: &Path) -> &Path {
    let found = path.ancestors().find(|ancestor| ancestor.is_dir());
    found.unwrap_or(Path::new("."))
}

/// Runs a Git command and returns its output.
fn run_git(directory: &Path, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
    run_command(command(directory)?, arguments)
}

/// Like [`run_git`], for a prepared command.
fn run_command(mut command: Command, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
    let name = arguments.first().copied().unwrap_or_default().to_owned();
    let mut child = command.args(arguments).spawn().map_err(GitError::NoGit)?;
    let mut complaints = child.stderr.take();
    let complaint = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(pipe) = &mut complaints {
            let _ = pipe.take(MAX_ERROR_BYTES).read_to_end(&mut text);
            // The rest is read and discarded, so that Git does not block.
            let _ = io::copy(pipe, &mut io::sink());
        }
        text
    });
    let mut out = Vec::new();
    if let Some(pipe) = &mut child.stdout {
        pipe.take(MAX_OUTPUT + 1).read_to_end(&mut out)?;
    }
    if out.len() as u64 > MAX_OUTPUT {
        let _ = child.kill();
        let _ = child.wait();
        return Err(GitError::TooLong { command: name });
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(out);
    }
    let complaint = complaint.join().unwrap_or_default();
    let complaint = String::from_utf8_lossy(&complaint);
    let first = complaint.lines().find(|line| !line.trim().is_empty());
    Err(GitError::Failed {
        command: name,
        reason: first.map_or_else(|| status.to_string(), str::to_owned),
    })
}

fn line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches(['\n', '\r']).to_owned()
}

/// Splits NUL-separated paths. A path that is not UTF-8 cannot be referenced by a config, so it is
/// dropped.
fn paths(bytes: &[u8]) -> Vec<PathBuf> {
    let pieces = bytes.split(|byte| *byte == 0);
    let texts = pieces.filter_map(|piece| std::str::from_utf8(piece).ok());
    let named = texts.filter(|text| !text.is_empty());
    named.map(PathBuf::from).collect()
}
