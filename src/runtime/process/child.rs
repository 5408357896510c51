//! The side of a process that works for another one: takes requests until its parent is gone.
//!
//! Invariant: the process ends when its parent does, even in the middle of its work.

use std::io::{self, BufReader, Read, Write};

use serde::de::DeserializeOwned;

use super::sandbox::{self, Allowed, Sandbox};
use super::{Told, channel, frame};

/// Reads one request from the channel.
pub type Next<R> = fn(&mut dyn Read) -> io::Result<R>;

/// What the parent told first, and what confines this process since: an error says why it is not confined as the parent
/// demands. `allowed` works out what it may use, while it can still look at everything.
///
/// To be called before [`requests`], and before anything of others is read.
pub fn confined<S: DeserializeOwned>(
    allowed: impl FnOnce(&S) -> Allowed,
) -> io::Result<(S, Result<Sandbox, String>)> {
    let told: Told<S> = {
        let (mut from_parent, _) = channel::join()?;
        frame::receive(&mut from_parent)?
    };
    let allowed = allowed(&told.setup);
    Ok((told.setup, sandbox::enter(told.mode, &allowed)))
}

/// What the parent at the other end of standard input asks, and where answers go. Once the parent is
/// gone, or talks nonsense, the process ends: whatever it does is of no use to anybody.
///
/// Requests are read by the thread that answers: a hop to another thread would cost as much as a small
/// model's run. Another thread only waits for the parent's end.
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

/// What the parent at the other end of standard input asks, and where answers go. Once the parent is
/// gone, or talks nonsense, the process ends: whatever it does is of no use to anybody.
///
/// Requests are read by a thread that so also sees the parent's end.
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
    std::process::exit(0)
}

/// What a panic that was caught says.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Holds the memory of this process to `bytes`. A limit that cannot be set is none: the parent's time
/// limit and the system remain.
///
/// On Linux what the process has written or may write counts, and neither the code of libraries, nor
/// mapped model files, nor address space that is only reserved. Elsewhere all of that does.
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

/// Limits the memory that this process may take from now on to `bytes`. The next call sets another
/// limit. Where the system does not tell what the process has, nothing is limited, and the parent's time
/// limit remains.
#[cfg(target_os = "linux")]
pub fn limit_further_memory(bytes: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((_, most)) = getrlimit(Resource::RLIMIT_DATA) else {
        return;
    };
    let limit = data_bytes().map_or(most, |has| has.saturating_add(bytes).min(most));
    let _ = setrlimit(Resource::RLIMIT_DATA, limit, most);
}

/// Limits nothing: the parent's time limit remains.
#[cfg(not(target_os = "linux"))]
pub fn limit_further_memory(_: u64) {}

/// Bytes that count for `RLIMIT_DATA` now.
#[cfg(target_os = "linux")]
fn data_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kilobytes << 10)
}
