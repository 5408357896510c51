//! Pins a process to cores; this system cannot.

use super::cores::CoreChoice;

/// Fails: the system cannot pin threads.
pub(in crate::runtime) fn pin(choice: &CoreChoice) -> Result<(), String> {
    Err(format!(
        "--cores {choice}: this system cannot pin a process to cores: omit the option, or run on Linux or Android"
    ))
}

/// Returns nothing: the system does not report cores.
pub(in crate::runtime) fn of_this_thread() -> Option<Vec<u32>> {
    None
}
