//! Progress bars on standard error.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar that shows this template of the library. It is hidden unless standard error is a terminal.
pub(super) fn bar(length: u64, template: &str) -> ProgressBar {
    if io::stderr().is_terminal() {
        styled(ProgressBar::new(length), template)
    } else {
        ProgressBar::hidden()
    }
}

/// Shows a bar by a template.
pub(super) fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
