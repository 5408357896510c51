//! Calling code that may panic.
//!
//! Invariant: a panic in the inference library becomes a [`Failure`]; it is neither printed nor does
//! it leave this folder. Needs `panic = "unwind"`.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;
use std::thread;

use tract_onnx::prelude::{TractError, TractResult};

/// What the names of the library's worker threads begin with: a panic there comes back to the
/// thread that waits for them.
pub(super) const WORKERS: &str = "pkgtool-tract";

/// Most characters of a message that are passed on: the library likes to print whole graphs.
const MAX_REASON: usize = 400;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What went wrong inside the library, and at which operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The operator, where it is known.
    pub(super) operator: Option<String>,
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
            reason: reason.into(),
            input: false,
        }
    }

    /// The reason with the operator, where only a text can be given.
    pub(super) fn text(&self) -> String {
        match &self.operator {
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
        Ok(Err(error)) => Err(failure(&error)),
        Err(payload) => {
            let place = PLACE.take();
            let place = place.map_or_else(String::new, |place| format!(" ({place})"));
            Err(Failure::new(shorten(&format!(
                "it panicked: {}{place}",
                message(payload.as_ref())
            ))))
        }
    }
}

fn failure(error: &TractError) -> Failure {
    let mut causes = error.chain();
    match causes.find_map(|cause| cause.downcast_ref::<InvalidInput>()) {
        Some(InvalidInput { operator, reason }) => Failure {
            operator: Some(operator.clone()),
            reason: reason.clone(),
            input: true,
        },
        None => Failure::new(chain(error)),
    }
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !is_watched(info) {
                previous(info);
            }
        }));
    });
}

fn is_watched(info: &PanicHookInfo<'_>) -> bool {
    if WATCHED.get() {
        let place = info.location().map(|location| {
            let file = location.file();
            // The path below the registry's folder says enough.
            let crate_at = file.rfind("tract-").unwrap_or(0);
            format!("{}:{}", &file[crate_at..], location.line())
        });
        PLACE.replace(place);
        return true;
    }
    thread::current()
        .name()
        .is_some_and(|name| name.starts_with(WORKERS))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

fn chain(error: &TractError) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        let text = text.trim().trim_end_matches('.');
        if texts.last().is_none_or(|last| last != text) {
            texts.push(text.to_owned());
        }
    }
    // What was said first says most; what stands before it is cut first.
    let cause = texts.pop().unwrap_or_default();
    let context = texts.join(": ");
    if context.is_empty() {
        shorten(&cause)
    } else {
        let room = MAX_REASON.saturating_sub(cause.chars().count() + 3).max(80);
        shorten(&format!("{}: {cause}", cut(&context, room)))
    }
}

fn shorten(text: &str) -> String {
    cut(text, MAX_REASON)
}

/// One line of at most `size` characters.
fn cut(text: &str, size: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= size {
        return line;
    }
    let mut short: String = line.chars().take(size).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_failure_with_its_place() {
        let failure = guarded::<()>(|| panic!("no {}", "way")).expect_err("it panics");
        assert!(
            failure.reason.starts_with("it panicked: no way ("),
            "{}",
            failure.reason
        );
        assert_eq!(guarded(|| Ok(3)), Ok(3));
    }

    #[test]
    fn long_messages_keep_their_root() {
        let long = "graph ".repeat(1000);
        let error = TractError::msg("the cause").context(long);
        let text = chain(&error);
        assert!(text.ends_with("the cause") && text.chars().count() <= MAX_REASON + 3);
    }
}
