//! The facts that a worker reports about its process.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::cores;
use super::process::STARTED_VARIABLE;
use super::pss::ProportionalMemory;
use crate::profile::nanoseconds;

/// The time from the start of this program until its process could work; `None` if it is unknown.
static READY_AFTER: OnceLock<Option<Duration>> = OnceLock::new();

/// The facts about a worker's process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// The cores on which its threads may run, in ascending order, if the system reports them.
    pub cores: Option<Vec<u32>>,
    /// Its proportional memory, if the system reports it.
    pub memory: Option<ProportionalMemory>,
    /// From the start of the program until the process could work, in nanoseconds; `None` if the clock was set back.
    pub start_nanoseconds: Option<u64>,
    /// Bytes that it has read from storage, and not from the system's cache, if the system reports them.
    pub storage_read_bytes: Option<u64>,
}

impl ProcessFacts {
    /// Returns the facts about this process.
    pub fn of_this_process() -> Self {
        let start = READY_AFTER.get().copied().flatten();
        Self {
            cores: cores::of_this_process(),
            memory: ProportionalMemory::of_this_process(),
            start_nanoseconds: start.map(nanoseconds),
            storage_read_bytes: storage_read_bytes(),
        }
    }
}

/// Notes that this process can work from now on. Only the first call counts.
pub(super) fn set_ready() {
    READY_AFTER.get_or_init(|| {
        let started = std::env::var(STARTED_VARIABLE).ok()?.parse().ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        now.checked_sub(Duration::from_nanos(started))
    });
}

/// Returns the bytes that this process has read from storage.
fn storage_read_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("read_bytes:"))?;
    value.trim().parse().ok()
}
