//! Limits on time and memory, and their description when a run exceeds them.
//!
//! Invariant: a limit is named as the user set it (`--max-memory`, `memory_limit`), or as the
//! default. It is never confused with an error of the operating system or of a library. Engines are
//! handled elsewhere.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sysinfo::System;

/// The memory limit of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryLimit {
    /// A number of bytes, set by `--max-memory`.
    Option(u64),
    /// A number of bytes, set by `memory_limit` in the settings of a service.
    Setting(u64),
    /// The default: three quarters of the memory that is free at the start.
    OfFree,
}

/// A limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunLimit {
    /// Maximum duration of one step.
    Time(Duration),
    /// Maximum memory in bytes, and the source of this limit.
    Memory(u64, MemoryLimit),
}

impl MemoryLimit {
    /// Returns the current limit; `None` for the default if the system does not report free memory.
    pub fn now(self) -> Option<RunLimit> {
        let bytes = match self {
            Self::Option(bytes) | Self::Setting(bytes) => bytes,
            Self::OfFree => free_memory()? / 4 * 3,
        };
        Some(RunLimit::Memory(bytes, self))
    }
}

impl RunLimit {
    /// Returns the bytes of a memory limit.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Memory(bytes, _) => Some(bytes),
            Self::Time(_) => None,
        }
    }

    /// Returns whether the user set the limit.
    pub fn is_chosen(self) -> bool {
        !matches!(self, Self::Memory(_, MemoryLimit::OfFree))
    }

    /// Returns the remedy for an exceeded limit.
    pub fn help(self) -> &'static str {
        match self {
            Self::Time(_) => "give it more time, or smaller inputs (`--dim`)",
            Self::Memory(_, MemoryLimit::Setting(_)) => {
                "set a higher limit, or send a smaller request"
            }
            Self::Memory(..) => "give it more memory, or smaller inputs (`--dim`)",
        }
    }
}

/// `the memory limit of 512 MiB (--max-memory)`.
impl fmt::Display for RunLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => {
                write!(f, "the time limit of {} s (--timeout)", time.as_secs_f64())
            }
            Self::Memory(bytes, set_by) => {
                let name = match set_by {
                    MemoryLimit::Option(_) => "--max-memory",
                    MemoryLimit::Setting(_) => "memory_limit",
                    MemoryLimit::OfFree => {
                        "three quarters of the free memory, the default; --max-memory overrides it"
                    }
                };
                write!(f, "the memory limit of {} ({name})", format_bytes(*bytes))
            }
        }
    }
}

/// Returns the memory that the machine or the process's container has free, in bytes; `None` if the
/// system does not report it.
pub fn free_memory() -> Option<u64> {
    let mut system = System::new();
    system.refresh_memory();
    // Zero if the operating system does not report it.
    let machine = Some(system.available_memory()).filter(|bytes| *bytes > 0);
    let container = system
        .cgroup_limits()
        .map(|limits| limits.total_memory.saturating_sub(limits.rss))
        .filter(|bytes| *bytes > 0);
    [machine, container].into_iter().flatten().min()
}

/// Formats a size in the largest unit that it fills: `512 MiB`, `1.5 KiB`.
pub fn format_bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    let Some((shift, name)) = unit else {
        return format!("{bytes} bytes");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        tenth => format!("{}.{tenth} {name}", tenths / 10),
    }
}

/// Phrases with which libraries, allocators and loaders report that memory ran out.
const SHORTAGE_PHRASES: [&str; 16] = [
    "memory allocation of",
    "bad_alloc",
    "bad allocation",
    "annot allocate",
    "ailed to allocate",
    "failed to map segment",
    "cannot map zero-fill pages",
    "out of memory",
    "no memory",
    "not enough memory",
    "insufficient memory",
    // A thread whose stack cannot be allocated.
    "Resource temporarily unavailable",
    "unable to create thread",
    // A panic for lack of memory that cannot even unwind.
    "failed to initiate panic",
    // The C library cannot map the library that unwinds a thread that ends.
    "libgcc_s.so.1 must be installed",
    // The end of Rust's message: another thread may have printed within it.
    " bytes failed",
];

/// Returns whether a text reports that memory ran out.
pub fn reports_shortage(text: &str) -> bool {
    SHORTAGE_PHRASES.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(format_bytes(17), "17 bytes");
        assert_eq!(format_bytes(1536), "1.5 KiB");
        assert_eq!(format_bytes(512 << 20), "512 MiB");
        assert_eq!(format_bytes(u64::MAX), "17179869183.9 GiB");
    }

    #[test]
    fn a_thread_that_cannot_unwind_reports_a_shortage() {
        assert!(reports_shortage(
            "libgcc_s.so.1 must be installed for pthread_exit to work"
        ));
        assert!(reports_shortage("its last words: 50192 bytes failed"));
        assert!(!reports_shortage("signal: 6 (SIGABRT)"));
    }

    #[test]
    fn a_limit_is_named_by_what_set_it() {
        let named = |limit: MemoryLimit| limit.now().expect("it is known").to_string();
        assert_eq!(
            named(MemoryLimit::Option(512 << 20)),
            "the memory limit of 512 MiB (--max-memory)"
        );
        assert_eq!(
            named(MemoryLimit::Setting(3 << 30)),
            "the memory limit of 3 GiB (memory_limit)"
        );
        assert!(named(MemoryLimit::OfFree).contains("three quarters of the free memory"));
        assert_eq!(
            RunLimit::Time(Duration::from_millis(2500)).to_string(),
            "the time limit of 2.5 s (--timeout)"
        );
    }

    #[test]
    fn three_quarters_of_what_is_free_are_the_default() {
        let free = free_memory().expect("the system reports free memory");
        let limit = MemoryLimit::OfFree.now().and_then(RunLimit::bytes);
        let limit = limit.expect("the system reports free memory");
        // The amount of free memory changes between the two measurements.
        assert!(
            limit > free / 2 && limit < free / 10 * 9,
            "{limit} of {free}"
        );
    }
}
