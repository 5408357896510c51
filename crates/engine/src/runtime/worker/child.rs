//! The worker's side: serves requests of the parent until the parent exits.
//!
//! Invariant: every request is answered, unless the model ends the process.

use std::io::{ErrorKind, Read, copy, sink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::super::{page_cache, peak_memory, pinning};
use super::protocol::{WorkerReply, WorkerRequest, send};
use super::setup::Setup;
use crate::profile::nanoseconds;
use crate::runtime::process::attached::{TensorHead, receive_tensors};
use crate::runtime::process::frame::receive;
use crate::runtime::process::sandbox::Sandbox;
use crate::runtime::process::{confined, limit_memory, panic_text, requests};
use crate::runtime::process_facts::{self, ProcessFacts};
use crate::runtime::pss::MemoryCourse;
use crate::tensor::Tensor;
use crate::tensor::limit::format_bytes;
use crate::{Engine, EngineError, Session, engine};
use pkgtool_base::source::bounds;

/// Serves the parent at the other end of standard input until it exits.
pub fn serve() -> std::io::Result<()> {
    let mut pinned = Ok(());
    let (setup, sandbox) = confined(|setup: &Setup| {
        pinned = setup.pin();
        setup.prepare()
    })?;
    process_facts::set_ready();
    let (requests, mut to_parent) = requests(next)?;
    let mut state = WorkerState {
        engine: String::new(),
        session: None,
        inputs: Vec::new(),
        sandbox,
        setup,
        pinned,
    };
    for (request, tensors) in requests {
        let (reply, outputs) = match tensors {
            Ok(tensors) => state.answer(request, tensors),
            Err(NoMemory(bytes)) => (state.no_memory(bytes), Vec::new()),
        };
        send(&mut to_parent, &reply, &outputs)?;
    }
    Ok(())
}

type ReceivedRequest = (WorkerRequest, Result<Vec<Tensor>, NoMemory>);

/// The memory for tensors of this size, in bytes, is unavailable.
struct NoMemory(u64);

fn next(stream: &mut dyn Read) -> std::io::Result<ReceivedRequest> {
    let request = receive::<WorkerRequest>(stream)?;
    let (WorkerRequest::Inputs(heads) | WorkerRequest::Run { inputs: heads, .. }) = &request else {
        return Ok((request, Ok(Vec::new())));
    };
    let size = TensorHead::bytes(heads)?;
    // The tensors are read completely even on failure: the next request follows them in the stream.
    let mut from_tensors = stream.take(size);
    let tensors = match receive_tensors(&mut from_tensors, heads.clone()) {
        Err(error) if error.kind() == ErrorKind::OutOfMemory => {
            copy(&mut from_tensors, &mut sink())?;
            Err(NoMemory(size))
        }
        tensors => Ok(tensors?),
    };
    Ok((request, tensors))
}

struct WorkerState {
    engine: String,
    session: Option<Box<dyn Session>>,
    inputs: Vec<Tensor>,
    sandbox: Result<Sandbox, String>,
    setup: Setup,
    /// Whether the process runs on its cores.
    pinned: Result<(), String>,
}

impl WorkerState {
    fn no_memory(&mut self, bytes: u64) -> WorkerReply {
        self.inputs = Vec::new();
        WorkerReply::Failed(EngineError::Run {
            engine: self.engine.clone(),
            operator: None,
            reason: format!("not enough memory for its inputs, {}", format_bytes(bytes)),
        })
    }

    fn answer(
        &mut self,
        request: WorkerRequest,
        tensors: Vec<Tensor>,
    ) -> (WorkerReply, Vec<Tensor>) {
        let name = self.engine.clone();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work(request, tensors)));
        let outcome = outcome.unwrap_or_else(|panic| {
            Err(EngineError::Run {
                engine: name,
                operator: None,
                reason: format!("it panicked: {}", panic_text(panic.as_ref())),
            })
        });
        outcome.unwrap_or_else(|error| (WorkerReply::Failed(error), Vec::new()))
    }

    fn work(
        &mut self,
        request: WorkerRequest,
        tensors: Vec<Tensor>,
    ) -> Result<(WorkerReply, Vec<Tensor>), EngineError> {
        let sandbox = self
            .sandbox
            .clone()
            .map_err(|reason| not_confined(&reason))?;
        let pinned = self.pinned.clone();
        pinned.map_err(|reason| EngineError::Device {
            reason,
            is_lost: false,
        })?;
        let reply = match request {
            WorkerRequest::Load {
                engine,
                mut request,
                memory_limit,
            } => {
                if let Some(bytes) = memory_limit {
                    limit_memory(bytes);
                }
                self.engine.clone_from(&engine);
                // The parent has already checked the limits.
                bounds::choose(&request.model);
                if self.setup.cores.is_some() {
                    // Some engines start a thread for each core of the machine, and pin it there.
                    let threads = &mut request.options.threads;
                    *threads = threads.or_else(|| Some(pinning::of_this_thread()?.len()));
                }
                let start = Instant::now();
                self.session = Some(named(&engine)?.load(&request)?);
                WorkerReply::Loaded(nanoseconds(start.elapsed()))
            }
            WorkerRequest::Inputs(_) => {
                self.inputs = tensors;
                WorkerReply::Kept
            }
            WorkerRequest::Run { begins, .. } => {
                self.inputs = tensors;
                let session = session(&mut self.session, &self.engine)?;
                session.begin(begins)?;
                let answer = session.run(&self.inputs)?;
                let reply = WorkerReply::Ran {
                    outputs: TensorHead::of(&answer.outputs),
                    nanoseconds: nanoseconds(answer.time),
                };
                return Ok((reply, answer.outputs));
            }
            WorkerRequest::Repeat {
                begins,
                runs,
                nanoseconds,
            } => {
                session(&mut self.session, &self.engine)?.begin(begins)?;
                WorkerReply::Repeated(self.repeat(runs, Duration::from_nanos(nanoseconds))?)
            }
            WorkerRequest::Profile { runs, nanoseconds } => {
                session(&mut self.session, &self.engine)?.begin_profile();
                self.repeat(runs, Duration::from_nanos(nanoseconds))?;
                WorkerReply::Profile(session(&mut self.session, &self.engine)?.end_profile())
            }
            WorkerRequest::Placement => {
                WorkerReply::Placement(session(&mut self.session, &self.engine)?.placement())
            }
            WorkerRequest::Assigned => {
                WorkerReply::Assigned(session(&mut self.session, &self.engine)?.assigned())
            }
            WorkerRequest::PeakMemory => WorkerReply::PeakMemory(peak_memory::of_this_process()),
            WorkerRequest::Process => WorkerReply::Process(ProcessFacts::of_this_process()),
            WorkerRequest::Memory { runs, nanoseconds } => {
                let runs = || {
                    self.repeat(runs, Duration::from_nanos(nanoseconds))
                        .map(drop)
                };
                WorkerReply::Memory(MemoryCourse::of(runs)?)
            }
            WorkerRequest::DropFromCache => WorkerReply::Dropped(self.drop_from_cache()?),
            WorkerRequest::Sandbox => WorkerReply::Sandbox(sandbox),
            WorkerRequest::Backends(engine) => WorkerReply::Backends(named(&engine)?.backends()?),
        };
        Ok((reply, Vec::new()))
    }

    fn drop_from_cache(&self) -> Result<u64, EngineError> {
        let mut bytes: u64 = 0;
        for path in self.setup.model_files() {
            let dropped = page_cache::drop_file(&path);
            bytes = bytes.saturating_add(dropped.map_err(|error| EngineError::Unavailable {
                what: "a cold start".to_owned(),
                reason: format!("{}: {error}", path.display()),
                help: "omit `--cold-starts`".to_owned(),
            })?);
        }
        Ok(bytes)
    }

    fn repeat(&mut self, runs: u64, time: Duration) -> Result<Vec<u64>, EngineError> {
        let session = session(&mut self.session, &self.engine)?;
        let start = Instant::now();
        let mut times = Vec::new();
        loop {
            times.push(nanoseconds(session.run(&self.inputs)?.time));
            if times.len() as u64 >= runs || start.elapsed() >= time {
                return Ok(times);
            }
        }
    }
}

fn not_confined(reason: &str) -> EngineError {
    EngineError::Unavailable {
        what: "a full sandbox".to_owned(),
        reason: reason.to_owned(),
        help: "run without `--sandbox require` (`sandbox` of the gateway's settings), or in a container".to_owned(),
    }
}

fn named(name: &str) -> Result<&'static dyn Engine, EngineError> {
    engine(name).ok_or_else(|| EngineError::Unavailable {
        what: format!("the engine `{name}`"),
        reason: "this build does not include it".to_owned(),
        help: "choose another engine".to_owned(),
    })
}

fn session<'a>(
    session: &'a mut Option<Box<dyn Session>>,
    engine: &str,
) -> Result<&'a mut Box<dyn Session>, EngineError> {
    session.as_mut().ok_or_else(|| EngineError::Run {
        engine: engine.to_owned(),
        operator: None,
        reason: "no model is loaded".to_owned(),
    })
}
