//! Runs the `git` program without running any program that a repository configures.
//!
//! A downloaded repository has a `.git/config` and `.gitattributes` written by others, and Git runs
//! the filters, hooks, monitors and helpers in them. Invariant: a command created here runs only
//! git itself, never fetches and never prompts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, io};

use super::GitError;

/// Settings that override those of the repository.
const SETTINGS: [(&str, &str); 12] = [
    ("core.askPass", ""),
    ("core.editor", "false"),
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.quotePath", "false"),
    ("core.sshCommand", "false"),
    ("credential.helper", ""),
    ("diff.submodule", "short"),
    ("protocol.allow", "never"),
    // A directory that looks like a bare repository does not count as one.
    ("safe.bareRepository", "explicit"),
    ("submodule.recurse", "false"),
];

/// Environment variables that name programs, or files that Git writes.
const VARIABLES: [&str; 13] = [
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_TRACE",
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
    "GIT_TRACE2_PERF",
    "SSH_ASKPASS",
];

/// The settings of a filter that name a program or make it mandatory.
const FILTER_KEYS: [&str; 4] = ["clean", "process", "required", "smudge"];

/// The environment variable with the number of settings that are already in the environment.
const CONFIG_COUNT_VARIABLE: &str = "GIT_CONFIG_COUNT";

/// Creates a Git command in a directory.
pub(super) fn command(directory: &Path) -> Result<Command, GitError> {
    command_with(directory, &[])
}

/// Like [`command()`], with additional settings.
pub(super) fn command_with(directory: &Path, more: &[(String, &str)]) -> Result<Command, GitError> {
    let mut command = Command::new(program()?);
    command
        .args(["--no-pager", "--no-optional-locks", "--literal-pathspecs"])
        .current_dir(directory)
        .env("GIT_ALLOW_PROTOCOL", "none")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    // The environment accepts any setting name, while `-c` ends the name at the first `=`.
    let given = env::var(CONFIG_COUNT_VARIABLE)
        .ok()
        .and_then(|count| count.parse().ok());
    let given: usize = given.unwrap_or(0);
    let own = SETTINGS.iter().copied();
    let more = more.iter().map(|(key, value)| (key.as_str(), *value));
    let mut count = given;
    for (key, value) in own.chain(more) {
        command.env(format!("GIT_CONFIG_KEY_{count}"), key);
        command.env(format!("GIT_CONFIG_VALUE_{count}"), value);
        count += 1;
    }
    command.env(CONFIG_COUNT_VARIABLE, count.to_string());
    Ok(command)
}

/// Returns settings that disable every filter, given the names of all settings, each terminated by
/// a NUL.
pub(super) fn without_filters(names: &[u8]) -> Result<Vec<(String, &'static str)>, GitError> {
    let mut settings = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"filter."))
    {
        let unusable = || GitError::FilterName(String::from_utf8_lossy(name).into_owned());
        let text = std::str::from_utf8(name).map_err(|_| unusable())?;
        let Some((filter, key)) = text
            .rsplit_once('.')
            .filter(|(filter, _)| *filter != "filter")
        else {
            continue;
        };
        // Git accepts such a name only from a file.
        if filter.contains('\n') {
            return Err(unusable());
        }
        if FILTER_KEYS.contains(&key) {
            let empty = |key: &&str| if *key == "required" { "false" } else { "" };
            settings.extend(
                FILTER_KEYS
                    .iter()
                    .map(|key| (format!("{filter}.{key}"), empty(key))),
            );
        }
    }
    settings.sort();
    settings.dedup();
    Ok(settings)
}

/// Returns the path of `git`. Relative directories in `PATH` are skipped, because they could be
/// inside the repository.
fn program() -> Result<PathBuf, GitError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let name = format!("git{}", env::consts::EXE_SUFFIX);
    let mut places = env::split_paths(&path).filter(|place| place.is_absolute());
    let found = places.find_map(|place| Some(place.join(&name)).filter(|file| file.is_file()));
    found.ok_or_else(|| GitError::NoGit(io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use super::without_filters;

    #[test]
    fn every_filter_loses_its_programs() {
        let names =
            b"core.bare\0filter.lfs.clean\0filter.a=b.c.process\0filter.lfs.smudge\0filter.x\0";
        let settings = without_filters(names).expect("names of filters");
        let keys: Vec<&str> = settings.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "filter.a=b.c.clean",
                "filter.a=b.c.process",
                "filter.a=b.c.required",
                "filter.a=b.c.smudge",
                "filter.lfs.clean",
                "filter.lfs.process",
                "filter.lfs.required",
                "filter.lfs.smudge",
            ]
        );
        assert!(without_filters(b"filter.a\nb.clean\0").is_err());
    }
}
