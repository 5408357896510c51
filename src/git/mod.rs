//! Git repositories, through the `git` program: what a revision or the index holds, what has changed.
//!
//! Invariant: output is read up to a bound and what a caller names is never taken for an option. Nothing
//! is fetched, nothing in the repository is changed, no program that the repository names is run. Knows nothing of
//! packages.

mod blobs;
mod command;
mod listing;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

pub use blobs::Blobs;
pub use listing::{Entry, Listing, Mode};

use crate::source::lfs::{self, Pointer};
use crate::source::{self, same_bytes};
use command::{command, command_with, without_filters};

/// Most bytes of output that a listing may have.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;
/// Most bytes of a complaint that are shown.
const MAX_COMPLAINT: u64 = 4096;

/// A comparison that names files only. Git starts processes in submodules unless they are left out.
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

/// Why Git could not say what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be run.
    #[error("cannot run `git`: {0}; it must be installed and in the PATH")]
    NoGit(io::Error),
    /// The directory lies in no repository.
    #[error("{path}: not in a Git repository with a working tree ({reason})", path = path.display())]
    NoRepository {
        /// The directory.
        path: PathBuf,
        /// What Git said.
        reason: String,
    },
    /// No commit has this name.
    #[error("`{0}` names no commit of this repository; `git log` and `git tag` list them")]
    NoCommit(String),
    /// A command failed.
    #[error("`git {command}` failed: {reason}")]
    Failed {
        /// The subcommand.
        command: String,
        /// What Git said.
        reason: String,
    },
    /// The repository has a filter that cannot be switched off.
    #[error(
        "the Git settings of this repository name a filter `{0}`, which cannot be switched off; remove it from them"
    )]
    FilterName(String),
    /// A listing is longer than what is read.
    #[error("`git {command}` lists more than {} MiB: the repository has too many files", MAX_OUTPUT / 1024 / 1024)]
    TooLong {
        /// The subcommand.
        command: String,
    },
    /// An object is not there, or is no file.
    #[error("object {0} is not in this repository; fetch it, if the clone is a partial one")]
    NoObject(String),
    /// A file cannot be written, or Git's answer not be read.
    #[error("cannot read from git: {0}")]
    Io(#[from] io::Error),
}

impl Repository {
    /// The repository that the directory, or the directory of the file, at `path` lies in.
    pub fn around(path: &Path) -> Result<Self, Error> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let directory = match path.parent() {
            Some(parent) if !path.is_dir() => existing(parent),
            _ => path,
        };
        let said = ask(directory, &["rev-parse", "--show-toplevel"]);
        match said {
            Ok(top) => Ok(Self {
                top: PathBuf::from(line(&top)),
            }),
            Err(Error::Failed { reason, .. }) => Err(Error::NoRepository {
                path: directory.to_owned(),
                reason,
            }),
            Err(error) => Err(error),
        }
    }

    /// The root of the working tree, absolute.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// The id of the commit that `revision` names.
    pub fn commit(&self, revision: &str) -> Result<String, Error> {
        let unknown = || Error::NoCommit(revision.to_owned());
        if revision.is_empty() || revision.starts_with('-') || revision.contains(['\0', '\n']) {
            return Err(unknown());
        }
        let name = format!("{revision}^{{commit}}");
        let said = ask(&self.top, &["rev-parse", "--verify", "--quiet", &name]);
        match said {
            Ok(id) => Ok(line(&id)),
            Err(Error::Failed { .. }) => Err(unknown()),
            Err(error) => Err(error),
        }
    }

    /// The commit where this branch left its upstream; `None` without an upstream or a common commit.
    pub fn base(&self) -> Option<String> {
        let base = ask(&self.top, &["merge-base", "HEAD", "@{upstream}"]).ok()?;
        Some(line(&base)).filter(|id| !id.is_empty())
    }

    /// Files of which the working tree has other content than the commit, or which only one of them
    /// has, untracked ones that are not ignored among them: paths from the root of the working tree.
    ///
    /// Filters are programs and are not run. A file that Git LFS keeps is compared with its pointer; one that
    /// another filter changes counts as changed if Git has to look into it.
    pub fn changed_since(&self, commit: &str) -> Result<Vec<PathBuf>, Error> {
        let names = ask(&self.top, &["config", "--list", "--name-only", "-z"])?;
        let compare = command_with(&self.top, &without_filters(&names)?)?;
        let arguments: Vec<&str> = DIFF.iter().copied().chain([commit, "--"]).collect();
        let mut changed = paths(&said(compare, &arguments)?);
        self.leave_out_stored(&mut changed, commit)?;
        let untracked = ["ls-files", "--others", "--exclude-standard", "-z"];
        changed.extend(paths(&ask(&self.top, &untracked)?));
        Ok(changed)
    }

    /// Leaves out files that are what the commit's Git LFS pointers stand for.
    fn leave_out_stored(&self, changed: &mut Vec<PathBuf>, commit: &str) -> Result<(), Error> {
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
                    .is_some_and(|pointer| is_stored(&self.top.join(path), &pointer)),
                Ok(Err(_)) => true,
                Err(wrong) => {
                    error = Some(wrong);
                    true
                }
            }
        });
        error.map_or(Ok(()), Err)
    }

    /// Files of which the index has other content than `HEAD`, or which only one of them has.
    pub fn staged(&self) -> Result<Vec<PathBuf>, Error> {
        let staged: Vec<&str> = DIFF.iter().copied().chain(["--cached", "--"]).collect();
        Ok(paths(&ask(&self.top, &staged)?))
    }
}

/// Files that Git tracks in the working tree with the absolute root `top`: paths from there. No repository
/// further up is asked.
pub fn tracked(top: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut command = command(top)?;
    command.env("GIT_CEILING_DIRECTORIES", top.parent().unwrap_or(top));
    Ok(paths(&said(command, &["ls-files", "-z"])?))
}

/// Whether a file is the one that a pointer stands for. What is no regular file of the tree itself is not.
fn is_stored(file: &Path, pointer: &Pointer) -> bool {
    let is_own = file.symlink_metadata().is_ok_and(|found| found.is_file());
    let has_size = || source::metadata(file).is_ok_and(|found| found.len() == pointer.size);
    let expected = pointer.oid.strip_prefix("sha256:");
    let has_sum = || same_bytes::sha256(file).is_ok_and(|sum| Some(sum.as_str()) == expected);
    is_own && has_size() && has_sum()
}

/// The nearest ancestor that is a directory.
fn existing(path: &Path) -> &Path {
    let found = path.ancestors().find(|ancestor| ancestor.is_dir());
    found.unwrap_or(Path::new("."))
}

/// What a command of Git prints.
fn ask(directory: &Path, arguments: &[&str]) -> Result<Vec<u8>, Error> {
    said(command(directory)?, arguments)
}

/// The same of a command that is made already.
fn said(mut command: Command, arguments: &[&str]) -> Result<Vec<u8>, Error> {
    let name = arguments.first().copied().unwrap_or_default().to_owned();
    let mut child = command.args(arguments).spawn().map_err(Error::NoGit)?;
    let mut complaints = child.stderr.take();
    let complaint = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(pipe) = &mut complaints {
            let _ = pipe.take(MAX_COMPLAINT).read_to_end(&mut text);
            // What is not shown is still taken, or Git would wait.
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
        return Err(Error::TooLong { command: name });
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(out);
    }
    let complaint = complaint.join().unwrap_or_default();
    let complaint = String::from_utf8_lossy(&complaint);
    let first = complaint.lines().find(|line| !line.trim().is_empty());
    Err(Error::Failed {
        command: name,
        reason: first.map_or_else(|| status.to_string(), str::to_owned),
    })
}

fn line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches(['\n', '\r']).to_owned()
}

/// Paths between NUL characters. One that is not UTF-8 names no file of a package: references are JSON.
fn paths(bytes: &[u8]) -> Vec<PathBuf> {
    let pieces = bytes.split(|byte| *byte == 0);
    let texts = pieces.filter_map(|piece| std::str::from_utf8(piece).ok());
    let named = texts.filter(|text| !text.is_empty());
    named.map(PathBuf::from).collect()
}
