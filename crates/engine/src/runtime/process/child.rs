//! The child's side of a process: confines itself, and reads requests until its parent exits.
//!
//! Invariant: the process ends when its parent does, even during a request.

use std::io::{self, BufReader, Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::sandbox::{self, Sandbox, SandboxPermissions};
use super::{FirstMessage, channel, frame};

/// Maximum time of an exit.
const EXIT_PATIENCE: Duration = Duration::from_secs(2);

/// Reads one request from the channel.
pub type Next<R> = fn(&mut dyn Read) -> io::Result<R>;

/// Receives the setup from the parent and confines this process. Returns the setup and the sandbox
/// in force, or the reason why the required confinement failed. `allowed` computes the permissions
/// while the process can still read everything.
///
/// Call this before [`requests`], and before reading untrusted data.
pub fn confined<S: DeserializeOwned>(
    allowed: impl FnOnce(&S) -> SandboxPermissions,
) -> io::Result<(S, Result<Sandbox, String>)> {
    let told: FirstMessage<S> = {
        let (mut from_parent, _) = channel::join()?;
        frame::receive(&mut from_parent)?
    };
    if told.gives_way {
        give_way();
    }
    let allowed = allowed(&told.setup);
    Ok((told.setup, sandbox::enter(told.mode, &allowed)))
}

/// Returns the requests of the parent at the other end of standard input, and the writer for
/// answers. The process exits when the parent is gone or sends an invalid request.
///
/// The answering thread also reads the requests: a switch to another thread would cost as much as a
/// run of a small model. Another thread only waits for the parent's end.
#[cfg(target_os = "linux")]
pub fn requests<R>(next: Next<R>) -> io::Result<(impl Iterator<Item = R>, impl Write)> {
    let (from_parent, to_parent) = channel::join()?;
    let line = from_parent.try_clone()?;
    std::thread::Builder::new()
        .name("parent".to_owned())
        .spawn(move || {
            channel::wait_for_end(&line);
            end()
        })?;
    let mut stream = BufReader::new(from_parent);
    let requests = std::iter::from_fn(move || Some(next(&mut stream).unwrap_or_else(|_| end())));
    Ok((requests, to_parent))
}

/// Returns the requests of the parent at the other end of standard input, and the writer for
/// answers. The process exits when the parent is gone or sends an invalid request.
///
/// A separate thread reads the requests, so that it notices the parent's end.
#[cfg(not(target_os = "linux"))]
pub fn requests<R: Send + 'static>(
    next: Next<R>,
) -> io::Result<(impl Iterator<Item = R>, impl Write)> {
    let (from_parent, to_parent) = channel::join()?;
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("requests".to_owned())
        .spawn(move || {
            let mut stream = BufReader::new(from_parent);
            while let Ok(asked) = next(&mut stream) {
                if sender.send(asked).is_err() {
                    break;
                }
            }
            end()
        })?;
    Ok((requests.into_iter(), to_parent))
}

fn end() -> ! {
    // At the exit, a library may wait forever for a thread that a run has left behind.
    let _ = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(EXIT_PATIENCE);
        std::process::abort()
    });
    std::process::exit(0)
}

/// Returns the message of a caught panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Lets all other processes go first: this one gets the processor time that they leave. Threads
/// that exist already are not affected. A system that refuses it shares its time equally.
#[cfg(target_os = "linux")]
fn give_way() {
    use thread_priority::ThreadPriority;
    use thread_priority::unix::{
        NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };
    // A thread of another process takes a processor from this one at once. A low priority alone
    // would make it wait sometimes.
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
}

#[cfg(all(unix, not(target_os = "linux")))]
fn give_way() {
    // The lowest priority that needs no permission.
    let _ = rustix::process::setpriority_process(None, 19);
}

#[cfg(not(unix))]
fn give_way() {}

/// Limits the memory of this process to `bytes`. A limit that cannot be set is ignored: the
/// parent's timeout and the system's limits remain.
///
/// On Linux, only memory that the process may write counts, not code of libraries, mapped model
/// files, or reserved address space. Elsewhere all of that counts.
#[cfg(unix)]
pub fn limit_memory(bytes: u64) {
    use nix::sys::resource::{Resource, setrlimit};
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const KIND: Resource = Resource::RLIMIT_DATA;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const KIND: Resource = Resource::RLIMIT_AS;
    let _ = setrlimit(KIND, bytes, bytes);
}

#[cfg(not(unix))]
pub fn limit_memory(_: u64) {}

/// Limits the memory that this process may allocate from now on to `bytes`. The next call replaces
/// the limit. Without information about current memory, nothing is limited and the parent's timeout
/// remains.
#[cfg(target_os = "linux")]
pub fn limit_further_memory(bytes: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((_, most)) = getrlimit(Resource::RLIMIT_DATA) else {
        return;
    };
    let limit = data_bytes().map_or(most, |has| has.saturating_add(bytes).min(most));
    let _ = setrlimit(Resource::RLIMIT_DATA, limit, most);
}

/// Does nothing on this system: the parent's timeout remains.
#[cfg(not(target_os = "linux"))]
pub fn limit_further_memory(_: u64) {}

/// Returns the bytes that currently count toward `RLIMIT_DATA`.
#[cfg(target_os = "linux")]
fn data_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kilobytes << 10)
}
