//! Git repositories, through the `git` program: what a revision or the index holds, what has changed.
//!
//! Invariant: output is read up to a bound and what a caller names is never taken for an option. Nothing
//! is fetched, nothing in the repository is changed. Knows nothing of packages.

mod blobs;
mod listing;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use blobs::Blobs;
pub use listing::{Entry, Listing, Mode};

/// Most bytes of output that a listing may have.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;
/// Most bytes of a complaint that are shown.
const MAX_COMPLAINT: u64 = 4096;

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
    pub fn changed_since(&self, commit: &str) -> Result<Vec<PathBuf>, Error> {
        let diff = [
            "diff",
            "--name-only",
            "--no-ext-diff",
            "--no-renames",
            "-z",
            commit,
            "--",
        ];
        let mut changed = paths(&ask(&self.top, &diff)?);
        let untracked = ["ls-files", "--others", "--exclude-standard", "-z"];
        changed.extend(paths(&ask(&self.top, &untracked)?));
        Ok(changed)
    }

    /// Files of which the index has other content than `HEAD`, or which only one of them has.
    pub fn staged(&self) -> Result<Vec<PathBuf>, Error> {
        let diff = [
            "diff",
            "--cached",
            "--name-only",
            "--no-ext-diff",
            "--no-renames",
            "-z",
            "--",
        ];
        Ok(paths(&ask(&self.top, &diff)?))
    }
}

/// Files that Git tracks in the working tree with the absolute root `top`: paths from there. No repository
/// further up is asked.
pub fn tracked(top: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut command = command(top);
    command.env("GIT_CEILING_DIRECTORIES", top.parent().unwrap_or(top));
    Ok(paths(&said(command, &["ls-files", "-z"])?))
}

/// The nearest ancestor that is a directory.
fn existing(path: &Path) -> &Path {
    let found = path.ancestors().find(|ancestor| ancestor.is_dir());
    found.unwrap_or(Path::new("."))
}

/// A command of Git in a directory, without anything that asks, fetches or runs others' programs.
fn command(directory: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg("--no-optional-locks")
        .arg("--literal-pathspecs")
        .args(["-c", "core.fsmonitor=false", "-c", "core.quotePath=false"])
        .current_dir(directory)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a command of Git prints.
fn ask(directory: &Path, arguments: &[&str]) -> Result<Vec<u8>, Error> {
    said(command(directory), arguments)
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
