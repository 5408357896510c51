//! The client of the parser processes: sends jobs on behalf of a caller.
//!
//! Invariant: a job takes no longer than its limit, and the wait for a process no longer than
//! [`MAX_WAIT`].

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::WORK;
use super::cancel::Cancel;
use super::error::ParserError;
use super::job::{Done, JobLimits, ParserJob};
use super::pool::{ParserPool, PooledProcess};
use super::protocol::{self, AnswerHead, JobHead};
use crate::runtime::process::sandbox::SandboxPermissions;
use crate::runtime::process::{self, Process, Purpose, frame};
use crate::tensor::limit::{format_bytes, reports_shortage};

/// Maximum number of processes.
const MAX_PROCESSES: usize = 4;

/// Maximum wait for a process.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Environment variables for glibc's allocator: freed large blocks return to the system, so that a
/// process that decoded a large image does not retain its memory.
const ALLOCATOR_VARIABLES: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "1048576"),
    ("MALLOC_TRIM_THRESHOLD_", "4194304"),
    ("MALLOC_ARENA_MAX", "2"),
];

/// The parser processes. One instance per program is enough; all threads share it.
#[derive(Debug)]
pub struct Parsers {
    program: PathBuf,
    gives_way: bool,
    pool: ParserPool,
}

/// A client for one request of a caller. Clones belong to the same request.
#[derive(Debug, Clone)]
pub struct ParserClient {
    parsers: Arc<Parsers>,
    caller: i64,
    cancel: Arc<Cancel>,
}

/// A failed exchange with a process.
struct ExchangeError {
    sending: bool,
    error: io::Error,
}

/// The result of an exchange.
enum ExchangeResult {
    Done(Done),
    Failed(ParserError),
}

impl Parsers {
    /// Creates the parsers for the pkgtool binary at `program`. The first job starts the first
    /// process.
    pub fn new(program: PathBuf) -> Arc<Self> {
        Self::with_priority(program, false)
    }

    /// Returns parsers whose processes get only the processor time that others leave.
    #[must_use]
    pub fn in_background(&self) -> Arc<Self> {
        Self::with_priority(self.program.clone(), true)
    }

    fn with_priority(program: PathBuf, gives_way: bool) -> Arc<Self> {
        let processors = std::thread::available_parallelism();
        let processors = processors.map_or(1, std::num::NonZeroUsize::get);
        Arc::new(Self {
            program,
            gives_way,
            pool: ParserPool::new(processors.clamp(2, MAX_PROCESSES)),
        })
    }

    /// Returns a client for one request; `caller` identifies the caller among others.
    pub fn client(self: &Arc<Self>, caller: i64) -> ParserClient {
        ParserClient {
            parsers: Arc::clone(self),
            caller,
            cancel: Arc::default(),
        }
    }

    /// Returns the number of waiting and of running jobs.
    pub fn activity(&self) -> (usize, usize) {
        self.pool.activity()
    }

    fn start(&self) -> Result<PooledProcess, ParserError> {
        let mut command = process::command_of(&self.program);
        command
            .args([process::WORKER_ARGUMENT, WORK])
            .envs(ALLOCATOR_VARIABLES);
        let purpose = Purpose {
            setup: &(),
            allowed: &SandboxPermissions::default,
            devices: false,
            scratch: None,
            gives_way: self.gives_way,
        };
        let process = Process::start(command, &purpose);
        process
            .map(PooledProcess::new)
            .map_err(|error| ParserError::Start(error.to_string()))
    }
}

impl ParserClient {
    /// Returns a client for another request of the same caller.
    #[must_use]
    pub fn new_request(&self) -> Self {
        self.parsers.client(self.caller)
    }

    /// Cancels the running job and all later jobs of the request.
    pub fn cancel(&self) {
        self.cancel.cancel();
        self.parsers.pool.wake();
    }

    /// Does a job.
    pub fn ask(&self, job: &ParserJob<'_>) -> Result<Done, ParserError> {
        let content = job.content.as_ref().map(|content| content.id);
        let until = Instant::now() + MAX_WAIT;
        let is_cancelled = || self.cancel.is_cancelled();
        let pool = &self.parsers.pool;
        let mut lent = pool.lend(self.caller, content, until, is_cancelled)?;
        let mut seat = match lent.take() {
            Some(seat) => seat,
            None => self.parsers.start()?,
        };
        let mut outcome = self.exchange(&mut seat, job);
        if outcome.as_ref().is_err_and(ExchangeError::before_asking) && !is_cancelled() {
            // The process ended while it was idle.
            seat = self.parsers.start()?;
            outcome = self.exchange(&mut seat, job);
        }
        match outcome {
            // The process may have been stopped a moment after it answered.
            _ if is_cancelled() => Err(ParserError::Cancelled),
            Ok(exchanged) => {
                lent.return_to_pool(seat);
                match exchanged {
                    ExchangeResult::Done(done) => Ok(done),
                    ExchangeResult::Failed(error) => Err(error),
                }
            }
            Err(broken) => Err(ended(&mut seat.process, job, &broken.error)),
        }
    }

    fn exchange(
        &self,
        seat: &mut PooledProcess,
        job: &ParserJob<'_>,
    ) -> Result<ExchangeResult, ExchangeError> {
        if !self.cancel.begin(seat.process.stopper()) {
            return Ok(ExchangeResult::Failed(ParserError::Cancelled));
        }
        let outcome = exchange(seat, job);
        self.cancel.end();
        outcome
    }
}

impl ParserJob<'_> {
    /// Returns the limits of the job, including those for reading its content.
    fn total_limits(&self) -> JobLimits {
        let content = self.content.as_ref().map(|content| content.limits);
        content.map_or(self.limits, |content| JobLimits {
            memory: self.limits.memory.saturating_add(content.memory),
            time: self.limits.time + content.time,
        })
    }
}

impl ExchangeError {
    /// Returns `true` if the process had ended before the job was sent.
    fn before_asking(&self) -> bool {
        let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        self.sending && gone.contains(&self.error.kind())
    }
}

/// Sends the job without the content first: usually the process has it.
fn exchange(
    seat: &mut PooledProcess,
    job: &ParserJob<'_>,
) -> Result<ExchangeResult, ExchangeError> {
    let (answered, done) = send(&mut seat.process, job, None)?;
    let AnswerHead::Unknown = answered else {
        return Ok(exchange_result(answered, done));
    };
    let Some(content) = &job.content else {
        let reason = "it requested a content that the job lacks".to_owned();
        return Ok(ExchangeResult::Failed(ParserError::Died(reason)));
    };
    let bytes = match (content.bytes)() {
        Ok(bytes) => bytes,
        Err(error) => {
            let error = ParserError::Content(error.to_string());
            return Ok(ExchangeResult::Failed(error));
        }
    };
    let (answered, done) = send(&mut seat.process, job, Some(&bytes))?;
    seat.keeps(content.id);
    Ok(exchange_result(answered, done))
}

fn exchange_result(answered: AnswerHead, done: Done) -> ExchangeResult {
    match answered {
        AnswerHead::Done { .. } => ExchangeResult::Done(done),
        AnswerHead::Panicked(message) => ExchangeResult::Failed(ParserError::Panicked(message)),
        AnswerHead::Unknown => {
            let reason = "it lost the content that it was sent".to_owned();
            ExchangeResult::Failed(ParserError::Died(reason))
        }
    }
}

fn send(
    process: &mut Process,
    job: &ParserJob<'_>,
    content: Option<&[u8]>,
) -> Result<(AnswerHead, Done), ExchangeError> {
    let broken = |sending| move |error| ExchangeError { sending, error };
    let limits = match content {
        Some(_) => job.total_limits(),
        None => job.limits,
    };
    let channel = process.channel(Some(limits.time));
    let channel = channel.map_err(broken(false))?;
    let head = JobHead {
        work: job.work.into(),
        id: job.content.as_ref().map(|content| content.id),
        ask: job.ask.len(),
        content: content.map(<[u8]>::len),
        payload: job.payload.len(),
        memory: limits.memory,
    };
    let parts = [job.ask.as_slice(), content.unwrap_or_default(), job.payload];
    frame::send_with(channel.get_mut(), &head, parts).map_err(broken(true))?;
    let mut done = Done {
        head: Vec::new(),
        payload: Vec::new(),
    };
    let answered = frame::receive(channel).map_err(broken(false))?;
    if let AnswerHead::Done { head, payload } = answered {
        done.head = protocol::receive_answer_part(channel, head).map_err(broken(false))?;
        done.payload = protocol::receive_answer_part(channel, payload).map_err(broken(false))?;
    }
    Ok((answered, done))
}

/// Ends a process whose exchange failed, and returns the reason.
fn ended(process: &mut Process, job: &ParserJob<'_>, error: &io::Error) -> ParserError {
    match process.end_after(error) {
        None => ParserError::Limit(format!(
            "the time limit of {} s",
            job.limits.time.as_secs_f64()
        )),
        Some(reason) if reports_shortage(&reason) => {
            let memory = format_bytes(job.limits.memory);
            ParserError::Limit(format!("the memory limit of {memory}"))
        }
        Some(reason) => ParserError::Died(reason),
    }
}
