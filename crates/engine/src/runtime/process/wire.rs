//! The wire between this program and its agent on a device: the standard input and output of a program such as `ssh`.
//!
//! Bytes travel in pieces. Between them each side says that it is still there, so that the other one notices a cable that
//! was pulled. On both sides two threads connect the wire with one end of a socket pair; whoever holds the other end
//! uses it like the channel of a local process.
//!
//! Invariant: a side that hears nothing for a while ends. A length is checked before memory is allocated for it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The beginning of the line that an agent sends first. Its version follows. A shell may print other lines before.
pub const START_LINE: &str = "pkgtool agent ";

/// Interval at which a side says that it is there.
const SIGN_INTERVAL: Duration = Duration::from_secs(2);
/// How long a caller waits for a sign of the agent, and an agent for one of its caller.
pub(super) const CALLER_PATIENCE: Duration = Duration::from_secs(20);
const AGENT_PATIENCE: Duration = Duration::from_mins(1);

/// Maximum size of a piece, in bytes.
const MAX_PIECE_BYTES: usize = 64 << 10;
/// Size of the kind and the length before a piece, in bytes.
const HEAD_BYTES: usize = 5;

/// The kind of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceKind {
    /// Bytes of the channel.
    Data = 0,
    /// A sign of life.
    Sign = 1,
    /// How the process at the other end ended, in words.
    End = 2,
}

impl PieceKind {
    fn of(byte: u8) -> io::Result<Self> {
        match byte {
            0 => Ok(Self::Data),
            1 => Ok(Self::Sign),
            2 => Ok(Self::End),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// How a wire ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The agent told how its process ended.
    Told(String),
    /// The agent gave no sign of life.
    Silence,
}

/// How a wire ended, if it is known.
#[derive(Debug, Clone, Default)]
pub(super) struct WireEnd(Arc<Mutex<Option<End>>>);

impl WireEnd {
    /// Records the first end.
    fn set(&self, end: End) {
        lock(&self.0).get_or_insert(end);
    }

    pub(super) fn get(&self) -> Option<End> {
        lock(&self.0).clone()
    }
}

/// Connects a channel with an agent. Call it after the agent's first line was read. `end` gets how it ends.
/// `give_up` is called when the agent gives no sign of life.
pub(super) fn connect_agent(
    mut to_agent: impl Write + Send + 'static,
    mut from_agent: impl Read + AsFd + Send + 'static,
    end: WireEnd,
    give_up: impl FnOnce() + Send + 'static,
) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let outgoing = theirs.try_clone()?;
    spawn("to the agent", move || {
        // The reader reports the reason.
        let _ = send_pieces(&outgoing, |kind, bytes| {
            write_piece(&mut to_agent, kind, bytes)
        });
    })?;
    spawn("from the agent", move || {
        let told = |reason| end.set(End::Told(reason));
        if let Err(error) = receive_pieces(&mut from_agent, &theirs, CALLER_PATIENCE, told) {
            if error.kind() == io::ErrorKind::TimedOut {
                end.set(End::Silence);
            }
            give_up();
        }
        let _ = theirs.shutdown(Shutdown::Both);
    })?;
    Ok(ours)
}

/// The wire to the caller, on the device.
pub struct CallerWire {
    output: Arc<Mutex<File>>,
    sender: JoinHandle<()>,
}

/// Answers on standard input and output: prints the first line, and connects a channel with the caller. The process
/// ends when the caller is gone.
pub fn connect_caller(version: &str) -> io::Result<(UnixStream, CallerWire)> {
    // Without the buffers of the standard library, which hide what has arrived.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let output = Arc::new(Mutex::new(output));
    {
        let mut output = lock(&output);
        // A prompt or a message of the shell may have begun the line.
        write!(output, "\n{START_LINE}{version}\n")?;
        output.flush()?;
    }
    let (ours, theirs) = UnixStream::pair()?;
    let incoming = theirs.try_clone()?;
    spawn("from the caller", move || {
        let received = receive_pieces(&mut input, &incoming, AGENT_PATIENCE, drop);
        let is_silent = received.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        // The worker sees the end, and so does the agent.
        let _ = incoming.shutdown(Shutdown::Both);
        // A worker in the middle of a run may not see it.
        std::thread::sleep(if is_silent {
            Duration::ZERO
        } else {
            Duration::from_secs(1)
        });
        std::process::exit(0);
    })?;
    let own = Arc::clone(&output);
    let sender = spawn("to the caller", move || {
        // The receiver ends the process if the caller is gone.
        let _ = send_pieces(&theirs, |kind, bytes| {
            write_piece(&mut *lock(&own), kind, bytes)
        });
    })?;
    Ok((ours, CallerWire { output, sender }))
}

impl CallerWire {
    /// Sends what is left in the channel, and then how the process at its other end ended.
    pub fn end(self, reason: &str) {
        // A sender that panicked sent nothing more.
        let _ = self.sender.join();
        // If the caller is gone, nobody wants to know.
        let _ = write_piece(&mut *lock(&self.output), PieceKind::End, reason.as_bytes());
    }
}

/// Sends the bytes of a channel until its end, and a sign of life when there are none for a while.
fn send_pieces(
    mut channel: &UnixStream,
    mut send: impl FnMut(PieceKind, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    channel.set_read_timeout(Some(SIGN_INTERVAL))?;
    let mut buffer = vec![0; MAX_PIECE_BYTES];
    loop {
        match channel.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => send(PieceKind::Data, &buffer[..count])?,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => send(PieceKind::Sign, &[])?,
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
}

/// Receives pieces until the stream ends, and writes their bytes to the channel. Fails with
/// [`io::ErrorKind::TimedOut`] if none comes for so long.
fn receive_pieces(
    stream: &mut (impl Read + AsFd),
    mut channel: &UnixStream,
    patience: Duration,
    mut ended: impl FnMut(String),
) -> io::Result<()> {
    let mut buffer = vec![0; MAX_PIECE_BYTES];
    loop {
        let mut head = [0; HEAD_BYTES];
        if !read_or_end(stream, &mut head, patience)? {
            return Ok(());
        }
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        let piece = buffer.get_mut(..length);
        let piece = piece.ok_or(io::ErrorKind::InvalidData)?;
        if !read_or_end(stream, piece, patience)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match PieceKind::of(kind)? {
            PieceKind::Data => channel.write_all(piece)?,
            PieceKind::Sign => {}
            PieceKind::End => ended(String::from_utf8_lossy(piece).into_owned()),
        }
    }
}

/// Fills a buffer; each wait lasts at most so long. Returns `false` if the stream ends before the first byte.
fn read_or_end(
    stream: &mut (impl Read + AsFd),
    buffer: &mut [u8],
    patience: Duration,
) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        if !wait_readable(stream, patience)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Waits until a stream has bytes or ends. Returns `false` after so long.
pub fn wait_readable(stream: &impl AsFd, patience: Duration) -> io::Result<bool> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut streams = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
        match poll(&mut streams, left) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn write_piece(stream: &mut impl Write, kind: PieceKind, bytes: &[u8]) -> io::Result<()> {
    let bytes = &bytes[..bytes.len().min(MAX_PIECE_BYTES)];
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut head = [kind as u8; HEAD_BYTES];
    head[1..].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&head)?;
    stream.write_all(bytes)?;
    stream.flush()
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
