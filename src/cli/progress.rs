//! Progress bars on standard error. The library hides them unless that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

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
