//! What `tests/setup` got for the tests. Without it, what needs it is skipped and says so, unless
//! `PKGTOOL_REQUIRE` (a list such as `ort,qnn`) makes that a failure.

use std::env;
use std::path::PathBuf;

pub(crate) use super::skip::say;

/// A piece of the test environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
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
    /// The directory of scikit-learn.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "its test needs the gateway")
    )]
    Sklearn,
    /// The directory of schemathesis, a fuzzer of APIs.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "its test needs the gateway")
    )]
    Schemathesis,
    /// Prometheus' own checker of metrics.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "its test needs the gateway")
    )]
    Promtool,
    /// The directory of the `openai` Python client.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "its test needs the gateway")
    )]
    OpenAi,
    /// The directory of the `pygls` language client.
    Lsp,
    /// The directory of the `openai` npm client.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "its test needs the gateway")
    )]
    OpenAiNode,
}

impl Piece {
    /// Name, as in `PKGTOOL_REQUIRE`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ort => "ort",
            Self::WebGpu => "webgpu",
            Self::Qnn => "qnn",
            Self::ExecuTorch => "executorch",
            Self::Cases => "cases",
            Self::Minilm => "minilm",
            Self::Sklearn => "sklearn",
            Self::Schemathesis => "schemathesis",
            Self::Promtool => "promtool",
            Self::OpenAi => "openai",
            Self::Lsp => "lsp",
            Self::OpenAiNode => "openai-node",
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
            Self::Sklearn => "PKGTOOL_TEST_SKLEARN",
            Self::Schemathesis => "PKGTOOL_TEST_SCHEMATHESIS",
            Self::Promtool => "PKGTOOL_TEST_PROMTOOL",
            Self::OpenAi => "PKGTOOL_TEST_OPENAI",
            Self::Lsp => "PKGTOOL_TEST_LSP",
            Self::OpenAiNode => "PKGTOOL_TEST_OPENAI_NODE",
        }
    }

    /// Where it is.
    pub(crate) fn path(self) -> Option<PathBuf> {
        env::var_os(self.variable()).map(PathBuf::from)
    }

    /// The version of the package it is from.
    pub(crate) fn version(self) -> Option<String> {
        env::var(format!("{}_VERSION", self.variable())).ok()
    }

    /// Whether its absence is a failure.
    pub(crate) fn is_required(self) -> bool {
        let list = env::var("PKGTOOL_REQUIRE").unwrap_or_default();
        list.split(',').any(|name| name.trim() == self.name())
    }

    /// Where it is; `None` skips the test, loudly.
    #[track_caller]
    pub(crate) fn or_skip(self, test: &str) -> Option<PathBuf> {
        let path = self.path();
        if path.is_none() {
            self.skip(test, "tests/setup did not run, or could not get it");
        }
        path
    }

    /// Says that `test` is skipped for want of this piece; a failure if it is required.
    #[track_caller]
    pub(crate) fn skip(self, test: &str, reason: &str) {
        let name = self.name();
        assert!(
            !self.is_required(),
            "{test}: `{name}` is required but missing: {reason}"
        );
        say(&format!("SKIPPED {test}: no `{name}`: {reason}"));
    }
}
