//! Whether the process that started this one is still there.

use std::path::Path;

/// Knows the parent that a client named.
#[derive(Debug)]
pub(super) struct Parent {
    id: u32,
    /// Whether it is the process that started this one: then the system tells when it has ended.
    is_own: bool,
}

impl Parent {
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            is_own: is_own(id),
        }
    }

    /// Whether it has ended, as far as can be told.
    pub(super) fn has_ended(&self) -> bool {
        if self.is_own {
            return !is_own(self.id);
        }
        let processes = Path::new("/proc");
        processes.join("self").exists() && !processes.join(self.id.to_string()).exists()
    }
}

/// Whether it is the process that started this one.
#[cfg(unix)]
fn is_own(id: u32) -> bool {
    std::os::unix::process::parent_id() == id
}

#[cfg(not(unix))]
fn is_own(_: u32) -> bool {
    false
}
