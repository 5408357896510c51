//! Reads the content of Git objects through a single `git cat-file` process.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::command::command;
use super::{GitError, Repository};

/// A process that returns the content of objects by id.
#[derive(Debug)]
pub struct GitBlobs {
    child: Child,
    ask: Option<ChildStdin>,
    answer: BufReader<ChildStdout>,
}

impl Repository {
    /// Starts the process.
    pub fn blobs(&self) -> Result<GitBlobs, GitError> {
        let mut child = command(self.top())?
            .args(["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(GitError::NoGit)?;
        let gone = || GitError::Io(io::ErrorKind::BrokenPipe.into());
        let ask = child.stdin.take().ok_or_else(gone)?;
        let answer = BufReader::new(child.stdout.take().ok_or_else(gone)?);
        Ok(GitBlobs {
            child,
            ask: Some(ask),
            answer,
        })
    }
}

impl GitBlobs {
    /// Returns the content of the file with this id if it has at most `limit` bytes, else its size.
    pub fn bytes(&mut self, id: &str, limit: u64) -> Result<Result<Vec<u8>, u64>, GitError> {
        let size = self.open(id)?;
        let mut bytes = Vec::new();
        if size > limit {
            self.rest(size, &mut io::sink())?;
            return Ok(Err(size));
        }
        self.rest(size, &mut bytes)?;
        Ok(Ok(bytes))
    }

    /// Writes the content of the file with this id to `out`.
    pub fn copy(&mut self, id: &str, out: &mut dyn Write) -> Result<u64, GitError> {
        let size = self.open(id)?;
        self.rest(size, out)?;
        Ok(size)
    }

    /// Requests an object and returns the size of the content that follows.
    fn open(&mut self, id: &str) -> Result<u64, GitError> {
        let missing = || GitError::NoObject(id.to_owned());
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(missing());
        }
        let ask = self.ask.as_mut().ok_or_else(missing)?;
        writeln!(ask, "{id}")?;
        ask.flush()?;
        let mut head = String::new();
        // The answer is `<id> blob <size>` or `<id> missing`.
        (&mut self.answer).take(256).read_line(&mut head)?;
        let words: Vec<&str> = head.split_ascii_whitespace().collect();
        match words[..] {
            [_, "blob", size] => size.parse().map_err(|_| missing()),
            _ => Err(missing()),
        }
    }

    fn rest(&mut self, size: u64, out: &mut dyn Write) -> Result<(), GitError> {
        let copied = io::copy(&mut (&mut self.answer).take(size), out)?;
        let mut end = [0];
        self.answer.read_exact(&mut end)?;
        if copied != size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(())
    }
}

impl Drop for GitBlobs {
    fn drop(&mut self) {
        drop(self.ask.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
