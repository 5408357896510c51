//! Unified diffs of texts, like `diff -u`.

use std::time::Duration;

use similar::TextDiff;

/// Number of context lines.
const CONTEXT_LINES: usize = 3;
/// Time limit of the search for the smallest diff; after it, any diff is accepted.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns a diff between two texts of the file at `path`, for `patch -p1`; empty if they are
/// equal.
pub fn unified(path: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let path = path.trim_start_matches('/');
    let diff = TextDiff::configure()
        .timeout(DIFF_TIMEOUT)
        .diff_lines(before, after);
    let (old, new) = (format!("a/{path}"), format!("b/{path}"));
    diff.unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(&old, &new)
        .to_string()
}
