//! Describes the machine on which a measurement was made.

use std::fmt;

use serde::{Deserialize, Serialize};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// The properties of a machine that affect measured times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: String,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Size of the main memory, in bytes.
    pub memory_bytes: u64,
    /// Operating system with its version.
    pub system: String,
    /// Version of the kernel, if the system reports it.
    pub kernel: Option<String>,
    /// Instruction set, as Rust names it.
    pub architecture: String,
    /// Instruction set extensions that engines can use: `AVX2`, `AVX-512`, `AVX-512 VNNI`.
    pub instruction_sets: Vec<String>,
    /// Policy for the processor's frequency (Linux: `performance`, `powersave`, …).
    pub governor: Option<String>,
}

impl Machine {
    /// Returns the properties of this machine.
    pub fn this() -> Self {
        let wanted = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(wanted);
        let brand = system
            .cpus()
            .first()
            .map(|cpu| cpu.brand().trim().to_owned());
        let os = System::long_os_version().unwrap_or_else(|| std::env::consts::OS.to_owned());
        Self {
            cpu: brand
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes: system.total_memory(),
            system: os,
            kernel: System::kernel_version(),
            architecture: std::env::consts::ARCH.to_owned(),
            instruction_sets: crate::instruction_sets()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            governor: governor(),
        }
    }
}

/// `AMD EPYC 7B13, 2 cores, 24 GiB, x86_64, Linux (Debian 12)`.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        let gibibytes = self.memory_bytes >> 30;
        write!(
            f,
            "{}, {} {cores}, {gibibytes} GiB, {}, {}",
            self.cpu, self.cores, self.architecture, self.system
        )?;
        match &self.governor {
            Some(governor) => write!(f, ", governor {governor}"),
            None => Ok(()),
        }
    }
}

fn governor() -> Option<String> {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}
