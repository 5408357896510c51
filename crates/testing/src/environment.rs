//! The test environment: runtimes, packages and programs that `tests/setup` installs.
//!
//! A test skips itself, with a message, when its piece is missing. Pieces listed in
//! `PKGTOOL_REQUIRE` (such as `ort,qnn`) fail the test instead.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

/// A piece of the test environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvironmentPiece {
    /// ONNX Runtime's library.
    Ort,
    /// ONNX Runtime's library with the WebGPU provider.
    WebGpu,
    /// The directory of the QNN provider and its emulator.
    Qnn,
    /// The directory of ExecuTorch's Python package.
    ExecuTorch,
    /// The directory of the ONNX conformance cases.
    Cases,
    /// The package of a sentence encoder with real weights.
    Minilm,
    /// The directory of Python packages with models.
    Models,
    /// The directory of scikit-learn.
    Sklearn,
    /// The directory of schemathesis, an API fuzzer.
    Schemathesis,
    /// `promtool`, the checker of Prometheus for metrics.
    Promtool,
    /// The directory of the `openai` Python client.
    OpenAi,
    /// The directory of libraries that use chat services.
    Frameworks,
    /// The directory of the `pygls` language client.
    Lsp,
    /// The directory of HTTP clients in Python.
    Http,
    /// The directory of grpcio and its tools.
    Grpc,
    /// A JDK, which `tests/setup` does not install.
    Java,
    /// The Go toolchain, which `tests/setup` does not install: Debian's package takes more than 300
    /// MB.
    Go,
    /// The directory of npm packages: the `openai` client, the AI SDK, the accessibility
    /// checker.
    OpenAiNode,
    /// The directory of Playwright, which drives browsers.
    Playwright,
    /// The program of Chromium.
    Chromium,
    /// The directory of PostgreSQL's programs.
    Postgres,
    /// The program of `PgBouncer`, a pooler of connections to PostgreSQL.
    PgBouncer,
    /// The tool's binary for 64-bit ARM. The program `qemu` beside it runs it.
    Arm,
    /// The program of Android's `adb`.
    Adb,
    /// The directory of OpenSSH's programs: `sshd`, `ssh` and `ssh-keygen`.
    Sshd,
    /// The directory of moto, a server of object storage.
    Moto,
}

impl EnvironmentPiece {
    /// Returns the name used in `PKGTOOL_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ort => "ort",
            Self::WebGpu => "webgpu",
            Self::Qnn => "qnn",
            Self::ExecuTorch => "executorch",
            Self::Cases => "cases",
            Self::Minilm => "minilm",
            Self::Models => "models",
            Self::Sklearn => "sklearn",
            Self::Schemathesis => "schemathesis",
            Self::Promtool => "promtool",
            Self::OpenAi => "openai",
            Self::Frameworks => "frameworks",
            Self::Lsp => "lsp",
            Self::OpenAiNode => "openai-node",
            Self::Playwright => "playwright",
            Self::Chromium => "chromium",
            Self::Postgres => "postgres",
            Self::PgBouncer => "pgbouncer",
            Self::Arm => "arm",
            Self::Adb => "adb",
            Self::Sshd => "sshd",
            Self::Moto => "moto",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Java => "java",
            Self::Go => "go",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Ort => "PKGTOOL_TEST_ORT",
            Self::WebGpu => "PKGTOOL_TEST_ORT_WEBGPU",
            Self::Qnn => "PKGTOOL_TEST_QNN",
            Self::ExecuTorch => "PKGTOOL_EXECUTORCH_DIR",
            Self::Cases => "PKGTOOL_TEST_CASES",
            Self::Minilm => "PKGTOOL_TEST_MINILM",
            Self::Models => "PKGTOOL_TEST_MODELS",
            Self::Sklearn => "PKGTOOL_TEST_SKLEARN",
            Self::Schemathesis => "PKGTOOL_TEST_SCHEMATHESIS",
            Self::Promtool => "PKGTOOL_TEST_PROMTOOL",
            Self::OpenAi => "PKGTOOL_TEST_OPENAI",
            Self::Frameworks => "PKGTOOL_TEST_FRAMEWORKS",
            Self::Lsp => "PKGTOOL_TEST_LSP",
            Self::OpenAiNode => "PKGTOOL_TEST_OPENAI_NODE",
            Self::Playwright => "PKGTOOL_TEST_PLAYWRIGHT",
            Self::Chromium => "PKGTOOL_TEST_CHROMIUM",
            Self::Postgres => "PKGTOOL_TEST_POSTGRES",
            Self::PgBouncer => "PKGTOOL_TEST_PGBOUNCER",
            Self::Arm => "PKGTOOL_TEST_ARM",
            Self::Adb => "PKGTOOL_TEST_ADB",
            Self::Sshd => "PKGTOOL_TEST_SSHD",
            Self::Moto => "PKGTOOL_TEST_MOTO",
            Self::Http => "PKGTOOL_TEST_HTTP",
            Self::Grpc => "PKGTOOL_TEST_GRPC",
            Self::Java => "PKGTOOL_TEST_JAVA",
            Self::Go => "PKGTOOL_TEST_GO",
        }
    }

    /// Returns the path of this piece, if it is installed.
    pub fn path(self) -> Option<PathBuf> {
        env::var_os(self.variable()).map(PathBuf::from)
    }

    /// Returns the version of the package that contains this piece.
    pub fn version(self) -> Option<String> {
        env::var(format!("{}_VERSION", self.variable())).ok()
    }

    /// Returns true if the test fails without this piece.
    pub fn is_required(self) -> bool {
        let list = env::var("PKGTOOL_REQUIRE").unwrap_or_default();
        list.split(',').any(|name| name.trim() == self.name())
    }

    /// Returns the path of this piece. `None` means that the test is skipped, after a message.
    #[track_caller]
    pub fn or_skip(self, test: &str) -> Option<PathBuf> {
        let path = self.path();
        if path.is_none() {
            self.skip(test, "tests/setup did not run, or could not get it");
        }
        path
    }

    /// Returns the program of this piece: the path in its environment variable, or its name if it
    /// is on `PATH`. `None` means that the test is skipped, after a message.
    #[track_caller]
    pub fn program_or_skip(self, test: &str, program: &str) -> Option<PathBuf> {
        let on_path = || {
            let path = env::var_os("PATH")?;
            let mut candidates = env::split_paths(&path).map(|directory| directory.join(program));
            candidates.find(|candidate| candidate.is_file())
        };
        let found = self.path().or_else(on_path);
        if found.is_none() {
            self.skip(test, &format!("`{program}` is not installed"));
        }
        found
    }

    /// Prints that `test` is skipped because this piece is missing. Panics if the piece is
    /// required.
    #[track_caller]
    pub fn skip(self, test: &str, reason: &str) {
        let name = self.name();
        assert!(
            !self.is_required(),
            "{test}: `{name}` is required but missing: {reason}"
        );
        say(&format!("SKIPPED {test}: no `{name}`: {reason}"));
    }
}

/// Prints a line to standard error, bypassing the output capture of the test harness.
pub fn say(line: &str) {
    // Standard error may be closed; that must not fail the test.
    let _ = writeln!(io::stderr(), "{line}");
}
