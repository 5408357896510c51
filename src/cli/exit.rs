//! Exit codes, and the errors with which a command can fail.

use std::io;
use std::process::ExitCode;

/// The table of exit codes in `--help`.
pub(super) const HELP: &str = "\
Exit codes:
  0   success, no findings
  1   findings
  2   invalid usage, or the command failed
  3   nothing found to work on
  70  a bug in this tool";

/// The table of exit codes in `diff --help`.
pub(super) const DIFF_HELP: &str = "\
Exit codes:
  0   no changes at the level of --fail-on
  1   changes at the level of --fail-on (default: breaking) or above
  2   invalid usage, or the command failed
  3   nothing found to compare
  70  a bug in this tool";

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success without findings.
    Clean,
    /// Findings at a level that fails the run.
    Findings,
    /// The command failed.
    Failure,
    /// There was nothing to work on.
    Nothing,
    /// A panic.
    Bug,
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Writing to standard output failed.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// There is nothing to work on.
    #[error("{0}")]
    Nothing(String),
    /// Any other failure. The message includes the remedy.
    #[error("{0}")]
    Other(String),
}

impl Exit {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Findings => 1,
            Self::Failure => 2,
            Self::Nothing => 3,
            Self::Bug => 70,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
