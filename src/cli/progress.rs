//! Progress bars on standard error. The library hides them unless that is a terminal.

use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};

/// Size from which a file that is sent has a bar, in bytes.
const LEAST_SHOWN_BYTES: u64 = 1 << 20;
/// The bar of the file that is being sent.
static SENDING: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Returns a bar that shows this template of the library.
pub(super) fn bar(length: u64, template: &str) -> ProgressBar {
    styled(ProgressBar::new(length), template)
}

/// Shows a bar by a template.
pub(super) fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Shows how much of a file is sent.
pub(super) fn sent(name: &str, sent: u64, size: u64) {
    if size < LEAST_SHOWN_BYTES {
        return;
    }
    let mut shown = SENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let template = "{msg} {bar:30} {bytes}/{total_bytes}, {binary_bytes_per_sec}";
    let bar = shown.get_or_insert_with(|| bar(size, template));
    bar.set_length(size);
    bar.set_message(format!("sending {name}"));
    bar.set_position(sent);
    if sent >= size {
        bar.finish_and_clear();
        *shown = None;
    }
}
