//! Telling that a test is skipped.

use std::io::{self, Write};

/// Says something past the capture of a test's output.
pub(crate) fn say(line: &str) {
    // Nobody may be listening: the test is no worse for it.
    let _ = writeln!(io::stderr(), "{line}");
}
