//! Where in a file the program is, for what wants to run it.

use super::container::Container;
use super::error::Error;
use crate::source::{Pages, ReadAt};

/// Reads that finding it may take: it is in the header, or behind the table of a bundle.
const BUDGET: u64 = 1_000_000;

/// Offset and length of the program in its file, segments included: all of a `.pte` file, a part of a
/// `.bpte` file.
pub fn place(source: &dyn ReadAt) -> Result<(u64, u64), Error> {
    let container = Container::find(&Pages::with_budget(source, BUDGET))?;
    Ok((container.start, container.len))
}
