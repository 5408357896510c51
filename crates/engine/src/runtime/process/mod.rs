//! Child processes of this program: starting them, exchanging messages, ending them from any
//! thread, and describing how they ended.
//!
//! Workers (models) and parsers (untrusted input) are built on it. The module `child` is the
//! child's own side.
//!
//! Invariant: a dropped [`Process`] has ended and was waited for. A [`Stopper`] never signals
//! another process: the process id is reused only after the wait, and the waiting handle is the one
//! that signals. The module knows nothing of the messages.

pub mod attached;
mod channel;
mod child;
pub mod frame;
pub mod sandbox;

use std::collections::VecDeque;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use channel::{Channel, Cut};
use sandbox::{SandboxMode, SandboxPermissions};
use serde::{Deserialize, Serialize};

pub use child::{Next, confined, limit_further_memory, limit_memory, panic_text, requests};

/// The argument that starts the binary as a child process. The next argument names its work;
/// without one it runs models.
pub const WORKER_ARGUMENT: &str = "engine-process";

/// Maximum output of a child that is kept, in bytes.
const KEPT_OUTPUT_BYTES: usize = 8 << 10;

/// Maximum time for a process to end after it closed its channel. A core dump of a large process
/// takes seconds.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Environment variables that a child inherits; all others may hold secrets. They configure memory
/// allocation, threads and library paths, and on Windows what every program needs.
const INHERITED_VARIABLES: &[&str] = &[
    "DYLD_LIBRARY_PATH",
    "LD_LIBRARY_PATH",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "OMP_NUM_THREADS",
    "ORT_LOG",
    "PKGTOOL_CPU_FEATURES",
    "RAYON_NUM_THREADS",
    "TZ",
];
const WINDOWS_VARIABLES: &[&str] = &["PATH", "SystemRoot", "TEMP", "TMP", "windir"];

/// Prefixes of variables that drivers of devices read.
const DEVICE_VARIABLES: &[&str] = &["ADSP_", "MESA_", "QNN_", "VK_"];

/// The purpose and permissions of a child process.
pub struct Purpose<'a, S> {
    /// The setup, sent as the first message.
    pub setup: &'a S,
    /// Computes the permissions, if the starting command confines the process. Elsewhere the
    /// process computes them from `setup`.
    pub allowed: &'a dyn Fn() -> SandboxPermissions,
    /// `true` if it may use devices, whose drivers read variables of their own.
    pub devices: bool,
    /// Folder for its temporary files.
    pub scratch: Option<&'a Path>,
    /// `true` if it gets only the processor time that other processes leave.
    pub gives_way: bool,
}

/// The first message to a child process.
#[derive(Debug, Serialize, Deserialize)]
struct FirstMessage<S> {
    mode: SandboxMode,
    gives_way: bool,
    setup: S,
}

/// A running child process.
#[derive(Debug)]
pub struct Process {
    handle: Arc<Handle>,
    channel: BufReader<Channel>,
    /// The current timeout of the channel.
    applied: Option<Duration>,
    printed: Arc<Mutex<VecDeque<u8>>>,
    reader: Option<JoinHandle<()>>,
}

/// Ends a child process from any thread; its owner then sees the end of the channel.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    id: u32,
    /// Locked only for calls that do not block.
    child: Mutex<Child>,
    cut: Cut,
}

impl Process {
    /// Starts a command that calls [`confined`], with a reduced environment.
    pub fn start<S: Serialize>(mut command: Command, purpose: &Purpose<'_, S>) -> io::Result<Self> {
        clear_environment(&mut command, purpose.devices, purpose.scratch);
        let mode = SandboxMode::chosen();
        if sandbox::IS_WRAPPED {
            command = sandbox::wrapped(command, mode, &(purpose.allowed)());
        }
        let mut process = Self::connect(&mut command)?;
        let told = FirstMessage {
            mode,
            gives_way: purpose.gives_way,
            setup: purpose.setup,
        };
        // If it has ended already, the first request reports how.
        let _ = frame::send(process.channel.get_mut(), &told);
        Ok(process)
    }

    fn connect(command: &mut Command) -> io::Result<Self> {
        let (mut child, channel, printed) = channel::connect(command)?;
        let cut = match Cut::of(&channel) {
            Ok(cut) => cut,
            Err(error) => {
                // Without a handle the process would be orphaned.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let (printed, reader) = keep_tail(printed);
        let handle = Handle {
            id: child.id(),
            child: Mutex::new(child),
            cut,
        };
        Ok(Self {
            handle: Arc::new(handle),
            channel: BufReader::new(channel),
            applied: None,
            printed,
            reader: Some(reader),
        })
    }

    /// Returns the channel, with received bytes that are not read yet. Each read and write fails
    /// after the timeout (on Unix).
    pub fn channel(
        &mut self,
        limit: Option<Duration>,
    ) -> io::Result<&mut BufReader<impl Read + Write>> {
        if self.applied != limit {
            channel::set_time_limit(self.channel.get_ref(), limit)?;
            self.applied = limit;
        }
        Ok(&mut self.channel)
    }

    /// Ends the process after a failed exchange, and returns the reason of the failure; `None` for
    /// a timeout.
    pub fn end_after(&mut self, error: &io::Error) -> Option<String> {
        let reason = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => None,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Some(self.describe_end()),
            io::ErrorKind::OutOfMemory => {
                Some("not enough memory for its outputs, so it was stopped".to_owned())
            }
            _ => Some(format!(
                "it returned an invalid answer ({error}), so it was stopped"
            )),
        };
        self.stop();
        reason
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.handle.id
    }

    /// Returns a handle that ends the process from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.handle))
    }

    /// Describes how the process ended, with the last line it printed. The channel is closed, so
    /// the process is about to end.
    fn describe_end(&mut self) -> String {
        let ended = match self.handle.wait(EXIT_TIMEOUT) {
            Ok(Some(status)) => describe(status),
            Ok(None) => {
                self.stop();
                "it closed its channel without exiting, so it was stopped".to_owned()
            }
            Err(error) => format!("its exit status is unknown: {error}"),
        };
        if let Some(reader) = self.reader.take() {
            // The reader ends when the pipe's writers are gone. A panic of it would lose only a
            // hint.
            let _ = reader.join();
        }
        let printed = {
            let mut bytes = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(bytes.make_contiguous()).into_owned()
        };
        // Lines about backtraces, which Rust adds to a panic, are not for the user.
        let adds = ["note: run with `RUST", "skipping backtrace printing"];
        let tells = |line: &&str| {
            let line = line.trim();
            !line.is_empty() && !adds.iter().any(|words| line.starts_with(words))
        };
        match printed.lines().rfind(tells) {
            Some(line) => format!("{ended}; its last words: {}", line.trim()),
            None => ended,
        }
    }

    /// Ends the process and waits for it.
    pub fn stop(&mut self) {
        self.handle.kill();
        let mut child = self.handle.lock();
        // A killed process ends soon.
        let _ = child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Stopper {
    /// Ends the process, unless it has ended already.
    pub fn stop(&self) {
        self.0.kill();
        self.0.cut.cut();
    }
}

impl Handle {
    fn lock(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self) {
        // It may have ended by itself. The standard library does not signal a process that was
        // waited for.
        let _ = self.lock().kill();
    }

    /// Waits for the end; releases the lock between checks.
    fn wait(&self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            if let Some(status) = self.lock().try_wait()? {
                return Ok(Some(status));
            }
            if start.elapsed() > limit {
                return Ok(None);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

/// Removes all variables from a command's environment, except those set for it and those that hold
/// no secrets.
fn clear_environment(command: &mut Command, devices: bool, scratch: Option<&Path>) {
    let set: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    let is_passed = |name: &str| {
        INHERITED_VARIABLES.contains(&name)
            || cfg!(windows)
                && WINDOWS_VARIABLES
                    .iter()
                    .any(|it| it.eq_ignore_ascii_case(name))
            || devices && DEVICE_VARIABLES.iter().any(|start| name.starts_with(start))
    };
    let passed = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed));
    command.env_clear().envs(passed).envs(set);
    if let Some(scratch) = scratch {
        command.env("TMPDIR", scratch);
    }
}

/// Reads the output of a child to its end and keeps the last [`KEPT_OUTPUT_BYTES`] bytes.
fn keep_tail(mut printed: Box<dyn Read + Send>) -> (Arc<Mutex<VecDeque<u8>>>, JoinHandle<()>) {
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let kept = Arc::clone(&tail);
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = printed.read(&mut buffer) {
            let Ok(mut tail) = kept.lock() else { return };
            tail.extend(&buffer[..read]);
            let excess = tail.len().saturating_sub(KEPT_OUTPUT_BYTES);
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
        Some(6) => "abort: the library detected an error, or memory ran out",
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
