//! Proportional memory of a process: its own pages, and its share of pages that several processes use.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The system's summary of all mappings of this process.
const ROLLUP: &str = "/proc/self/smaps_rollup";
/// Pause between two samples.
const SAMPLE_PAUSE: Duration = Duration::from_millis(2);

/// The proportional set size of a process: a page of several processes counts in equal shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProportionalMemory {
    /// All pages, in bytes.
    pub pss_bytes: u64,
    /// Pages without a file: heap and stacks, in bytes, if the system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pss_anon_bytes: Option<u64>,
    /// Pages of files: code and mapped models, in bytes, if the system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pss_file_bytes: Option<u64>,
}

/// The proportional memory of a process before, during and after runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryCourse {
    /// After the model was loaded, with its inputs.
    pub loaded: ProportionalMemory,
    /// The sample with the largest size, of those before, during and after the runs.
    pub highest: ProportionalMemory,
    /// After the runs.
    pub after_runs: ProportionalMemory,
    /// Number of samples during the runs.
    pub samples: u64,
}

impl ProportionalMemory {
    /// Returns the proportional memory of this process; `None` if the system does not report it.
    pub fn of_this_process() -> Option<Self> {
        Self::parse(&std::fs::read_to_string(ROLLUP).ok()?)
    }

    fn parse(rollup: &str) -> Option<Self> {
        let bytes = |name: &str| -> Option<u64> {
            let mut lines = rollup.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Some(Self {
            pss_bytes: bytes("Pss")?,
            pss_anon_bytes: bytes("Pss_Anon"),
            pss_file_bytes: bytes("Pss_File"),
        })
    }
}

impl MemoryCourse {
    /// Samples the memory of this process during some work; `None` if the system does not report it. The work is done
    /// in any case.
    pub fn of<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Option<Self>, E> {
        let Some(loaded) = ProportionalMemory::of_this_process() else {
            work()?;
            return Ok(None);
        };
        let (working, ended) = mpsc::channel::<()>();
        let (done, (mut highest, samples)) = thread::scope(|scope| {
            let sampler = scope.spawn(move || sample(loaded, &ended));
            let done = work();
            drop(working);
            (done, sampler.join().unwrap_or((loaded, 0)))
        });
        done?;
        let Some(after_runs) = ProportionalMemory::of_this_process() else {
            return Ok(None);
        };
        if after_runs.pss_bytes > highest.pss_bytes {
            highest = after_runs;
        }
        Ok(Some(Self {
            loaded,
            highest,
            after_runs,
            samples,
        }))
    }
}

/// Takes samples until the other end of the channel is dropped. Returns the highest one, and their number.
fn sample(
    mut highest: ProportionalMemory,
    ended: &mpsc::Receiver<()>,
) -> (ProportionalMemory, u64) {
    let mut samples = 0;
    while ended.recv_timeout(SAMPLE_PAUSE) == Err(RecvTimeoutError::Timeout) {
        let Some(now) = ProportionalMemory::of_this_process() else {
            break;
        };
        samples += 1;
        if now.pss_bytes > highest.pss_bytes {
            highest = now;
        }
    }
    (highest, samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_in_bytes() {
        let newer = "55bb-7ffe ---p 00000000 00:00 0    [rollup]\nRss:  1748 kB\nPss:  377 kB\nPss_Dirty:  112 kB\nPss_Anon:  112 kB\nPss_File:  265 kB\n";
        let expected = ProportionalMemory {
            pss_bytes: 377 << 10,
            pss_anon_bytes: Some(112 << 10),
            pss_file_bytes: Some(265 << 10),
        };
        assert_eq!(ProportionalMemory::parse(newer), Some(expected));
        let older = ProportionalMemory::parse("Rss: 4 kB\nPss:\t 3 kB\n").expect("a size");
        assert_eq!((older.pss_bytes, older.pss_anon_bytes), (3 << 10, None));
        for broken in [
            "",
            "Rss: 4 kB",
            "Pss: x kB",
            "Pss: 4 MB",
            "Pss: 18446744073709551615 kB",
        ] {
            assert_eq!(ProportionalMemory::parse(broken), None, "{broken}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_that_is_freed_before_the_end_is_the_highest() {
        // Other tests of this process hold memory, too, but less.
        const BYTES: usize = 256 << 20;
        const HALF: u64 = 128 << 20;
        let course = MemoryCourse::of(|| {
            let held = vec![1_u8; BYTES];
            thread::sleep(Duration::from_millis(200));
            let is_held = held.iter().step_by(4096).all(|byte| *byte == 1);
            if is_held { Ok(()) } else { Err(0) }
        });
        let course = course.expect("it succeeds").expect("Linux reports it");
        assert!(course.samples > 0, "{course:?}");
        let highest = course.highest.pss_bytes;
        assert!(highest >= course.loaded.pss_bytes + HALF, "{course:?}");
        assert!(highest >= course.after_runs.pss_bytes + HALF, "{course:?}");
        assert_eq!(MemoryCourse::of(|| Err(7)), Err(7));
    }
}
