//! Exit codes, and the ways a command can fail to do its job.

use std::io;
use std::process::ExitCode;

/// The table of exit codes in `--help`.
pub(super) const HELP: &str = "\
Exit codes:
  0   clean, or done
  1   findings
  2   wrong usage, or the tool could not do its job
  3   nothing found to work on
  70  a bug in this tool";

/// The same for `diff`.
pub(super) const DIFF_HELP: &str = "\
`pkgtool diff --kinds` lists what counts as breaking, compatible and cosmetic.

Exit codes:
  0   no change of the level of --fail-on
  1   breaking changes, or those of --fail-on
  2   wrong usage, or the tool could not do its job
  3   nothing found to compare
  70  a bug in this tool";

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Clean, or done.
    Clean,
    /// Findings that count.
    Findings,
    /// The tool could not do its job.
    Failure,
    /// Nothing was found to work on.
    Nothing,
    /// A panic.
    Bug,
}

/// Why a command could not do its job.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Standard output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// There is nothing to work on.
    #[error("{0}")]
    Nothing(String),
    /// Anything else, in words that say what to do.
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
