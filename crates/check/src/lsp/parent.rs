//! Detects the end of the parent process, so that the server does not outlive its editor.

use std::path::Path;

/// The parent process that the client named.
#[derive(Debug)]
pub(super) struct ParentProcess {
    id: u32,
    /// Set if the process started this one. The operating system then shows when it has ended.
    is_own: bool,
}

impl ParentProcess {
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            is_own: is_own(id),
        }
    }

    /// Returns whether the process has ended, as far as this is known.
    pub(super) fn has_ended(&self) -> bool {
        if self.is_own {
            return !is_own(self.id);
        }
        let processes = Path::new("/proc");
        processes.join("self").exists() && !processes.join(self.id.to_string()).exists()
    }
}

/// Returns whether the process started this one.
#[cfg(unix)]
fn is_own(id: u32) -> bool {
    std::os::unix::process::parent_id() == id
}

#[cfg(not(unix))]
fn is_own(_: u32) -> bool {
    false
}
