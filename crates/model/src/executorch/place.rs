//! Locates the program in a file, for engines that pass it to a runtime.

use super::container::Container;
use crate::FormatError;
use pkgtool_base::source::{Pages, ReadAt};

/// Maximum number of reads to locate it: in the header, or behind the table of a bundle.
const MAX_READS: u64 = 1_000_000;

/// Returns offset and length of the program with its segments: the whole of a `.pte` file, a part
/// of a `.bpte` file.
pub fn place(source: &dyn ReadAt) -> Result<(u64, u64), FormatError> {
    let container = Container::find(&Pages::with_budget(source, MAX_READS))?;
    Ok((container.start, container.len))
}
