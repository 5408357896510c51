//! The last output of a child process, which explains how it ended.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum output that is kept, in bytes.
const KEPT_BYTES: usize = 8 << 10;

/// How long to wait for the last words of a process that has ended. Another process may hold its output.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lines about backtraces, which Rust adds to a panic. They are not for the user.
const ADDED_LINES: [&str; 2] = ["note: run with `RUST", "skipping backtrace printing"];

/// The last output of a child process.
#[derive(Debug)]
pub struct PrintedTail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    reader: JoinHandle<()>,
}

impl PrintedTail {
    /// Reads the output to its end, and keeps the last part.
    pub fn keep(mut printed: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = printed.read(&mut buffer) {
                let Ok(mut tail) = kept.lock() else { return };
                tail.extend(&buffer[..read]);
                let excess = tail.len().saturating_sub(KEPT_BYTES);
                tail.drain(..excess);
            }
        });
        Self { bytes, reader }
    }

    /// Returns the last line of a process that has ended.
    pub fn last_line(&mut self) -> Option<String> {
        let since = Instant::now();
        while !self.reader.is_finished() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(bytes.make_contiguous()).into_owned();
        let tells = |line: &&str| {
            !line.is_empty() && !ADDED_LINES.iter().any(|words| line.starts_with(words))
        };
        text.lines().map(str::trim).rfind(tells).map(str::to_owned)
    }

    /// Adds the last line to the description of an end.
    pub fn after(&mut self, ended: String) -> String {
        match self.last_line() {
            Some(line) => format!("{ended}; its last words: {line}"),
            None => ended,
        }
    }
}
