//! Globs, as `.gitignore` files have them: relative to a directory, `**` for any number of directories, a
//! name without `/` at any depth, `/` at the end for directories only.
//!
//! Invariant: parts are separated by `/` on every system. A backslash, which would mean something else on
//! each, is refused.

use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Longest glob, in bytes.
const MAX_GLOB: usize = 1024;

/// Most globs of one list.
pub(super) const MAX_GLOBS: usize = 500;

/// A name that nobody gives a file: what matches it below a directory matches all that is in there.
const ANYTHING: &str = "\u{1}";

/// One glob.
#[derive(Debug, Clone)]
pub struct Glob {
    text: String,
    matcher: Gitignore,
}

impl Glob {
    /// Reads a glob; else what is wrong with it, and what to do.
    pub fn parse(text: &str) -> Result<Self, (String, String)> {
        let wrong = |message: &str, help: &str| Err((message.to_owned(), help.to_owned()));
        if text.trim().is_empty() {
            return wrong(
                "an empty glob matches nothing",
                "remove it, or write `**` for everything",
            );
        }
        if text.len() > MAX_GLOB {
            return wrong(
                "a glob of more than 1024 bytes",
                "write several shorter ones",
            );
        }
        if text.contains('\\') {
            let help = format!(
                "write `{}`: parts are separated by `/` on every system",
                text.replace('\\', "/")
            );
            return Err(("a glob with a backslash".to_owned(), help));
        }
        if text.starts_with(['!', '#']) {
            return wrong(
                "a glob cannot begin with `!` or `#` here",
                "name what is meant; `[!]` and `[#]` stand for these characters",
            );
        }
        if text.split('/').any(|part| part == ".." || part == ".") {
            return wrong(
                "a glob cannot have `.` or `..`",
                "globs are relative to `root`, and stay below it",
            );
        }
        let mut builder = GitignoreBuilder::new("");
        let built = builder
            // git takes `[` for itself then, and the glob matches nothing that was meant.
            .allow_unclosed_class(false)
            .add_line(None, text)
            .and_then(|builder| builder.build());
        match built {
            Ok(matcher) if matcher.num_ignores() == 1 => Ok(Self {
                text: text.to_owned(),
                matcher,
            }),
            Ok(_) => wrong("a glob that matches nothing", "write `**` for everything"),
            Err(error) => Err((
                format!("no glob: {}", cause(&error)),
                "`*`, `**`, `?` and `[a-z]` have a meaning; `[*]` is the character".to_owned(),
            )),
        }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it matches this relative path itself.
    pub fn matches(&self, path: &Path, is_directory: bool) -> bool {
        path.is_relative() && matches!(self.matcher.matched(path, is_directory), Match::Ignore(_))
    }

    /// Whether it matches the relative path of a file or a directory in which it is.
    pub fn covers(&self, file: &Path) -> bool {
        let mut is_directory = false;
        file.ancestors().any(|path| {
            let matches = !path.as_os_str().is_empty() && self.matches(path, is_directory);
            is_directory = true;
            matches
        })
    }

    /// Whether it covers all that is in the directory of this relative path.
    pub fn covers_all_of(&self, directory: &Path) -> bool {
        directory.ancestors().any(|path| {
            !path.as_os_str().is_empty()
                && (self.matches(path, true) || self.matches(&path.join(ANYTHING), false))
        })
    }
}

/// The error itself, without the glob and line that it is wrapped in.
fn cause(error: &ignore::Error) -> String {
    match error {
        ignore::Error::Glob { err, .. } => err.clone(),
        ignore::Error::WithLineNumber { err, .. } | ignore::Error::WithPath { err, .. } => {
            cause(err)
        }
        ignore::Error::Partial(all) => all.first().map(cause).unwrap_or_default(),
        other => other.to_string(),
    }
}
