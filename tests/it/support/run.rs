//! Runs the `pkgtool` binary: `pkgtool(["validate", "."]).within(dir).run().expect_code(1)`.
//!
//! Each run is a separate process whose output does not depend on a terminal, so tests can run in
//! parallel. A panic of the tool always fails the test.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A command that has not run yet.
pub(crate) struct Run {
    command: Command,
}

/// The exit code and output of a finished command.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

/// Creates a run of the tool with these arguments.
pub(crate) fn pkgtool<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pkgtool"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("NO_COLOR")
        .env_remove("RUST_BACKTRACE");
    Run { command }
}

/// Runs `pkgtool validate --format json PATH` in `directory`.
pub(crate) fn validate(directory: &Path, path: &str) -> Ran {
    let arguments = ["validate", "--format", "json", path];
    pkgtool(arguments).within(directory).run()
}

impl Run {
    /// Sets the working directory.
    pub(crate) fn within(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Sets an environment variable.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable.
    #[cfg(all(unix, feature = "serve"))]
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Makes an interrupt end the tool even if the tests run in the background, where a shell makes
    /// processes ignore interrupts.
    #[cfg(target_os = "linux")]
    pub(crate) fn interruptible(self) -> Self {
        let mut command = Command::new("env");
        command
            .arg("--default-signal=INT")
            .arg(self.command.get_program())
            .args(self.command.get_args())
            .stdin(Stdio::null());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = self.command.get_current_dir() {
            command.current_dir(directory);
        }
        Self { command }
    }

    /// Returns the command itself, for features that this harness lacks.
    pub(crate) fn into_command(self) -> Command {
        self.command
    }

    /// Runs the command to its end.
    pub(crate) fn run(mut self) -> Ran {
        let output = self.command.output().expect("the binary runs");
        let text = |bytes| String::from_utf8(bytes).expect("the tool writes UTF-8");
        let ran = Ran {
            code: output.status.code().expect("no signal ended it"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        let panicked = ran.code == 70 || ran.stderr.contains("panicked");
        assert!(!panicked, "{:?}: {}", self.command, ran.stderr);
        ran
    }
}

impl Ran {
    /// Fails the test unless the exit code is `code`.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            code,
            "\n{}\n{}",
            &self.stdout[..self.stdout.floor_char_boundary(4000)],
            self.stderr
        );
        self
    }

    /// Checks that standard error contains this text.
    #[track_caller]
    pub(crate) fn expect_error(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{}", self.stderr);
        self
    }

    /// Parses standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    /// Returns the findings of a JSON report.
    #[track_caller]
    pub(crate) fn findings(&self) -> Vec<Found> {
        let report = self.json();
        let diagnostics = report["diagnostics"].as_array().expect("an array");
        diagnostics.iter().map(Found::read).collect()
    }

    /// Returns the codes of a JSON report's findings, including notes.
    #[track_caller]
    pub(crate) fn codes(&self) -> Vec<String> {
        let findings = self.findings().into_iter();
        findings.map(|finding| finding.code).collect()
    }
}

/// A finding of a JSON report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// `PKG001`.
    pub(crate) code: String,
    /// `error`, `warning` or `note`.
    pub(crate) severity: String,
    /// The file.
    pub(crate) path: String,
    /// JSON Pointer.
    pub(crate) pointer: String,
    /// Line and column of its start.
    pub(crate) at: (u64, u64),
    /// The description of the problem.
    pub(crate) message: String,
    /// The suggested remedy; empty if the finding has none.
    pub(crate) help: String,
}

impl Found {
    fn read(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let start = &value["span"]["start"];
        let number = |key: &str| start[key].as_u64().expect("a position");
        Self {
            code: text("code"),
            severity: text("severity"),
            path: text("path"),
            pointer: text("pointer"),
            at: (number("line"), number("column")),
            message: text("message"),
            help: text("help"),
        }
    }
}
