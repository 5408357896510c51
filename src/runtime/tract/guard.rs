//! Panics of tract, turned into errors that name the operator.
//!
//! tract panics on some broken models. Its panics are caught where it is called; which node it was
//! evaluating is kept in a cell of the thread, so that the error can name it.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use super::NAME;
use crate::runtime::EngineError;

thread_local! {
    /// Whether a panic on this thread is going to be caught here.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
    /// The node that is evaluated.
    static NODE: Cell<Option<usize>> = const { Cell::new(None) };
}

static HOOK: Once = Once::new();

/// Remembers which node is evaluated from now on.
pub(super) fn enter(node: usize) {
    NODE.set(Some(node));
}

/// The node that was evaluated last in what was caught last.
pub(super) fn entered() -> Option<usize> {
    NODE.get()
}

/// Does `work`; a panic becomes an error.
pub(super) fn catch<T>(
    doing: &str,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    silence();
    NODE.set(None);
    let before = CAUGHT.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(before);
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message").replace('\n', " ");
        Err(EngineError::Run {
            engine: NAME.to_owned(),
            operator: None,
            reason: format!("it panicked while {doing}: {text}"),
        })
    })
}

/// Keeps caught panics off standard error; all others are told as before.
fn silence() {
    HOOK.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !CAUGHT.get() {
                told(panic);
            }
        }));
    });
}
