//! Globs in the syntax of `.gitignore`, relative to a directory. `**` matches any number of
//! directories, a name without `/` matches at any depth, and a final `/` matches only directories.
//!
//! Invariant: `/` is the separator on every system. A backslash is rejected, since its meaning
//! would depend on the system.

use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Maximum length of a glob, in bytes.
const MAX_GLOB_BYTES: usize = 1024;

/// Maximum number of globs in a list.
pub(super) const MAX_GLOBS: usize = 500;

/// An improbable file name. A glob that matches it below a directory matches everything there.
const IMPROBABLE_NAME: &str = "\u{1}";

/// A parsed glob.
#[derive(Debug, Clone)]
pub struct Glob {
    text: String,
    matcher: Gitignore,
}

impl Glob {
    /// Parses a glob, or returns a message and a remedy.
    pub fn parse(text: &str) -> Result<Self, (String, String)> {
        let wrong = |message: &str, help: &str| Err((message.to_owned(), help.to_owned()));
        if text.trim().is_empty() {
            return wrong(
                "empty glob, which matches nothing",
                "remove it, or write `**` for everything",
            );
        }
        if text.len() > MAX_GLOB_BYTES {
            return wrong(
                "glob too long: at most 1024 bytes are supported",
                "write several shorter globs",
            );
        }
        if text.contains('\\') {
            let help = format!(
                "write `{}`: the separator is `/` on every system",
                text.replace('\\', "/")
            );
            return Err(("glob with a backslash".to_owned(), help));
        }
        if text.starts_with(['!', '#']) {
            return wrong(
                "glob that begins with `!` or `#`, which is not supported",
                "write `[!]` or `[#]` for these characters",
            );
        }
        if text.split('/').any(|part| part == ".." || part == ".") {
            return wrong(
                "glob with `.` or `..`, which is not supported",
                "globs are relative to `root` and match only paths below it",
            );
        }
        let mut builder = GitignoreBuilder::new("");
        let built = builder
            // By default, an unclosed `[` would match itself, and the glob would match nothing that
            // was meant.
            .allow_unclosed_class(false)
            .add_line(None, text)
            .and_then(|builder| builder.build());
        match built {
            Ok(matcher) if matcher.num_ignores() == 1 => Ok(Self {
                text: text.to_owned(),
                matcher,
            }),
            Ok(_) => wrong("glob that matches nothing", "write `**` for everything"),
            Err(error) => Err((
                format!("invalid glob: {}", cause(&error)),
                "`*`, `**`, `?` and `[a-z]` are special; write `[*]` for the character itself"
                    .to_owned(),
            )),
        }
    }

    /// Returns the glob as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the glob matches this relative path itself.
    pub fn matches(&self, path: &Path, is_directory: bool) -> bool {
        path.is_relative() && matches!(self.matcher.matched(path, is_directory), Match::Ignore(_))
    }

    /// Returns whether the glob matches the relative path of a file, or a directory above it.
    pub fn covers(&self, file: &Path) -> bool {
        let mut is_directory = false;
        file.ancestors().any(|path| {
            let matches = !path.as_os_str().is_empty() && self.matches(path, is_directory);
            is_directory = true;
            matches
        })
    }

    /// Returns whether the glob matches everything in the directory at this relative path.
    pub fn covers_all_of(&self, directory: &Path) -> bool {
        directory.ancestors().any(|path| {
            !path.as_os_str().is_empty()
                && (self.matches(path, true) || self.matches(&path.join(IMPROBABLE_NAME), false))
        })
    }
}

/// Returns the innermost error, without the glob and the line.
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
