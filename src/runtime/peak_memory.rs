//! The most memory this process has held.

/// Bytes, where the system tells.
pub fn of_this_process() -> Option<u64> {
    None
}
