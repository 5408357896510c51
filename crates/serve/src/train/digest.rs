//! Names derived from checksums.

use std::fmt::Write as _;

/// Formats the first bytes of a checksum in hexadecimal.
pub(super) fn hex_prefix(sum: &[u8], bytes: usize) -> String {
    let mut name = String::new();
    for byte in sum.iter().take(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}
