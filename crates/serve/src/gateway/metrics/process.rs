//! Metrics of this process and its workers, under Prometheus' standard names. Values that the
//! system does not provide are omitted.

use std::collections::HashMap;

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::metric::Page;

/// The system's values for this process and its workers, at one moment.
pub(super) struct ProcessMetrics {
    own: Option<Memory>,
    /// Memory of workers, by their process id.
    workers: HashMap<u32, Memory>,
}

#[derive(Debug, Clone, Copy)]
struct Memory {
    resident: u64,
    virtual_: u64,
    started: u64,
}

impl ProcessMetrics {
    /// Reads the values of this process and these workers.
    pub(super) fn now(workers: &[u32]) -> Self {
        let own = std::process::id();
        let numbers = workers.iter().copied().chain([own]);
        let numbers: Vec<Pid> = numbers.map(Pid::from_u32).collect();
        let mut system = System::new();
        let what = ProcessRefreshKind::nothing().with_memory().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&numbers), false, what);
        let mut found: HashMap<u32, Memory> = HashMap::new();
        for number in numbers {
            if let Some(process) = system.process(number) {
                let memory = Memory {
                    resident: process.memory(),
                    virtual_: process.virtual_memory(),
                    started: process.start_time(),
                };
                found.insert(number.as_u32(), memory);
            }
        }
        Self {
            own: found.remove(&own),
            workers: found,
        }
    }

    /// Returns the resident memory of a worker, in bytes.
    pub(super) fn resident(&self, worker: u32) -> Option<u64> {
        self.workers.get(&worker).map(|memory| memory.resident)
    }

    /// Writes the metrics of this process.
    pub(super) fn write(&self, page: &mut Page) {
        if let Some(own) = self.own {
            page.gauge(
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
            )
            .add(&[], own.resident);
            page.gauge(
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes.",
            )
            .add(&[], own.virtual_);
            let help = "Start time of the process since unix epoch in seconds.";
            page.gauge("process_start_time_seconds", help)
                .add(&[], own.started);
        }
        if let Some(seconds) = cpu_seconds() {
            let help = "Total user and system CPU time spent in seconds.";
            page.counter("process_cpu_seconds", help).add(&[], seconds);
        }
        if let Some(files) = open_files() {
            page.gauge("process_open_fds", "Number of open file descriptors.")
                .add(&[], files);
        }
        if let Some(most) = most_files() {
            page.gauge(
                "process_max_fds",
                "Maximum number of open file descriptors.",
            )
            .add(&[], most);
        }
        if let Some(threads) = threads() {
            page.gauge("process_threads", "Number of OS threads in the process.")
                .add(&[], threads);
        }
    }
}

#[cfg(unix)]
fn cpu_seconds() -> Option<f64> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let seconds = |time: nix::sys::time::TimeVal| {
        #[expect(
            clippy::cast_precision_loss,
            reason = "f64 represents microseconds of centuries exactly"
        )]
        let seconds = time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        seconds
    };
    Some(seconds(usage.user_time()) + seconds(usage.system_time()))
}

#[cfg(not(unix))]
fn cpu_seconds() -> Option<f64> {
    None
}

#[cfg(unix)]
fn most_files() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit};
    getrlimit(Resource::RLIMIT_NOFILE)
        .ok()
        .map(|(soft, _)| soft)
}

#[cfg(not(unix))]
fn most_files() -> Option<u64> {
    None
}

/// Returns the number of open files, if the system lists them.
fn open_files() -> Option<usize> {
    let listed = std::fs::read_dir("/proc/self/fd").or_else(|_| std::fs::read_dir("/dev/fd"));
    // The listing itself is one open file.
    listed.ok().map(|files| files.count().saturating_sub(1))
}

fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}
