//! A thread that writes log lines, so that a slow terminal or pipe does not block requests.
//!
//! Invariant: lines are written in the order in which they were logged, and none is lost until the
//! guard is dropped. The queue is bounded: when it is full, logging blocks.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

use super::target;

/// How long the guard waits for the queued lines to be written. A reader may have stopped reading
/// them.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval between two attempts of the guard to queue its message.
const FLUSH_RETRY_INTERVAL: Duration = Duration::from_millis(1);

enum LogMessage {
    Line(Vec<u8>),
    /// Asks for a reply on this channel once all lines before it are written.
    End(SyncSender<()>),
}

/// The sending end of the queue of lines.
pub(super) struct LineSender(SyncSender<LogMessage>);

/// The owner of the thread. Dropping it writes the queued lines.
pub(super) struct WriterGuard(SyncSender<LogMessage>);

/// Starts a thread that writes to `out`, with a queue of the given number of lines.
pub(super) fn start(
    out: impl Write + Send + 'static,
    waiting: usize,
) -> io::Result<(LineSender, WriterGuard)> {
    let (sender, receiver) = sync_channel(waiting);
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write(&receiver, out))?;
    Ok((LineSender(sender.clone()), WriterGuard(sender)))
}

/// Writes lines until it is asked to end. A line that cannot be written is dropped, since there is
/// no other place to report it.
fn write(lines: &Receiver<LogMessage>, mut out: impl Write) {
    while let Ok(message) = lines.recv() {
        match message {
            LogMessage::Line(mut line) => {
                target::publish(&mut line);
                drop(out.write_all(&line));
            }
            LogMessage::End(done) => {
                drop(out.flush());
                let _ = done.send(());
                return;
            }
        }
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        let until = Instant::now() + FLUSH_TIMEOUT;
        let (done, ended) = sync_channel(1);
        let mut message = LogMessage::End(done);
        while let Err(TrySendError::Full(again)) = self.0.try_send(message) {
            if Instant::now() >= until {
                return;
            }
            message = again;
            thread::sleep(FLUSH_RETRY_INTERVAL);
        }
        let _ = ended.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

impl<'a> MakeWriter<'a> for LineSender {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &LineSender {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let message = LogMessage::Line(line.to_vec());
        let ended = |_| io::Error::other("the log has ended");
        self.0.send(message).map(|()| line.len()).map_err(ended)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A writer whose output a test can read, and which blocks while the test holds the lock.
    #[derive(Clone, Default)]
    struct SharedOutput(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut seen = self.0.lock().expect("no test panics with it");
            seen.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_is_written_in_order_before_the_guard_is_gone() {
        let seen = SharedOutput::default();
        // The queue is much shorter than the number of lines: logging blocks, and no line is lost.
        let (lines, guard) = start(seen.clone(), 3).expect("a thread");
        for number in 0..1000 {
            writeln!(lines.make_writer(), "line {number}").expect("the thread writes");
        }
        drop(guard);
        let expected: Vec<String> = (0..1000).map(|number| format!("line {number}\n")).collect();
        let expected = expected.concat();
        let seen = seen.0.lock().expect("no test panics with it");
        assert_eq!(String::from_utf8_lossy(&seen), expected);
    }

    #[test]
    fn a_reader_that_stands_still_does_not_hold_up_the_end() {
        let seen = SharedOutput::default();
        let (lines, guard) = start(seen.clone(), 2).expect("a thread");
        let held = seen.0.lock().expect("no test panics with it");
        // One line that the thread is writing, and two in the queue.
        for _ in 0..3 {
            (&lines).write_all(b"line\n").expect("there is room");
        }
        let before = Instant::now();
        drop(guard);
        let took = before.elapsed();
        assert!(
            took >= FLUSH_TIMEOUT && took < 10 * FLUSH_TIMEOUT,
            "{took:?}"
        );
        drop(held);
    }

    #[test]
    fn a_line_after_the_end_is_refused_and_nothing_waits_for_it() {
        let (lines, guard) = start(SharedOutput::default(), 2).expect("a thread");
        drop(guard);
        // The thread has confirmed that it wrote everything, and closes its end of the channel at
        // once.
        let refused = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(10));
            (&lines).write_all(b"late\n").is_err()
        });
        assert!(refused);
    }
}
