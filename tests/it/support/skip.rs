//! Prints messages of skipped tests.

use std::io::{self, Write};

/// Prints a line to standard error, bypassing the output capture of the test harness.
pub(crate) fn say(line: &str) {
    // Standard error may be closed; that must not fail the test.
    let _ = writeln!(io::stderr(), "{line}");
}
