//! Passes of a benchmark after the timed runs, each in processes of its own: memory, and starts.

use std::time::Duration;

use indicatif::ProgressBar;

use super::super::super::exit::Failure;
use super::super::super::progress;
use super::super::sides::ExecutionSide;
use super::super::target_args::TargetArgs;
use super::starts::StartsReport;
use pkgtool_engine::EngineError;
use pkgtool_engine::runtime::device::DeviceAddress;
use pkgtool_engine::runtime::restart::{MemoryPass, Restart, StartKind};
use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::Tensor;

/// Maximum number and time of the runs of the memory pass.
const MEMORY_RUNS: u64 = 10;
const MEMORY_TIME: Duration = Duration::from_millis(500);

/// Options for passes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Measuring")]
pub(super) struct PassArgs {
    /// Start each model N times in a new process without its files in the system's cache, and N times with them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000), conflicts_with = "sustained")]
    cold_starts: Option<u16>,
}

/// A model that was measured, to be started again.
pub(super) struct MeasuredModel {
    pub(super) restart: Restart,
    pub(super) inputs: Vec<Tensor>,
}

/// The measurements of the passes of a model.
pub(super) struct PassResults {
    /// Its proportional memory, if the system reports it.
    pub(super) memory: Option<MemoryPass>,
    /// Its starts, if asked for.
    pub(super) starts: Option<StartsReport>,
}

impl PassArgs {
    /// Fails if the starts were asked for on this machine, and its system cannot make them cold.
    pub(super) fn require_possible(&self, devices: &[DeviceAddress]) -> Result<(), Failure> {
        let is_possible = cfg!(any(target_os = "linux", target_os = "android"));
        if is_possible || self.cold_starts.is_none() || !devices.contains(&DeviceAddress::Local) {
            return Ok(());
        }
        let reason = "--cold-starts: this system drops no files from its cache on request: omit the option, or name a device with --on";
        Err(Failure::Other(reason.to_owned()))
    }

    /// Measures the memory and the starts of each model, one after the other. All earlier processes have ended.
    pub(super) fn measure(
        &self,
        target: &TargetArgs,
        sides: &[ExecutionSide],
        models: &[MeasuredModel],
    ) -> Result<Vec<PassResults>, Failure> {
        let count = self.cold_starts.unwrap_or(0);
        let steps = (1 + u64::from(count)).saturating_mul(u64::try_from(models.len()).unwrap_or(0));
        let bar = progress::bar(steps, "{bar:30} memory and starts, {eta} left");
        let mut results = Vec::new();
        for (side, model) in sides.iter().zip(models) {
            let launcher = target.launcher_on(&side.device)?;
            let measured = model.measure(&launcher, count, &bar);
            results.push(measured.map_err(|error| {
                let model = side.selection.model.display();
                Failure::Other(format!("{model}: {error}"))
            })?);
        }
        bar.finish_and_clear();
        Ok(results)
    }
}

impl MeasuredModel {
    fn measure(
        &self,
        launcher: &Launcher,
        count: u16,
        bar: &ProgressBar,
    ) -> Result<PassResults, EngineError> {
        let runs = (MEMORY_RUNS, MEMORY_TIME);
        let memory = self.restart.memory(&self.inputs, launcher, runs)?;
        bar.inc(1);
        let (mut cold, mut warm) = (Vec::new(), Vec::new());
        for _ in 0..count {
            // The cold start brings the files into the cache.
            for (kind, starts) in [(StartKind::Cold, &mut cold), (StartKind::Warm, &mut warm)] {
                starts.push(self.restart.start(&self.inputs, launcher, kind)?);
            }
            bar.inc(1);
        }
        let starts = StartsReport::of(&cold, &warm);
        Ok(PassResults { memory, starts })
    }
}
