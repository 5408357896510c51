//! A process that works for this one: how it starts, is asked, and is ended from any thread, what is
//! left to say of it; and its own side, which confines itself and takes requests until its parent is gone.
//!
//! Invariant: a [`Process`] that is dropped has ended and was waited for; a [`Stopper`] never signals
//! another process, because the number of a process is free only after it was waited for, and the
//! handle that waits is the one that signals. Knows nothing of what is said through the channel.

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
use sandbox::{Allowed, Mode};
use serde::{Deserialize, Serialize};

pub use child::{Next, confined, limit_further_memory, limit_memory, panic_text, requests};

/// The argument that makes the binary a worker. What for stands in the argument after it; without one
/// it runs models.
pub const ARGUMENT: &str = "worker";

/// How much of what a worker prints is kept, in bytes.
const PRINTED: usize = 8 << 10;

/// How long a process that has closed its channel may take to end by itself. A dump of a large
/// process takes seconds.
const TO_END: Duration = Duration::from_secs(30);

/// Variables that a process gets of this one's environment, which may hold secrets: how memory is allocated, how many
/// threads there are, where libraries are, and on Windows what every program needs.
const VARIABLES: &[&str] = &[
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

/// Beginnings of the names of variables that drivers of devices look at.
const DEVICE_VARIABLES: &[&str] = &["ADSP_", "MESA_", "QNN_", "VK_"];

/// What a process is started for, besides its command.
pub struct Purpose<'a, S> {
    /// Told before anything else.
    pub setup: &'a S,
    /// What it may use, where the command that starts it confines it; elsewhere it works that out of `setup` itself.
    pub allowed: &'a dyn Fn() -> Allowed,
    /// Whether it may use devices, whose drivers look at variables of their own.
    pub devices: bool,
    /// The folder for its temporary files.
    pub scratch: Option<&'a Path>,
}

/// The first thing that a process is told.
#[derive(Debug, Serialize, Deserialize)]
struct Told<S> {
    mode: Mode,
    setup: S,
}

/// A running worker.
#[derive(Debug)]
pub struct Process {
    handle: Arc<Handle>,
    channel: BufReader<Channel>,
    /// The time limit that the channel has now.
    applied: Option<Duration>,
    printed: Arc<Mutex<VecDeque<u8>>>,
    reader: Option<JoinHandle<()>>,
}

/// Ends a worker's process from any thread; its owner then sees the end of the channel.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    id: u32,
    /// Held for single calls that do not block, never while waiting.
    child: Mutex<Child>,
    cut: Cut,
}

impl Process {
    /// Starts a command that calls [`confined`], in an environment of its own.
    pub fn start<S: Serialize>(mut command: Command, purpose: &Purpose<'_, S>) -> io::Result<Self> {
        clear_environment(&mut command, purpose.devices, purpose.scratch);
        let mode = Mode::chosen();
        if sandbox::IS_WRAPPED {
            command = sandbox::wrapped(command, mode, &(purpose.allowed)());
        }
        let mut process = Self::connect(&mut command)?;
        let told = Told {
            mode,
            setup: purpose.setup,
        };
        // If it has ended already, the first request will say how.
        let _ = frame::send(process.channel.get_mut(), &told);
        Ok(process)
    }

    fn connect(command: &mut Command) -> io::Result<Self> {
        let (mut child, channel, printed) = channel::connect(command)?;
        let cut = match Cut::of(&channel) {
            Ok(cut) => cut,
            Err(error) => {
                // Without a handle it would be left behind.
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

    /// The channel to it, with what was received of it and not read yet. Each wait for the process, to be read from or to take what is written, ends
    /// with an error after this time (on Unix).
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

    /// Ends it after an exchange through its channel failed, and tells why that failed; `None` if it
    /// took too long.
    pub fn end_after(&mut self, error: &io::Error) -> Option<String> {
        let reason = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => None,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Some(self.last_words()),
            io::ErrorKind::OutOfMemory => {
                Some("there is no memory for its outputs, and it was stopped".to_owned())
            }
            _ => Some(format!(
                "it gave an answer that cannot be read ({error}), and was stopped"
            )),
        };
        self.stop();
        reason
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.handle.id
    }

    /// What ends it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.handle))
    }

    /// How it ended, and the last line it printed. The channel is closed: it is about to end.
    fn last_words(&mut self) -> String {
        let ended = match self.handle.wait(TO_END) {
            Ok(Some(status)) => describe(status),
            Ok(None) => {
                self.stop();
                "it closed its channel without ending, and was stopped".to_owned()
            }
            Err(error) => format!("its end is unknown: {error}"),
        };
        if let Some(reader) = self.reader.take() {
            // A reader of a pipe whose writers are gone ends; a panic of it would lose only a hint.
            let _ = reader.join();
        }
        let printed = {
            let mut bytes = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(bytes.make_contiguous()).into_owned()
        };
        // What is added on how to see more of a panic, or why there is no more, is not for the user.
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

    /// Ends it and waits for its end.
    pub fn stop(&mut self) {
        self.handle.kill();
        let mut child = self.handle.lock();
        // A killed process ends: the wait is for the system alone.
        let _ = child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Stopper {
    /// Ends the process, if it has not ended yet.
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
        // It may have ended by itself, and then there is nothing to end: the standard library does
        // not signal a process that was waited for.
        let _ = self.lock().kill();
    }

    /// Waits for the end, leaving the process to others between looks.
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

/// Leaves a command the variables that were set for it, and those that are no secrets.
fn clear_environment(command: &mut Command, devices: bool, scratch: Option<&Path>) {
    let set: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    let is_passed = |name: &str| {
        VARIABLES.contains(&name)
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
