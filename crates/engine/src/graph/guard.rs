//! Calls code of the tract library and converts its panics and errors to a [`LibraryFailure`].
//!
//! Invariant: such a panic is neither printed nor leaves this folder. [`wording`] formulates the
//! failure. Requires `panic = "unwind"`.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::thread;

use tract_onnx::prelude::{TractError, TractResult};

use super::wording;

/// Prefix of the names of the library's worker threads. A panic there is passed on to the waiting
/// thread.
pub(crate) const WORKERS: &str = "pkgtool-tract";

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// A failure inside the library, with the operator that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LibraryFailure {
    /// The operator, if known.
    pub(crate) operator: Option<String>,
    /// The node that the library named, if any.
    pub(crate) node: Option<String>,
    /// The cause, without a full stop.
    pub(crate) reason: String,
    /// Is `true` if values of the inputs are at fault.
    pub(crate) input: bool,
}

/// An error: an operator rejects a value of the inputs, or one computed from them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct InvalidInput {
    /// The operator, by its full name.
    pub(crate) operator: String,
    /// The value, and what would be valid.
    pub(crate) reason: String,
}

impl LibraryFailure {
    /// Creates a failure without an operator.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self {
            operator: None,
            node: None,
            reason: reason.into(),
            input: false,
        }
    }

    /// Returns the reason with the operator, as one text.
    pub(crate) fn text(&self) -> String {
        match self.operator.as_ref().or(self.node.as_ref()) {
            Some(operator) => format!("at `{operator}`: {}", self.reason),
            None => self.reason.clone(),
        }
    }

    /// Adds the operator, unless the failure already names one.
    pub(crate) fn at(mut self, operator: Option<String>) -> Self {
        self.operator = self.operator.or(operator);
        self
    }
}

impl From<LibraryFailure> for TractError {
    fn from(failure: LibraryFailure) -> Self {
        Self::msg(failure.reason)
    }
}

/// Calls `work` and converts its errors and panics to failures.
pub(crate) fn guarded<T>(work: impl FnOnce() -> TractResult<T>) -> Result<T, LibraryFailure> {
    install_hook();
    let before = WATCHED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    WATCHED.set(before);
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(of_error(&error)),
        Err(payload) => Err(LibraryFailure::new(wording::of_panic(message(
            payload.as_ref(),
        )))),
    }
}

fn of_error(error: &TractError) -> LibraryFailure {
    let texts: Vec<String> = error.chain().map(ToString::to_string).collect();
    let told = wording::of_error(texts.iter().map(|text| text.trim()));
    let mut causes = error.chain();
    if let Some(invalid) = causes.find_map(|cause| cause.downcast_ref::<InvalidInput>()) {
        return LibraryFailure {
            operator: Some(invalid.operator.clone()),
            node: told.node,
            reason: invalid.reason.clone(),
            input: true,
        };
    }
    LibraryFailure {
        operator: None,
        node: told.node,
        reason: told.reason,
        input: false,
    }
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !is_watched() {
                previous(info);
            }
        }));
    });
}

fn is_watched() -> bool {
    WATCHED.get()
        || thread::current()
            .name()
            .is_some_and(|name| name.starts_with(WORKERS))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_failure_without_a_place() {
        let failure = guarded::<()>(|| panic!("no {}", "way")).expect_err("it panics");
        assert_eq!(failure.reason, "internal error of the library (no way)");
        assert_eq!(guarded(|| Ok(3)), Ok(3));
    }

    #[test]
    fn an_error_keeps_its_root_and_its_node() {
        let error = TractError::msg("the cause").context("Evaluating #3 \"y\" Add");
        let failure = guarded::<()>(|| Err(error)).expect_err("it fails");
        assert_eq!(failure.text(), "at `y`: the cause");
    }
}
