//! Worker processes: sessions that run in a process of their own, so that a crash, hang or
//! excessive memory use is survived and reported.
//!
//! The binary is started again as a worker. Requests and tensors go through a socket.
//!
//! Invariant: dropping a [`Worker`] ends its process. A crashed worker returns
//! [`EngineError::Died`] with the reason that the system reports; a worker that exceeded a limit
//! returns [`EngineError::Limit`].

mod child;
mod protocol;
mod setup;

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use child::serve;
use tempfile::TempDir;

use crate::library::NativeBackend;
use crate::profile::nanoseconds;
use crate::runtime::cores::CoreChoice;
use crate::runtime::device::{DeviceAddress, DeviceError, RemoteDevice};
use crate::runtime::process::attached::{TensorHead, receive_tensors};
use crate::runtime::process::frame::receive;
use crate::runtime::process::sandbox::Sandbox;
use crate::runtime::process::{self, Process, Purpose, Stopper};
use crate::runtime::process_facts::ProcessFacts;
use crate::runtime::pss::MemoryCourse;
use crate::tensor::Tensor;
use crate::tensor::limit::{MemoryLimit, RunLimit, reports_shortage};
use crate::{
    AssignedOperators, EngineError, LoadRequest, Placement, Profile, RunAnswer, RunStart, Session,
};
use protocol::{WorkerReply, WorkerRequest, send};
use setup::Setup;

/// Settings for starting workers.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// Path of the `pkgtool` binary.
    pub program: PathBuf,
    /// Maximum time of a load or run.
    pub timeout: Option<Duration>,
    /// Maximum memory of a worker.
    pub memory_limit: Option<MemoryLimit>,
    /// Give a worker only the processor time that no other process wants.
    pub in_background: bool,
    /// The device on which workers run; `None` for this machine.
    pub device: Option<Arc<RemoteDevice>>,
}

/// A session in a worker process.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    /// Folder for its temporary files, deleted after the process has ended.
    _scratch: Option<TempDir>,
    engine: String,
    timeout: Option<Duration>,
    memory_limit: Option<RunLimit>,
    load_time: Duration,
    /// The inputs that the worker currently has, if known.
    kept: Option<Vec<Tensor>>,
    /// The state with which the next run begins, sent with that run.
    begins: RunStart,
    /// The device on which it runs; `None` for this machine.
    device: Option<Arc<RemoteDevice>>,
}

impl Launcher {
    /// Returns a launcher for this binary, without limits.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            timeout: None,
            memory_limit: None,
            in_background: false,
            device: None,
        })
    }

    /// Starts a worker and loads a model in it.
    pub fn load(&self, engine: &str, request: &LoadRequest) -> Result<Worker, EngineError> {
        let mut worker = self.start(engine, request)?;
        worker.load(request)?;
        Ok(worker)
    }

    /// Starts a worker on these cores for a model, without loading it.
    pub fn start_on(
        &self,
        cores: Option<&CoreChoice>,
        engine: &str,
        request: &LoadRequest,
    ) -> Result<Worker, EngineError> {
        let mut setup = Setup::of(engine, request);
        setup.cores = cores.cloned();
        self.start_for(setup)
    }

    /// Asks a worker which backends an engine's library contains.
    pub fn backends(&self, engine: &str) -> Result<Vec<NativeBackend>, EngineError> {
        let mut worker = self.start_for(Setup::of_library(engine))?;
        let request = WorkerRequest::Backends(engine.to_owned());
        match worker.ask(&request, &[], "opening its library")?.0 {
            WorkerReply::Backends(backends) => Ok(backends),
            other => Err(worker.unexpected_reply(&other)),
        }
    }

    /// Starts a worker for this model without loading it yet, so that its [`Stopper`] is available
    /// before anything takes long.
    pub fn start(&self, engine: &str, request: &LoadRequest) -> Result<Worker, EngineError> {
        self.start_for(Setup::of(engine, request))
    }

    fn start_for(&self, setup: Setup) -> Result<Worker, EngineError> {
        let (process, engine, scratch) = match &self.device {
            Some(device) => self.start_there(device, setup)?,
            None => self.start_here(setup)?,
        };
        Ok(Worker {
            process,
            _scratch: scratch,
            engine,
            timeout: self.timeout,
            memory_limit: self.limit(),
            load_time: Duration::ZERO,
            kept: None,
            begins: RunStart::AsLeft,
            device: self.device.clone(),
        })
    }

    /// Returns the limit on memory. The free memory of this machine is no limit for a device.
    fn limit(&self) -> Option<RunLimit> {
        let limit = self.memory_limit.and_then(MemoryLimit::now);
        limit.filter(|limit| self.device.is_none() || limit.is_chosen())
    }

    /// Starts a process on a device.
    fn start_there(
        &self,
        device: &RemoteDevice,
        mut setup: Setup,
    ) -> Result<StartedProcess, EngineError> {
        let variables = setup
            .allocator()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        setup.move_to(device).map_err(|error| unreachable(&error))?;
        let mut process = device
            .work(variables.to_vec())
            .map_err(|error| unreachable(&error))?;
        process.begin(&setup, self.in_background);
        Ok((process, setup.engine, None))
    }

    fn start_here(&self, mut setup: Setup) -> Result<StartedProcess, EngineError> {
        let start = |error: io::Error| EngineError::Unavailable {
            what: "a worker process".to_owned(),
            reason: error.to_string(),
            help: format!("check whether {} can be started", self.program.display()),
        };
        let mut command = process::command_of(&self.program);
        command.arg(process::WORKER_ARGUMENT);
        let unset = |setting: &(&str, &str)| std::env::var_os(setting.0).is_none();
        command.envs(setup.allocator().into_iter().filter(unset));
        let scratch = setup.scratch().map_err(start)?;
        let purpose = Purpose {
            setup: &setup,
            allowed: &|| setup.allowed(),
            devices: setup.devices.is_some(),
            scratch: scratch.as_ref().map(TempDir::path),
            gives_way: self.in_background,
        };
        let process = Process::start(command, &purpose).map_err(start)?;
        Ok((process, setup.engine, scratch))
    }
}

/// A process with the name of its engine, and the folder for its temporary files.
type StartedProcess = (Process, String, Option<TempDir>);

/// Converts an error of a device.
fn unreachable(error: &DeviceError) -> EngineError {
    EngineError::Device {
        reason: error.to_string(),
        is_lost: error.is_lost(),
    }
}

impl Worker {
    /// Returns the time that the engine took to load the model.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// Loads a model in a worker that was only started.
    pub fn load(&mut self, request: &LoadRequest) -> Result<(), EngineError> {
        let mut request = request.clone();
        if let Some(device) = &self.device {
            let there = device.localized(&request.model, &request.options);
            (request.model, request.options) = there.map_err(|error| unreachable(&error))?;
        }
        let load = WorkerRequest::Load {
            engine: self.engine.clone(),
            request,
            memory_limit: self.memory_limit.and_then(RunLimit::bytes),
        };
        match self.ask(&load, &[], "loading the model")?.0 {
            WorkerReply::Loaded(nanoseconds) => {
                self.load_time = Duration::from_nanos(nanoseconds);
                Ok(())
            }
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// Returns a handle that ends the process from another thread.
    pub fn stopper(&self) -> Stopper {
        self.process.stopper()
    }

    /// Returns the address of the device on which it runs; `None` for this machine.
    pub fn device(&self) -> Option<&DeviceAddress> {
        Some(self.device.as_ref()?.address())
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sets the maximum time of later requests.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Sets the inputs for [`Worker::repeat`]. They are sent only if they changed.
    pub fn set_inputs(&mut self, inputs: &[Tensor]) -> Result<(), EngineError> {
        if self.kept.as_deref() == Some(inputs) {
            return Ok(());
        }
        self.kept = None;
        let request = WorkerRequest::Inputs(TensorHead::of(inputs));
        match self.ask(&request, inputs, "receiving its inputs")?.0 {
            WorkerReply::Kept => {
                self.kept = Some(inputs.to_vec());
                Ok(())
            }
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// Runs `runs` times or until `time` has passed, at least once, and returns the time of each
    /// run. The inputs are those of the last run or of [`Worker::set_inputs`].
    pub fn repeat(&mut self, runs: u64, time: Duration) -> Result<Vec<Duration>, EngineError> {
        let request = WorkerRequest::Repeat {
            begins: self.begins.clone(),
            runs,
            nanoseconds: nanoseconds(time),
        };
        let limit = self.limit_of_runs(runs, time);
        match self.ask_within(limit, &request, &[], "running")?.0 {
            WorkerReply::Repeated(times) => {
                self.begins = RunStart::AsLeft;
                Ok(times.into_iter().map(Duration::from_nanos).collect())
            }
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// Like [`Worker::repeat`] for a model loaded with [`crate::LoadOptions::profile`], and returns
    /// the time of each node. `None` if the engine cannot record this model.
    pub fn profile(&mut self, runs: u64, time: Duration) -> Result<Option<Profile>, EngineError> {
        let request = WorkerRequest::Profile {
            runs,
            nanoseconds: nanoseconds(time),
        };
        let limit = self.limit_of_runs(runs, time);
        match self.ask_within(limit, &request, &[], "running")?.0 {
            WorkerReply::Profile(profile) => Ok(profile),
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// Returns the time limit of several runs. The limit applies to one run, and the last run
    /// begins before the time is over.
    fn limit_of_runs(&self, runs: u64, time: Duration) -> Option<Duration> {
        self.timeout.map(|one| {
            let runs = u32::try_from(runs).unwrap_or(u32::MAX);
            one.saturating_mul(runs).min(time.saturating_add(one))
        })
    }

    /// Returns the sandbox of the process.
    pub fn sandbox(&mut self) -> Option<Sandbox> {
        match self.ask(&WorkerRequest::Sandbox, &[], "reporting its sandbox") {
            Ok((WorkerReply::Sandbox(sandbox), _)) => Some(sandbox),
            _ => None,
        }
    }

    /// Returns what the process says about itself.
    pub fn process_facts(&mut self) -> Result<ProcessFacts, EngineError> {
        match self
            .ask(&WorkerRequest::Process, &[], "describing its process")?
            .0
        {
            WorkerReply::Process(facts) => Ok(facts),
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// Samples the proportional memory of the process during runs like those of [`Worker::repeat`]; `None` if its
    /// system does not report it.
    pub fn memory_course(
        &mut self,
        runs: u64,
        time: Duration,
    ) -> Result<Option<MemoryCourse>, EngineError> {
        let request = WorkerRequest::Memory {
            runs,
            nanoseconds: nanoseconds(time),
        };
        let limit = self.limit_of_runs(runs, time);
        match self.ask_within(limit, &request, &[], "running")?.0 {
            WorkerReply::Memory(course) => Ok(course),
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// Drops the model's files from the cache of the process's system. Returns their size in bytes.
    pub fn drop_model_from_cache(&mut self) -> Result<u64, EngineError> {
        match self
            .ask(&WorkerRequest::DropFromCache, &[], "dropping the cache")?
            .0
        {
            WorkerReply::Dropped(bytes) => Ok(bytes),
            other => Err(self.unexpected_reply(&other)),
        }
    }

    /// Returns the peak memory of the worker's process, in bytes, if the system reports it.
    pub fn peak_memory(&mut self) -> Option<u64> {
        match self.ask(&WorkerRequest::PeakMemory, &[], "reporting its memory") {
            Ok((WorkerReply::PeakMemory(bytes), _)) => bytes,
            _ => None,
        }
    }

    fn ask(
        &mut self,
        request: &WorkerRequest,
        tensors: &[Tensor],
        doing: &str,
    ) -> Result<(WorkerReply, Vec<Tensor>), EngineError> {
        self.ask_within(self.timeout, request, tensors, doing)
    }

    fn ask_within(
        &mut self,
        limit: Option<Duration>,
        request: &WorkerRequest,
        tensors: &[Tensor],
        doing: &str,
    ) -> Result<(WorkerReply, Vec<Tensor>), EngineError> {
        match self.exchange(limit, request, tensors) {
            Ok((WorkerReply::Failed(error), _)) => Err(self.by_limit(error, doing)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.died(&error, doing)),
        }
    }

    fn exchange(
        &mut self,
        limit: Option<Duration>,
        request: &WorkerRequest,
        tensors: &[Tensor],
    ) -> io::Result<(WorkerReply, Vec<Tensor>)> {
        let channel = self.process.channel(limit)?;
        send(channel.get_mut(), request, tensors)?;
        let reply = receive::<WorkerReply>(channel)?;
        let outputs = match &reply {
            WorkerReply::Ran { outputs, .. } => receive_tensors(channel, outputs.clone())?,
            _ => Vec::new(),
        };
        Ok((reply, outputs))
    }

    /// Converts an out-of-memory error to the error of the memory limit, if there is one.
    fn by_limit(&mut self, error: EngineError, doing: &str) -> EngineError {
        match self.memory_limit {
            Some(limit) if reports_shortage(&error.to_string()) => {
                // The state of the library is undefined after it ran out of memory.
                self.process.stop();
                self.reached(limit, doing)
            }
            _ => error,
        }
    }

    fn reached(&self, limit: RunLimit, doing: &str) -> EngineError {
        EngineError::Limit {
            engine: self.engine.clone(),
            doing: doing.to_owned(),
            limit,
        }
    }

    fn died(&mut self, error: &io::Error, doing: &str) -> EngineError {
        let Some(mut reason) = self.process.end_after(error) else {
            return self.reached(RunLimit::Time(self.timeout.unwrap_or_default()), doing);
        };
        if self.process.is_connection_lost() {
            let help = "check the cable or the network, and run it again";
            return EngineError::Device {
                reason: format!("{reason}, while {doing}; {help}"),
                is_lost: true,
            };
        }
        match self.memory_limit {
            Some(limit) if reports_shortage(&reason) => return self.reached(limit, doing),
            // A library that ignores failed allocations crashes without a message.
            Some(limit) if limit.is_chosen() && reason.starts_with("signal") => {
                let _ = write!(reason, ", or an allocation failed under {limit}");
            }
            _ => {}
        }
        EngineError::Died {
            engine: self.engine.clone(),
            doing: doing.to_owned(),
            reason,
        }
    }

    fn unexpected_reply(&mut self, reply: &WorkerReply) -> EngineError {
        self.process.stop();
        EngineError::Died {
            engine: self.engine.clone(),
            doing: "answering".to_owned(),
            reason: format!("unexpected answer: {reply:?}"),
        }
    }
}

impl Session for Worker {
    fn run(&mut self, inputs: &[Tensor]) -> Result<RunAnswer, EngineError> {
        // The worker keeps the inputs; a copy here would waste memory.
        self.kept = None;
        let request = WorkerRequest::Run {
            inputs: TensorHead::of(inputs),
            begins: self.begins.clone(),
        };
        match self.ask(&request, inputs, "running")? {
            (WorkerReply::Ran { nanoseconds, .. }, outputs) => {
                // Reset only on success: after a failure the next run must begin the same way.
                self.begins = RunStart::AsLeft;
                Ok(RunAnswer {
                    outputs,
                    time: Duration::from_nanos(nanoseconds),
                })
            }
            (other, _) => Err(self.unexpected_reply(&other)),
        }
    }

    fn reset_state(&mut self) -> Result<(), EngineError> {
        self.begin(RunStart::Anew)
    }

    fn begin(&mut self, begins: RunStart) -> Result<(), EngineError> {
        match begins {
            RunStart::Cut(length) => return self.truncate_state(length),
            // An earlier request that has not taken effect yet stays valid.
            RunStart::AsLeft if !matches!(self.begins, RunStart::Lanes(_)) => {}
            begins => self.begins = begins,
        }
        Ok(())
    }

    fn truncate_state(&mut self, length: u64) -> Result<(), EngineError> {
        let held = match self.begins {
            RunStart::AsLeft | RunStart::Lanes(_) => u64::MAX,
            RunStart::Cut(held) => held,
            RunStart::Anew => 0,
        };
        if length > held {
            return Err(EngineError::Run {
                engine: self.engine.clone(),
                operator: None,
                reason: format!("cannot keep {length} positions: only {held} exist"),
            });
        }
        if self.begins != RunStart::Anew {
            self.begins = RunStart::Cut(length);
        }
        Ok(())
    }

    fn placement(&mut self) -> Placement {
        match self.ask(&WorkerRequest::Placement, &[], "reporting its placement") {
            Ok((WorkerReply::Placement(placement), _)) => placement,
            _ => Placement::default(),
        }
    }

    fn assigned(&mut self) -> Vec<AssignedOperators> {
        match self.ask(&WorkerRequest::Assigned, &[], "reporting its operators") {
            Ok((WorkerReply::Assigned(operators), _)) => operators,
            _ => Vec::new(),
        }
    }
}
