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
mod tail;
#[cfg(unix)]
pub mod wire;

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use channel::{Channel, Cut};
use sandbox::{SandboxMode, SandboxPermissions};
use serde::{Deserialize, Serialize};
pub use tail::PrintedTail;

pub use child::{Next, confined, limit_further_memory, limit_memory, panic_text, requests};

/// The argument that starts the binary as a child process. The next argument names its work;
/// without one it runs models.
pub const WORKER_ARGUMENT: &str = "engine-process";

/// Maximum time for a process to end after it closed its channel. A core dump of a large process
/// takes seconds.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for the program of a lost connection to say why.
#[cfg(unix)]
const LOST_TIMEOUT: Duration = Duration::from_secs(1);

/// Environment variable with the program that runs this binary, and its arguments, where the system cannot: an
/// emulator.
pub const RUNNER_VARIABLE: &str = "PKGTOOL_RUNNER";

/// Environment variable with the time at which a command was made for this binary, in nanoseconds since 1970.
pub const STARTED_VARIABLE: &str = "PKGTOOL_STARTED";

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

/// Returns the command that starts the binary at a path. The process finds the present time in a variable.
pub fn command_of(program: &Path) -> Command {
    let runner = std::env::var(RUNNER_VARIABLE).unwrap_or_default();
    let mut words = runner.split_whitespace();
    let mut command = match words.next() {
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(program);
            command
        }
        None => Command::new(program),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos().to_string();
    command.env(STARTED_VARIABLE, now);
    command
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
    printed: PrintedTail,
    /// Where it runs, unless it runs on this machine.
    #[cfg(unix)]
    elsewhere: Option<Elsewhere>,
}

/// A process on another machine.
#[cfg(unix)]
#[derive(Debug)]
struct Elsewhere {
    /// Name of the machine.
    machine: String,
    /// How the process ended, as its agent told.
    end: wire::WireEnd,
}

/// Ends a child process from any thread; its owner then sees the end of the channel.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    id: u32,
    /// Locked only for calls that do not block.
    child: Arc<Mutex<Child>>,
    cut: Cut,
}

impl Process {
    /// Starts a command that calls [`confined`], with a reduced environment.
    pub fn start<S: Serialize>(mut command: Command, purpose: &Purpose<'_, S>) -> io::Result<Self> {
        clear_environment(&mut command, purpose.devices, purpose.scratch);
        if sandbox::IS_WRAPPED {
            let allowed = (purpose.allowed)();
            command = sandbox::wrapped(command, SandboxMode::chosen(), &allowed);
        }
        let mut process = Self::connect(&mut command)?;
        process.begin(purpose.setup, purpose.gives_way);
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
        let handle = Handle {
            id: child.id(),
            child: Arc::new(Mutex::new(child)),
            cut,
        };
        Ok(Self {
            handle: Arc::new(handle),
            channel: BufReader::new(channel),
            applied: None,
            printed: PrintedTail::keep(printed),
            #[cfg(unix)]
            elsewhere: None,
        })
    }

    /// Takes over a program that is connected with an agent on another machine, whose first line was read.
    #[cfg(unix)]
    pub fn of_agent(mut program: Child, printed: PrintedTail, machine: String) -> io::Result<Self> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (to_agent, from_agent) = (program.stdin.take(), program.stdout.take());
        let id = program.id();
        let program = Arc::new(Mutex::new(program));
        let (end, held) = (wire::WireEnd::default(), Arc::clone(&program));
        let give_up = move || {
            let _ = held.lock().unwrap_or_else(PoisonError::into_inner).kill();
        };
        let channel = wire::connect_agent(
            to_agent.ok_or_else(gone)?,
            from_agent.ok_or_else(gone)?,
            end.clone(),
            give_up,
        )?;
        let handle = Handle {
            id,
            cut: Cut::of(&channel)?,
            child: program,
        };
        Ok(Self {
            handle: Arc::new(handle),
            channel: BufReader::new(channel),
            applied: None,
            printed,
            elsewhere: Some(Elsewhere { machine, end }),
        })
    }

    /// Sends the first message.
    pub fn begin<S: Serialize>(&mut self, setup: &S, gives_way: bool) {
        let told = FirstMessage {
            mode: SandboxMode::chosen(),
            gives_way,
            setup,
        };
        // If it has ended already, the first request reports how.
        let _ = frame::send(self.channel.get_mut(), &told);
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

    /// Returns whether it runs on another machine that did not tell how it ended.
    pub fn is_connection_lost(&self) -> bool {
        #[cfg(unix)]
        return self
            .elsewhere
            .as_ref()
            .is_some_and(|it| !matches!(it.end.get(), Some(wire::End::Told(_))));
        #[cfg(not(unix))]
        false
    }

    /// Describes how the process ended, with the last line it printed. The channel is closed, so
    /// the process is about to end.
    fn describe_end(&mut self) -> String {
        #[cfg(unix)]
        if let Some(Elsewhere { machine, end }) = &self.elsewhere {
            let lost = match end.get() {
                Some(wire::End::Told(told)) => return told,
                Some(wire::End::Silence) => format!(
                    "{machine} gave no sign of life for {} seconds",
                    wire::CALLER_PATIENCE.as_secs()
                ),
                None => format!("the connection to {machine} ended"),
            };
            // It ends by itself now, or never.
            let _ = self.handle.wait(LOST_TIMEOUT);
            self.handle.kill();
            return self.printed.after(lost);
        }
        let ended = match self.handle.wait(EXIT_TIMEOUT) {
            Ok(Some(status)) => describe(status),
            Ok(None) => {
                self.stop();
                "it closed its channel without exiting, so it was stopped".to_owned()
            }
            Err(error) => format!("its exit status is unknown: {error}"),
        };
        self.printed.after(ended)
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

/// Runs a command with its standard input connected to a channel, until its end. Returns how it ended, with its id.
#[cfg(unix)]
pub fn run_in_channel(
    mut command: Command,
    channel: std::os::unix::net::UnixStream,
) -> io::Result<(u32, String)> {
    let (printed, print) = io::pipe()?;
    let child = command
        .stdin(std::process::Stdio::from(std::os::fd::OwnedFd::from(
            channel,
        )))
        .stdout(print.try_clone()?)
        .stderr(print)
        .spawn()?;
    // It holds the ends of the channel and of the pipe.
    drop(command);
    let mut printed = PrintedTail::keep(printed);
    let id = child.id();
    let mut child = child;
    let status = child.wait()?;
    Ok((id, printed.after(describe(status))))
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
