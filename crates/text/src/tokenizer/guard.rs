//! Turns panics of the tokenizers library into errors. The library panics on some files and texts.
//!
//! Invariant: such a panic is not printed and does not leave this folder.

use std::cell::Cell;
use std::error::Error;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use super::TokenizerError;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work` and turns its errors and panics into an error.
pub(super) fn catch_panic<T>(
    work: impl FnOnce() -> Result<T, Box<dyn Error + Send + Sync>>,
) -> Result<T, TokenizerError> {
    install_hook();
    let before = WATCHED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    WATCHED.set(before);
    let reason = match result {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.to_string(),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("it panicked");
            text.lines().next().unwrap_or(text).to_owned()
        }
    };
    Err(TokenizerError::Failed(reason))
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !WATCHED.get() {
                previous(info);
            }
        }));
    });
}
