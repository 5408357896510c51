//! Peak memory of this process.

/// Returns the peak resident memory of this process, in bytes, if the system reports it.
pub fn of_this_process() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        linux().or_else(usage)
    }
    #[cfg(not(target_os = "linux"))]
    {
        usage()
    }
}

/// Reads `VmHWM` of `/proc/self/status`. Unlike `getrusage`, it excludes the program that this
/// process ran before `exec`.
#[cfg(target_os = "linux")]
fn linux() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(unix)]
fn usage() -> Option<u64> {
    use nix::sys::resource::{UsageWho, getrusage};
    let most = getrusage(UsageWho::RUSAGE_SELF).ok()?.max_rss();
    let most = u64::try_from(most).ok()?;
    // Bytes on Apple's systems, kibibytes on all others.
    let unit = if cfg!(target_vendor = "apple") {
        1
    } else {
        1024
    };
    most.checked_mul(unit)
}

#[cfg(not(unix))]
fn usage() -> Option<u64> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    #[test]
    fn memory_that_was_held_is_counted() {
        let before = super::of_this_process().expect("unix tells");
        let held = vec![1_u8; 64 << 20];
        assert!(held.iter().map(|byte| u64::from(*byte)).sum::<u64>() > 0);
        let after = super::of_this_process().expect("unix tells");
        assert!(after >= before && after > 64 << 20);
    }
}
