//! A loaded session, either in a worker process or in the owning thread.
//!
//! Invariant: anything that the model does in a run becomes an error at worst. A session that
//! crashed or panicked returns [`EngineError::Died`] and is not used again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::devices::Devices;
use super::foreground::Foreground;
use super::model::EndpointModel;
use super::place::SessionPlace;
use crate::service::{CallError, Isolation, Refusal, ServiceSettings};
use pkgtool_engine::runtime::process::Stopper;
use pkgtool_engine::runtime::process::sandbox::Sandbox;
use pkgtool_engine::runtime::target::Candidate;
use pkgtool_engine::runtime::worker::{Launcher, Worker};
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::tensor::limit::{MemoryLimit, RunLimit};
use pkgtool_engine::{
    EngineError, LoadOptions, LoadRequest, Placement, Provider, RunStart, Session, engine,
};

/// Time limit of a load, and of the run that proves a provider.
const LOAD_TIMEOUT: Duration = Duration::from_mins(5);

/// Program and library that sessions are started from.
#[derive(Debug, Clone)]
pub(super) struct SessionSource {
    /// The pkgtool executable.
    pub(super) program: PathBuf,
    /// The ONNX Runtime library, if configured.
    pub(super) library: Option<PathBuf>,
    /// The requests to which its sessions give way, if they do.
    pub(super) gives_way_to: Option<Arc<Foreground>>,
    /// The devices on which sessions may live.
    pub(super) devices: Arc<Devices>,
}

/// A loaded session.
pub(super) enum LoadedSession {
    /// In a worker process.
    Process(Box<Worker>),
    /// In this thread, with the name of its engine.
    Thread(Box<dyn Session>, &'static str),
}

impl SessionSource {
    /// Returns whether its sessions give way to other requests.
    pub(super) fn gives_way(&self) -> bool {
        self.gives_way_to.is_some()
    }

    /// Loads a session. `started` receives the handle that stops its process before the slow part
    /// begins. `prove` records which nodes the provider takes, and limits the time of runs until
    /// [`LoadedSession::set_timeout`].
    pub(super) fn load(
        &self,
        model: &EndpointModel,
        settings: &ServiceSettings,
        place: &SessionPlace,
        (candidate, prove): (Candidate, bool),
        started: impl FnOnce(&Worker, Stopper),
    ) -> Result<LoadedSession, EngineError> {
        let is_target = candidate.provider != Provider::Cpu;
        let request = LoadRequest {
            model: model.model.clone(),
            signature: model.signature.clone(),
            options: LoadOptions {
                threads: Some(settings.threads).filter(|threads| *threads > 0),
                provider: candidate.provider,
                strict: false,
                observe: prove && is_target,
                profile: false,
                library: self.library.clone(),
                carrying: model.carrying.clone(),
                rounding: settings.rounding,
                ort_options: settings.ort_options.clone(),
                cpu_features: None,
            },
        };
        let device = match place {
            SessionPlace::Here if settings.isolation == Isolation::Thread => {
                return in_thread(candidate.engine, &request);
            }
            SessionPlace::Here => None,
            SessionPlace::Device(connection) => Some(Arc::clone(&connection.remote)),
        };
        let launcher = Launcher {
            program: self.program.clone(),
            timeout: Some(LOAD_TIMEOUT),
            memory_limit: Some(settings.memory_limit)
                .filter(|bytes| *bytes > 0)
                .map(MemoryLimit::Setting),
            in_background: self.gives_way(),
            device,
        };
        let named = |error| match (error, place) {
            (EngineError::Device { reason, is_lost }, SessionPlace::Device(connection)) => {
                let reason = connection.parameters.without_address(&reason);
                EngineError::Device { reason, is_lost }
            }
            (other, _) => other,
        };
        let mut worker = launcher.start(candidate.engine, &request).map_err(named)?;
        let stopper = worker.stopper();
        started(&worker, stopper);
        worker.load(&request).map_err(named)?;
        if !(prove && is_target) {
            worker.set_timeout(None);
        }
        Ok(LoadedSession::Process(Box::new(worker)))
    }
}

#[cfg(target_os = "linux")]
fn cpu_time(process: u32) -> Option<Duration> {
    let process = nix::unistd::Pid::from_raw(i32::try_from(process).ok()?);
    let clock = nix::time::clock_getcpuclockid(process).ok()?;
    Some(clock.now().ok()?.into())
}

#[cfg(not(target_os = "linux"))]
fn cpu_time(_process: u32) -> Option<Duration> {
    None
}

impl LoadedSession {
    /// Returns the CPU time of all threads of the session's process. Returns `None` if the system
    /// does not provide it or the session is in this process
    /// or on a device.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        match self {
            // The process here is only the wire to a device.
            Self::Process(worker) if worker.device().is_some() => None,
            Self::Process(worker) => cpu_time(worker.id()),
            Self::Thread(..) => None,
        }
    }

    /// Runs the model from the state after the last run, from an earlier position, or from an empty
    /// state.
    pub(super) fn run(
        &mut self,
        inputs: &[Tensor],
        begins: RunStart,
    ) -> Result<Vec<Tensor>, EngineError> {
        let run = |session: &mut dyn Session| {
            session.begin(begins)?;
            session.run(inputs)
        };
        let answer = match self {
            Self::Process(worker) => run(worker.as_mut()),
            Self::Thread(session, engine) => survive(engine, "running", || run(session.as_mut())),
        };
        answer.map(|answer| answer.outputs)
    }

    /// Returns whether the provider runs a node of the model, as far as the engine reports it.
    pub(super) fn is_on(&mut self, provider: Provider) -> bool {
        let placement = self.placement();
        provider == Provider::Cpu || placement.shares.is_empty() || placement.has(provider)
    }

    /// Returns how the engine runs the model.
    pub(super) fn placement(&mut self) -> Placement {
        match self {
            Self::Process(worker) => worker.placement(),
            Self::Thread(session, _) => session.placement(),
        }
    }

    /// Returns the sandbox of its process.
    pub(super) fn sandbox(&mut self) -> Option<Sandbox> {
        match self {
            Self::Process(worker) => worker.sandbox(),
            Self::Thread(..) => Some(Sandbox::none("its sessions run in the server's process")),
        }
    }

    /// Limits the time of subsequent operations. A thread cannot be limited.
    pub(super) fn set_timeout(&mut self, timeout: Option<Duration>) {
        if let Self::Process(worker) = self {
            worker.set_timeout(timeout);
        }
    }

    /// Returns its peak memory use, if known.
    pub(super) fn memory(&mut self) -> Option<u64> {
        match self {
            Self::Process(worker) => worker.peak_memory(),
            Self::Thread(..) => None,
        }
    }
}

/// Converts an engine error to a call error.
pub(super) fn call_error(error: &EngineError) -> CallError {
    match error {
        EngineError::Died { reason, .. } => CallError::Crashed(reason.clone()),
        EngineError::Limit { doing, limit, .. } => {
            let text = format!("it reached {} while it was {doing}", limit_text(*limit));
            match limit {
                RunLimit::Time(_) => CallError::Crashed(text),
                // A retry would need the same memory.
                RunLimit::Memory(..) => CallError::Failed(text),
            }
        }
        EngineError::Unavailable { .. } | EngineError::Device { is_lost: false, .. } => {
            CallError::NoInstances(error.to_string())
        }
        EngineError::Device { is_lost: true, .. } => CallError::Lost,
        EngineError::Input { .. } => CallError::Refused(Refusal {
            message: error.to_string(),
            place: None,
            code: None,
        }),
        EngineError::Unsupported { .. }
        | EngineError::Load { .. }
        | EngineError::Corrupt { .. }
        | EngineError::Run { .. } => CallError::Failed(error.to_string()),
    }
}

/// Formats a limit; time limits are described as the server's own.
fn limit_text(limit: RunLimit) -> String {
    match limit {
        RunLimit::Time(time) => format!("the server's time limit of {} s", time.as_secs_f64()),
        RunLimit::Memory(..) => limit.to_string(),
    }
}

/// Returns whether the error ended the session.
pub(super) fn has_died(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Died { .. } | EngineError::Limit { .. } | EngineError::Device { .. }
    )
}

/// Describes an error for the log, without the process's last output, which may reveal the input.
pub(super) fn for_log(error: &EngineError) -> &str {
    match error {
        EngineError::Died { reason, .. } => {
            reason.split("; its last words").next().unwrap_or_default()
        }
        EngineError::Limit {
            limit: RunLimit::Time(_),
            ..
        } => "it reached its time limit",
        EngineError::Limit { .. } => "it reached its memory limit",
        EngineError::Unavailable { .. } => "it is not available",
        EngineError::Unsupported { .. } => "it cannot run the model",
        EngineError::Load { .. } => "it cannot load the model",
        EngineError::Corrupt { .. } => "it reports that the model is corrupt",
        EngineError::Run { .. } => "its run failed",
        EngineError::Device { .. } => "its device cannot be used",
        EngineError::Input { .. } => "its inputs contain unsupported values",
    }
}

fn in_thread(name: &'static str, request: &LoadRequest) -> Result<LoadedSession, EngineError> {
    let engine = engine(name).ok_or_else(|| EngineError::Unavailable {
        what: format!("the engine `{name}`"),
        reason: "this build does not include it".to_owned(),
        help: "choose another engine".to_owned(),
    })?;
    let session = survive(name, "loading the model", || engine.load(request))?;
    Ok(LoadedSession::Thread(session, name))
}

/// Converts a panic to the error of a crashed session.
fn survive<T>(
    engine: &str,
    doing: &str,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(EngineError::Died {
            engine: engine.to_owned(),
            doing: doing.to_owned(),
            reason: format!(
                "it panicked; its last words: {}",
                panic_text(panic.as_ref())
            ),
        })
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("none")
}
