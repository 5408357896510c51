//! Measurements in processes of their own: the memory of a model, and its start.
//!
//! Other processes that map the same files take a share of its memory, and keep its files in the system's cache. So
//! the processes of other measurements should have ended.

use std::time::Duration;

use serde::Serialize;

use super::cores::CoreChoice;
use super::pss::{MemoryCourse, ProportionalMemory};
use super::worker::{Launcher, Worker};
use crate::tensor::Tensor;
use crate::{EngineError, LoadRequest, Session};

/// A model that ran, to be started in other processes.
#[derive(Debug, Clone)]
pub struct Restart {
    /// Name of its engine.
    pub engine: &'static str,
    /// How to load it.
    pub request: LoadRequest,
    /// The cores on which it runs; `None` leaves them to the system.
    pub cores: Option<CoreChoice>,
}

/// The proportional memory of a process from its start to its last run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryPass {
    /// Before the model was loaded.
    pub started: ProportionalMemory,
    /// With the model.
    #[serde(flatten)]
    pub course: MemoryCourse,
}

/// The kind of a start: whether the files of the model are in the system's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartKind {
    /// They were dropped from it.
    Cold,
    /// They are there, because an earlier process has read them.
    Warm,
}

/// The parts of a start: from a new process to the first answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartParts {
    /// From the start of the program until its process could load a model, if the clock did not jump.
    pub process: Option<Duration>,
    /// Loading the model.
    pub load: Duration,
    /// The first run.
    pub first_run: Duration,
    /// Bytes that loading and the first run read from storage, if the system reports them.
    pub storage_read_bytes: Option<u64>,
    /// Size of the files that were dropped from the cache, in bytes.
    pub dropped_bytes: Option<u64>,
}

impl Restart {
    /// Starts a process for the model without loading it.
    fn worker(&self, launcher: &Launcher) -> Result<Worker, EngineError> {
        launcher.start_on(self.cores.as_ref(), self.engine, &self.request)
    }

    /// Measures the proportional memory of a new process before, during and after some runs; `None` if its system does
    /// not report it.
    pub fn memory(
        &self,
        inputs: &[Tensor],
        launcher: &Launcher,
        (runs, time): (u64, Duration),
    ) -> Result<Option<MemoryPass>, EngineError> {
        let mut worker = self.worker(launcher)?;
        let Some(started) = worker.process_facts()?.memory else {
            return Ok(None);
        };
        worker.load(&self.request)?;
        worker.set_inputs(inputs)?;
        let course = worker.memory_course(runs, time)?;
        Ok(course.map(|course| MemoryPass { started, course }))
    }

    /// Measures a start in a new process.
    pub fn start(
        &self,
        inputs: &[Tensor],
        launcher: &Launcher,
        kind: StartKind,
    ) -> Result<StartParts, EngineError> {
        let mut worker = self.worker(launcher)?;
        let dropped_bytes = match kind {
            StartKind::Cold => Some(worker.drop_model_from_cache()?),
            StartKind::Warm => None,
        };
        let before = worker.process_facts()?;
        worker.load(&self.request)?;
        let first_run = worker.run(inputs)?.time;
        let after = worker.process_facts()?;
        let read = after.storage_read_bytes.zip(before.storage_read_bytes);
        Ok(StartParts {
            process: before.start_nanoseconds.map(Duration::from_nanos),
            load: worker.load_time(),
            first_run,
            storage_read_bytes: read.map(|(after, before)| after.saturating_sub(before)),
            dropped_bytes,
        })
    }
}
