//! Limits on time and memory: where they come from, and what they are called when one bites.
//!
//! Invariant: a limit is named as the user set it (`--max-memory`, `memory_limit`), or as the default
//! that nobody set; it is never confused with what the system or a library says of its own. Knows no
//! engine.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sysinfo::System;

/// Most memory that a model may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryLimit {
    /// So many bytes, by `--max-memory`.
    Option(u64),
    /// So many bytes, by `memory_limit` in the settings of a service.
    Setting(u64),
    /// Nobody said: three quarters of what is free when it begins.
    OfFree,
}

/// A limit that bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Longest time of one step.
    Time(Duration),
    /// Most memory: its bytes, and what set them.
    Memory(u64, MemoryLimit),
}

impl MemoryLimit {
    /// The limit as it is now; `None` where nobody said and the system does not tell what is free.
    pub fn now(self) -> Option<Limit> {
        let bytes = match self {
            Self::Option(bytes) | Self::Setting(bytes) => bytes,
            Self::OfFree => free()? / 4 * 3,
        };
        Some(Limit::Memory(bytes, self))
    }
}

impl Limit {
    /// Bytes of a limit on memory.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Memory(bytes, _) => Some(bytes),
            Self::Time(_) => None,
        }
    }

    /// Whether the user set it.
    pub fn is_chosen(self) -> bool {
        !matches!(self, Self::Memory(_, MemoryLimit::OfFree))
    }

    /// What to do when it bit.
    pub fn help(self) -> &'static str {
        match self {
            Self::Time(_) => "give it more time, or smaller inputs (`--dim`)",
            Self::Memory(_, MemoryLimit::Setting(_)) => "set a higher one, or ask with less",
            Self::Memory(..) => "give it more memory, or smaller inputs (`--dim`)",
        }
    }
}

/// `the memory limit of 512 MiB (--max-memory)`.
impl fmt::Display for Limit {
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
                        "three quarters of what was free, the default; --max-memory sets another"
                    }
                };
                write!(f, "the memory limit of {} ({name})", in_units(*bytes))
            }
        }
    }
}

/// Bytes that the machine, or the container around the process, can give now; `None` where the system
/// does not tell.
pub fn free() -> Option<u64> {
    let mut system = System::new();
    system.refresh_memory();
    // Zero where the operating system does not tell.
    let machine = Some(system.available_memory()).filter(|bytes| *bytes > 0);
    let container = system
        .cgroup_limits()
        .map(|limits| limits.total_memory.saturating_sub(limits.rss))
        .filter(|bytes| *bytes > 0);
    [machine, container].into_iter().flatten().min()
}

/// A size in the largest unit that it fills: `512 MiB`, `1.5 KiB`.
pub fn in_units(bytes: u64) -> String {
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

/// Words by which libraries, allocators and loaders say that there is no memory.
const SHORTAGE: [&str; 14] = [
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
    // A thread whose stack has no place.
    "Resource temporarily unavailable",
    "unable to create thread",
    // A panic about it, with none left for the unwinder either.
    "failed to initiate panic",
];

/// Whether a text says that memory ran out.
pub fn tells_shortage(text: &str) -> bool {
    SHORTAGE.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(in_units(17), "17 bytes");
        assert_eq!(in_units(1536), "1.5 KiB");
        assert_eq!(in_units(512 << 20), "512 MiB");
        assert_eq!(in_units(u64::MAX), "17179869183.9 GiB");
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
        assert!(named(MemoryLimit::OfFree).contains("three quarters of what was free"));
        assert_eq!(
            Limit::Time(Duration::from_millis(2500)).to_string(),
            "the time limit of 2.5 s (--timeout)"
        );
    }

    #[test]
    fn three_quarters_of_what_is_free_are_the_default() {
        let free = free().expect("this system tells");
        let limit = MemoryLimit::OfFree.now().and_then(Limit::bytes);
        let limit = limit.expect("this system tells");
        // What is free changes between the two looks.
        assert!(
            limit > free / 2 && limit < free / 10 * 9,
            "{limit} of {free}"
        );
    }
}
