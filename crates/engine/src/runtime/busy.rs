//! Measures how busy other programs keep the machine during a measurement.

use std::time::Instant;

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Number of cores from which other programs disturb a measurement.
const DISTURBING_CORES: f64 = 0.2;

/// A measurement in progress.
#[derive(Debug)]
pub struct LoadMeter {
    system: System,
    /// The processes that belong to the measurement.
    own: Vec<Pid>,
    own_before: u64,
    start: Instant,
}

/// The load of other programs.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct OtherLoad {
    /// Mean number of cores that other programs used.
    pub cores: f64,
    /// `true` if they used so much that times are unreliable.
    pub is_busy: bool,
}

impl LoadMeter {
    /// Starts measuring. `workers` are the processes of the measurement besides this one.
    pub fn start(workers: impl IntoIterator<Item = u32>) -> Self {
        let mut own: Vec<Pid> = workers.into_iter().map(Pid::from_u32).collect();
        own.extend(sysinfo::get_current_pid());
        let mut system = System::new();
        system.refresh_cpu_usage();
        let own_before = own_milliseconds(&mut system, &own);
        Self {
            system,
            own,
            own_before,
            start: Instant::now(),
        }
    }

    /// Ends the measurement. `None` if the system does not report its load, or if too little time
    /// has passed.
    pub fn finish(mut self) -> Option<OtherLoad> {
        let elapsed = self.start.elapsed();
        if !sysinfo::IS_SUPPORTED_SYSTEM || elapsed < sysinfo::MINIMUM_CPU_UPDATE_INTERVAL {
            return None;
        }
        self.system.refresh_cpu_usage();
        let own = own_milliseconds(&mut self.system, &self.own);
        let own = own.saturating_sub(self.own_before);
        let all_cores = f64::from(u32::try_from(self.system.cpus().len()).ok()?);
        let used = f64::from(self.system.global_cpu_usage()) / 100.0 * all_cores;
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds of one measurement"
        )]
        let own = own as f64 / 1000.0 / elapsed.as_secs_f64();
        let cores = (used - own).max(0.0);
        Some(OtherLoad {
            cores,
            is_busy: cores >= DISTURBING_CORES,
        })
    }
}

/// Returns the processor time of these processes so far, in milliseconds.
fn own_milliseconds(system: &mut System, own: &[Pid]) -> u64 {
    let wanted = ProcessRefreshKind::nothing().with_cpu();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(own), true, wanted);
    let processes = own.iter().filter_map(|pid| system.process(*pid));
    processes.map(sysinfo::Process::accumulated_cpu_time).sum()
}
