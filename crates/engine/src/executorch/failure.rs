//! Converts ExecuTorch's error codes and log messages to [`EngineError`].
//!
//! ExecuTorch returns a code and logs the details: the cause first, then each function on the way
//! back. Comments next to the patterns quote the messages that they match.

use super::NAME;
use crate::EngineError;
use crate::refusal::reports_unsupported;

/// A failed call: ExecuTorch's code, and its log messages, one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuntimeFailure {
    /// 0 if the call failed before it reached ExecuTorch.
    pub(super) code: u32,
    pub(super) text: String,
}

/// Codes of `runtime/core/error.h` that this module distinguishes.
pub(super) const OPERATOR_MISSING: u32 = 0x14;
const NOT_SUPPORTED: u32 = 0x10;
const NOT_IMPLEMENTED: u32 = 0x11;
const INVALID_PROGRAM: u32 = 0x23;
const INVALID_DATA: u32 = 0x24;
const INCOMPATIBLE: u32 = 0x30;
const INVALID_ARGUMENT: u32 = 0x12;
/// Codes of a failed load that mean an invalid program: an invalid argument, a wrong type,
/// something not found, an invalid program, an invalid data file.
const INVALID_PROGRAM_CODES: [u32; 5] =
    [INVALID_ARGUMENT, 0x13, 0x20, INVALID_PROGRAM, INVALID_DATA];

/// Maximum number of messages in an error.
const MAX_MESSAGES: usize = 3;
/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

impl RuntimeFailure {
    /// A failure before the call reached ExecuTorch.
    pub(super) fn before_call(text: &str) -> Self {
        Self {
            code: 0,
            text: text.to_owned(),
        }
    }

    /// Converts a failure to load a program.
    pub(super) fn to_load_error(&self) -> EngineError {
        let reason = self.reason();
        let engine = NAME.to_owned();
        match self.code {
            // Programs from before 2024 store their constants elsewhere; only other builds read
            // them.
            _ if self.text.contains("disabled in this build") => EngineError::Unsupported {
                engine,
                operators: Vec::new(),
                reason,
            },
            // XNNPACK reports a damaged payload as one of another version, too.
            _ if self.is_about_the_program() => EngineError::Corrupt { engine, reason },
            NOT_SUPPORTED | NOT_IMPLEMENTED | INCOMPATIBLE => EngineError::Unsupported {
                engine,
                operators: Vec::new(),
                reason,
            },
            _ if self.reports_missing_support() => EngineError::Unsupported {
                engine,
                operators: Vec::new(),
                reason,
            },
            _ => EngineError::Load { engine, reason },
        }
    }

    /// Converts a failure of a run.
    pub(super) fn to_run_error(&self) -> EngineError {
        let (engine, operator, reason) = (NAME.to_owned(), self.operator(), self.reason());
        if self.is_about_an_index() {
            return EngineError::Input {
                engine,
                operator,
                reason,
            };
        }
        let codes = [NOT_SUPPORTED, NOT_IMPLEMENTED, OPERATOR_MISSING];
        // Inputs of other sizes than the program accepts are reported as "not supported", too.
        let is_size = self.text.contains("Attempted to resize");
        if !is_size && (codes.contains(&self.code) || self.reports_missing_support()) {
            return EngineError::Unsupported {
                engine,
                operators: operator.into_iter().collect(),
                reason,
            };
        }
        EngineError::Run {
            engine,
            operator,
            reason,
        }
    }

    /// Returns `true` if a kernel rejected an index: `Check failed (indices_ptr[i] >= 0):
    /// indices_ptr[1] -6 < 0`.
    fn is_about_an_index(&self) -> bool {
        let cause = self.text.lines().next().unwrap_or_default().to_lowercase();
        let names = ["index", "indices"].iter().any(|word| cause.contains(word));
        self.code == INVALID_ARGUMENT && names && self.operator().is_some()
    }

    /// Returns `true` if loading failed because of the contents of the program, its data or a
    /// delegate's payload.
    fn is_about_the_program(&self) -> bool {
        const WORDS: [&str; 3] = ["corrupt", "malformed", "xnn_status_invalid_parameter"];
        INVALID_PROGRAM_CODES.contains(&self.code)
            || WORDS.iter().any(|words| self.text.contains(words))
    }

    /// Returns `true` if an input was set to another number than at export: `The 1-th input of
    /// method should have the same value as the input_evalue, but got 3 and 0`.
    pub(super) fn is_about_fixed_value(&self) -> bool {
        self.text.contains("should have the same value")
    }

    /// Returns `true` if the message reports missing support. Kernels return the code of an invalid
    /// argument for `Unhandled dtype BFloat16 for aten::cumsum.out`, too.
    fn reports_missing_support(&self) -> bool {
        self.text.contains("Unhandled dtype") || reports_unsupported(&self.text)
    }

    /// Returns the operator in `KernelCall failed at instruction 0:12 in operator aten::cat.out:
    /// 0x12`.
    fn operator(&self) -> Option<String> {
        let mut lines = self.text.lines();
        let line = lines.find(|line| line.starts_with("KernelCall failed"))?;
        let (_, after) = line.split_once(" in operator ")?;
        let end = after.rfind(": ").unwrap_or(after.len());
        Some(after[..end].trim_end_matches('.').to_owned())
    }

    fn reason(&self) -> String {
        let said = self.text.lines().map(str::trim);
        let mut lines: Vec<String> = Vec::new();
        for line in said.filter(|line| !line.is_empty()) {
            let line = cut(line);
            if lines.len() < MAX_MESSAGES && !lines.contains(&line) {
                lines.push(line);
            }
        }
        let meaning = meaning(self.code);
        match (lines.is_empty(), meaning) {
            (true, Some(meaning)) => meaning,
            (true, None) => "no reason given".to_owned(),
            (false, Some(meaning)) => format!("{meaning}: {}", lines.join("; ")),
            (false, None) => lines.join("; "),
        }
    }
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Returns a description of a code.
fn meaning(code: u32) -> Option<String> {
    let words = match code {
        0 => return None,
        0x01 => "an internal error",
        0x02 => "invalid state",
        NOT_SUPPORTED => "not supported",
        NOT_IMPLEMENTED => "not implemented",
        INVALID_ARGUMENT => "an invalid argument",
        0x13 => "invalid type of a value",
        OPERATOR_MISSING => "an operator is unsupported",
        0x20 => "not found",
        0x21 => "out of memory",
        0x22 => "access denied",
        INVALID_PROGRAM => "the program is invalid",
        INVALID_DATA => "the data file is invalid",
        0x25 => "out of resources",
        INCOMPATIBLE => "a delegate rejected its payload",
        0x31 => "a delegate is out of memory",
        0x32 => "a delegate is missing",
        other => return Some(format!("code {other:#x}")),
    };
    Some(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_of_a_failed_run_is_named() {
        let failure = RuntimeFailure {
            code: 0x12,
            text: "Check failed (a == b)\nKernelCall failed at instruction 0:1 in operator \
                   aten::cat.out: 0x12\n"
                .to_owned(),
        };
        let EngineError::Run {
            operator, reason, ..
        } = failure.to_run_error()
        else {
            panic!("a run failed");
        };
        assert_eq!(operator.as_deref(), Some("aten::cat.out"));
        assert!(reason.starts_with("an invalid argument: Check failed (a == b); "));
    }

    #[test]
    fn invalid_programs_blame_the_model() {
        let failure = |code, text: &str| RuntimeFailure {
            code,
            text: text.to_owned(),
        };
        for broken in [
            failure(
                0x23,
                "Verification failed; data may be truncated or corrupt",
            ),
            failure(INCOMPATIBLE, "XNNHeader may be corrupt"),
            failure(
                0x20,
                "Failed to get constant data for key a from named_data_map",
            ),
            failure(
                1,
                "Failed to define tensor 4 with code: xnn_status_invalid_parameter",
            ),
        ] {
            let error = broken.to_load_error();
            assert!(error.is_about_the_model(), "{error}");
        }
        for other in [
            failure(INCOMPATIBLE, "another version"),
            failure(0x21, "allocation failed"),
            failure(NOT_SUPPORTED, "a device other than the CPU"),
            failure(
                0x23,
                "relies on the constant_buffer path, which is disabled in this build",
            ),
        ] {
            assert!(!other.to_load_error().is_about_the_model());
        }
    }

    #[test]
    fn rejecting_kernels_are_unsupported() {
        for (code, text) in [
            (0x11, ""),
            (
                0x12,
                "Unhandled dtype BFloat16 for aten::cumsum.out\nKernelCall failed at instruction \
                 0:1 in operator aten::cumsum.out: 0x12\n",
            ),
            (0x12, "XNN backend does not support this layout"),
        ] {
            let failure = RuntimeFailure {
                code,
                text: text.to_owned(),
            };
            let error = failure.to_run_error();
            assert!(error.is_about_the_engine(), "{error}");
        }
        let larger = RuntimeFailure {
            code: NOT_SUPPORTED,
            text:
                "Attempted to resize a static tensor. Expected shape (2, 8), but received (2, 9)."
                    .to_owned(),
        };
        assert!(!larger.to_run_error().is_about_the_engine());
        let broken = RuntimeFailure {
            code: 0x23,
            text: "Unsupported segment; the program is corrupt".to_owned(),
        };
        assert!(!broken.to_load_error().is_about_the_engine());
    }

    #[test]
    fn a_failure_without_words_has_some() {
        let silent = |code| RuntimeFailure {
            code,
            text: String::new(),
        };
        assert_eq!(silent(0x23).reason(), "the program is invalid");
        assert_eq!(silent(0x99).reason(), "code 0x99");
        assert_eq!(RuntimeFailure::before_call("no").reason(), "no");
    }
}
