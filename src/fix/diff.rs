//! Differences of texts as `diff -u` writes them.

use std::time::Duration;

use similar::TextDiff;

/// Lines around a difference.
const CONTEXT: usize = 3;
/// How long the smallest difference is looked for; after that any will do.
const PATIENCE: Duration = Duration::from_millis(500);

/// The difference between two texts of the file at `path`, for `patch -p1`; empty if there is none.
pub fn unified(path: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let path = path.trim_start_matches('/');
    let diff = TextDiff::configure()
        .timeout(PATIENCE)
        .diff_lines(before, after);
    let (old, new) = (format!("a/{path}"), format!("b/{path}"));
    diff.unified_diff()
        .context_radius(CONTEXT)
        .header(&old, &new)
        .to_string()
}
