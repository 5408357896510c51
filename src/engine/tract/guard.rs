//! Calling code that may panic.
//!
//! Invariant: a panic in the inference library becomes a [`Failure`]; it is neither printed nor does
//! it leave this folder, and a failure is told in [`wording`]'s words. Needs `panic = "unwind"`.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::thread;

use tract_onnx::prelude::{TractError, TractResult};

use super::wording;

/// What the names of the library's worker threads begin with: a panic there comes back to the
/// thread that waits for them.
pub(super) const WORKERS: &str = "pkgtool-tract";

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// What went wrong inside the library, and at which operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The operator, where it is known.
    pub(super) operator: Option<String>,
    /// The node that the library named, where it did.
    pub(super) node: Option<String>,
    /// What happened, without a full stop.
    pub(super) reason: String,
    /// Whether values of the inputs are to blame.
    pub(super) input: bool,
}

/// A value among the inputs, or computed from them, that an operator does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(super) struct InvalidInput {
    /// The operator, by its full name.
    pub(super) operator: String,
    /// The value, and what would be valid.
    pub(super) reason: String,
}

impl Failure {
    /// A failure at no operator in particular.
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            operator: None,
            node: None,
            reason: reason.into(),
            input: false,
        }
    }

    /// The reason with the operator, where only a text can be given.
    pub(super) fn text(&self) -> String {
        match self.operator.as_ref().or(self.node.as_ref()) {
            Some(operator) => format!("at `{operator}`: {}", self.reason),
            None => self.reason.clone(),
        }
    }

    /// The same failure at this operator, unless it has one.
    pub(super) fn at(mut self, operator: Option<String>) -> Self {
        self.operator = self.operator.or(operator);
        self
    }
}

/// Calls `work`, turning its errors and panics into failures.
pub(super) fn guarded<T>(work: impl FnOnce() -> TractResult<T>) -> Result<T, Failure> {
    install_hook();
    let before = WATCHED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    WATCHED.set(before);
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(of_error(&error)),
        Err(payload) => Err(Failure::new(wording::of_panic(message(payload.as_ref())))),
    }
}

fn of_error(error: &TractError) -> Failure {
    let texts: Vec<String> = error.chain().map(ToString::to_string).collect();
    let told = wording::of_error(texts.iter().map(|text| text.trim()));
    let mut causes = error.chain();
    if let Some(invalid) = causes.find_map(|cause| cause.downcast_ref::<InvalidInput>()) {
        return Failure {
            operator: Some(invalid.operator.clone()),
            node: told.node,
            reason: invalid.reason.clone(),
            input: true,
        };
    }
    Failure {
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
        assert_eq!(failure.reason, "an internal error of the library (no way)");
        assert_eq!(guarded(|| Ok(3)), Ok(3));
    }

    #[test]
    fn an_error_keeps_its_root_and_its_node() {
        let error = TractError::msg("the cause").context("Evaluating #3 \"y\" Add");
        let failure = guarded::<()>(|| Err(error)).expect_err("it fails");
        assert_eq!(failure.text(), "at `y`: the cause");
    }
}
