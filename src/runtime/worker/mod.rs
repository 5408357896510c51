//! Sessions in a process of their own: their crash, hang or greed is survived and reported.
//!
//! The binary is started again as a worker; tensors go through a socket. Invariant: a [`Worker`]
//! that is dropped leaves no process behind, and a dead worker gives [`EngineError::Died`], with the
//! reason as far as the system tells it.

mod channel;
mod child;
mod protocol;

use std::collections::VecDeque;
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub use child::serve;

use super::{Answer, EngineError, LoadRequest, Placement, Session, Tensor};
use crate::model;
use channel::Channel;
use protocol::{Reply, Request, TensorHead, receive, receive_tensors, send};

/// The argument that makes the binary a worker.
pub const ARGUMENT: &str = "worker";

/// How much of what a worker prints is kept, in bytes.
const PRINTED: usize = 8 << 10;

/// Settings of glibc's allocator: blocks from which size on go back to the system at once, and how much
/// of smaller ones is kept. Other systems do not look at them.
type Allocator = [(&'static str, &'static str); 2];

/// By itself glibc keeps as much freed memory as the largest block that was freed: with weights that
/// come and go while a model is loaded, that is as much again as they take.
const FOR_LARGE_WEIGHTS: Allocator = [
    ("MALLOC_MMAP_THRESHOLD_", "4194304"),
    ("MALLOC_TRIM_THRESHOLD_", "67108864"),
];

/// Tensors between nodes are allocated in every run. What comes from the system each time costs a page
/// fault every 4 KiB: 13 ms instead of 4.8 ms for a sum of two matrices of 16 MB.
const FOR_LARGE_TENSORS: Allocator = [
    ("MALLOC_MMAP_THRESHOLD_", "33554432"),
    ("MALLOC_TRIM_THRESHOLD_", "268435456"),
];

/// Weights of which a second copy would hurt, in bytes.
const LARGE_WEIGHTS: u64 = 128 << 20;

/// How workers are started.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// The `pkgtool` binary.
    pub program: PathBuf,
    /// Longest time a load or a run may take.
    pub timeout: Option<Duration>,
    /// Most bytes of address space a worker may take.
    pub memory_limit: Option<u64>,
}

/// A session in a worker process.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    channel: Channel,
    engine: String,
    timeout: Option<Duration>,
    printed: Arc<Mutex<VecDeque<u8>>>,
    reader: Option<JoinHandle<()>>,
    load_time: Duration,
    inputs: Vec<Tensor>,
}

impl Launcher {
    /// Workers of this very binary, without limits.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            timeout: None,
            memory_limit: None,
        })
    }

    /// Starts a worker and loads a model in it.
    pub fn load(&self, engine: &str, request: &LoadRequest) -> Result<Worker, EngineError> {
        let start = |error: io::Error| EngineError::Unavailable {
            what: "a worker process".to_owned(),
            reason: error.to_string(),
            help: format!("see whether {} can be started", self.program.display()),
        };
        let mut command = Command::new(&self.program);
        // With it a failed allocation would try to print a stack, and hide what it says first.
        command.arg(ARGUMENT).env_remove("RUST_BACKTRACE");
        let allocator = if weights(&request.model) >= LARGE_WEIGHTS {
            FOR_LARGE_WEIGHTS
        } else {
            FOR_LARGE_TENSORS
        };
        let unset = |setting: &(&str, &str)| std::env::var_os(setting.0).is_none();
        command.envs(allocator.into_iter().filter(unset));
        let (child, channel, printed) = channel::connect(&mut command).map_err(start)?;
        let (printed, reader) = keep_tail(printed);
        let mut worker = Worker {
            child,
            channel,
            engine: engine.to_owned(),
            timeout: self.timeout,
            printed,
            reader: Some(reader),
            load_time: Duration::ZERO,
            inputs: Vec::new(),
        };
        let load = Request::Load {
            engine: engine.to_owned(),
            request: request.clone(),
            memory_limit: self.memory_limit,
        };
        match worker.ask(&load, &[], "loading the model")?.0 {
            Reply::Loaded(nanoseconds) => {
                worker.load_time = Duration::from_nanos(nanoseconds);
                Ok(worker)
            }
            other => Err(worker.nonsense(&other)),
        }
    }
}

impl Worker {
    /// Time the engine took to load the model.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// Sets the inputs of the next runs; they are sent only if they are others than before.
    pub fn set_inputs(&mut self, inputs: &[Tensor]) -> Result<(), EngineError> {
        if self.inputs == inputs {
            return Ok(());
        }
        let request = Request::Inputs(TensorHead::of(inputs));
        match self.ask(&request, inputs, "taking its inputs")?.0 {
            Reply::Kept => {
                self.inputs = inputs.to_vec();
                Ok(())
            }
            other => Err(self.nonsense(&other)),
        }
    }

    /// Runs with the inputs set before, `runs` times or until `time` has passed, at least once, and
    /// gives the time of each run.
    pub fn repeat(&mut self, runs: u64, time: Duration) -> Result<Vec<Duration>, EngineError> {
        let request = Request::Repeat {
            runs,
            nanoseconds: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        };
        match self.ask(&request, &[], "running")?.0 {
            Reply::Repeated(times) => Ok(times.into_iter().map(Duration::from_nanos).collect()),
            other => Err(self.nonsense(&other)),
        }
    }

    /// The most memory the worker's process has held, in bytes, where the system tells.
    pub fn peak_memory(&mut self) -> Option<u64> {
        match self.ask(&Request::PeakMemory, &[], "telling its memory") {
            Ok((Reply::PeakMemory(bytes), _)) => bytes,
            _ => None,
        }
    }

    fn ask(
        &mut self,
        request: &Request,
        tensors: &[Tensor],
        doing: &str,
    ) -> Result<(Reply, Vec<Tensor>), EngineError> {
        match self.exchange(request, tensors) {
            Ok((Reply::Failed(error), _)) => Err(error),
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.died(&error, doing)),
        }
    }

    fn exchange(
        &mut self,
        request: &Request,
        tensors: &[Tensor],
    ) -> io::Result<(Reply, Vec<Tensor>)> {
        self.channel.set_read_timeout(self.timeout)?;
        send(&mut BufWriter::new(&mut self.channel), request, tensors)?;
        let mut stream = BufReader::new(&mut self.channel);
        let reply = receive::<Reply>(&mut stream)?;
        let outputs = match &reply {
            Reply::Ran { outputs, .. } => receive_tensors(&mut stream, outputs.clone())?,
            _ => Vec::new(),
        };
        Ok((reply, outputs))
    }

    fn died(&mut self, error: &io::Error, doing: &str) -> EngineError {
        let late = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        );
        let reason = if late {
            let limit = self.timeout.unwrap_or_default().as_secs_f64();
            format!("it was stopped after the time limit of {limit} s")
        } else if error.kind() == io::ErrorKind::UnexpectedEof || is_closed(error) {
            self.last_words()
        } else {
            format!("it gave an answer that cannot be read ({error}), and was stopped")
        };
        self.stop();
        EngineError::Died {
            engine: self.engine.clone(),
            doing: doing.to_owned(),
            reason,
        }
    }

    /// How the process ended, and the last line it printed.
    fn last_words(&mut self) -> String {
        let ended = match self.child.wait() {
            Ok(status) => describe(status),
            Err(error) => format!("its end is unknown: {error}"),
        };
        if let Some(reader) = self.reader.take() {
            // A reader of a pipe whose writers are gone ends; a panic of it would lose only a hint.
            let _ = reader.join();
        }
        let printed = self.printed.lock().map(|bytes| {
            let (front, back) = bytes.as_slices();
            String::from_utf8_lossy(&[front, back].concat()).into_owned()
        });
        let printed = printed.unwrap_or_default();
        // What a panic adds on how to see more of it is not for the user.
        let tells =
            |line: &&str| !line.trim().is_empty() && !line.starts_with("note: run with `RUST");
        match printed.lines().rfind(tells) {
            Some(line) => format!("{ended}; its last words: {}", line.trim()),
            None => ended,
        }
    }

    fn nonsense(&mut self, reply: &Reply) -> EngineError {
        self.stop();
        EngineError::Died {
            engine: self.engine.clone(),
            doing: "answering".to_owned(),
            reason: format!("it gave an answer out of place: {reply:?}"),
        }
    }

    fn stop(&mut self) {
        // It may have ended by itself: then there is nothing to stop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Session for Worker {
    fn run(&mut self, inputs: &[Tensor]) -> Result<Answer, EngineError> {
        self.set_inputs(inputs)?;
        match self.ask(&Request::Run, &[], "running")? {
            (Reply::Ran { nanoseconds, .. }, outputs) => Ok(Answer {
                outputs,
                time: Duration::from_nanos(nanoseconds),
            }),
            (other, _) => Err(self.nonsense(&other)),
        }
    }

    fn placement(&mut self) -> Placement {
        match self.ask(&Request::Placement, &[], "telling its placement") {
            Ok((Reply::Placement(placement), _)) => placement,
            _ => Placement::default(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Bytes of a model's weights, in its file and beside it; 0 if the file cannot be read, which loading
/// will say.
fn weights(model: &Path) -> u64 {
    let Ok((info, _)) = model::open(model) else {
        return 0;
    };
    let beside = info.external.iter().filter_map(|data| data.needs_bytes);
    beside.fold(info.weight_bytes, u64::saturating_add)
}

/// Whether the other end is gone.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Reads what a worker prints to its end and keeps the last [`PRINTED`] bytes.
fn keep_tail(mut printed: Box<dyn Read + Send>) -> (Arc<Mutex<VecDeque<u8>>>, JoinHandle<()>) {
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let kept = Arc::clone(&tail);
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = printed.read(&mut buffer) {
            let Ok(mut tail) = kept.lock() else { return };
            tail.extend(&buffer[..read]);
            let excess = tail.len().saturating_sub(PRINTED);
            tail.drain(..excess);
        }
    });
    (tail, reader)
}

#[cfg(unix)]
fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    let meaning = match status.signal() {
        None => return format!("it ended with {status}"),
        Some(4) => "illegal instruction: the library was built for another processor",
        Some(6) => "abort: the library gave up, or memory ran out",
        Some(7 | 10) => "bus error: the model file changed while it was read, or the disk failed",
        Some(8) => "arithmetic fault",
        Some(9) => "killed: most likely the system ran out of memory",
        Some(11) => "segmentation fault: a bug in the library that this model triggers",
        Some(_) => "stopped from outside",
    };
    format!("{status} ({meaning})")
}

#[cfg(not(unix))]
fn describe(status: ExitStatus) -> String {
    format!("it ended with {status}")
}
