//! A shell on a device: commands that prepare it, files that are sent through it, and the agent that takes its place.
//!
//! Invariant: nothing is sent before the shell has answered what was sent before. Shells may read more of their input
//! than the command at its beginning.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::address::DeviceAddress;
use super::error::DeviceError;
use crate::runtime::process::wire::{START_LINE, wait_readable};
use crate::runtime::process::{PrintedTail, Process};

/// How long a shell may take for a command, and its connection to begin.
const COMMAND_PATIENCE: Duration = Duration::from_mins(1);
/// How long a device may take no byte of a file.
const SEND_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum output of a command, in bytes.
const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// Bytes that a pipe takes at once when it has room.
const PIECE_BYTES: usize = 4096;

/// Lines around the output of a command.
const BEGIN: &str = "pkgtool begin";
const END: &str = "pkgtool end";

/// A shell on a device.
pub(super) struct DeviceShell {
    address: DeviceAddress,
    program: Program,
    printed: PrintedTail,
}

/// The program that gives the shell. It ends when this is dropped.
struct Program(Option<Child>);

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Program {
    fn input(&mut self) -> io::Result<&mut ChildStdin> {
        let input = self.0.as_mut().and_then(|child| child.stdin.as_mut());
        input.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    fn output(&mut self) -> io::Result<&mut ChildStdout> {
        let output = self.0.as_mut().and_then(|child| child.stdout.as_mut());
        output.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    fn close_input(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.stdin.take());
        }
    }

    /// Waits for its end. Returns whether it succeeded.
    fn succeeds(&mut self) -> bool {
        let ended = self.0.as_mut().map(Child::wait);
        ended.is_some_and(|ended| ended.is_ok_and(|status| status.success()))
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
        }
    }
}

impl DeviceShell {
    /// Opens a shell.
    pub(super) fn open(address: &DeviceAddress) -> Result<Self, DeviceError> {
        let unreachable = |reason: String| DeviceError::Unreachable {
            device: address.to_string(),
            reason,
            help: address.help(),
        };
        let command = address.shell();
        let mut command = command.ok_or_else(|| unreachable("it is this machine".to_owned()))?;
        let name = command.get_program().to_string_lossy().into_owned();
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut program = spawned.map_err(|error| unreachable(format!("`{name}`: {error}")))?;
        let printed = program.stderr.take();
        let printed = printed.ok_or_else(|| unreachable("no standard error".to_owned()))?;
        Ok(Self {
            address: address.clone(),
            program: Program(Some(program)),
            printed: PrintedTail::keep(printed),
        })
    }

    /// Runs a command. Returns the lines that it printed.
    pub(super) fn run(
        &mut self,
        doing: &'static str,
        command: &str,
    ) -> Result<Vec<String>, DeviceError> {
        // The words are in quotes, so that a terminal that repeats the line does not show them.
        let line = format!(
            "echo; echo 'pkgtool' begin; {{ {command}; }} </dev/null 2>&1; status=$?; echo; echo 'pkgtool' end $status\n"
        );
        let until = Instant::now() + COMMAND_PATIENCE;
        self.write(line.as_bytes())
            .map_err(|error| self.lost(doing, &error))?;
        let mut lines = Vec::new();
        let (mut is_begun, mut bytes) = (false, 0);
        let status = loop {
            let line = self.line(until).map_err(|error| self.lost(doing, &error))?;
            bytes += line.len();
            if bytes > MAX_OUTPUT_BYTES {
                let error = io::Error::other("it prints too much");
                return Err(self.lost(doing, &error));
            }
            if line == BEGIN {
                is_begun = true;
            } else if let Some(status) = line.strip_prefix(END).filter(|_| is_begun) {
                break status.trim().to_owned();
            } else if is_begun {
                lines.push(line);
            }
        };
        // The line before the last mark ends what the command printed without one.
        lines.pop_if(|last| last.is_empty());
        if status == "0" {
            return Ok(lines);
        }
        let said = lines.iter().rfind(|line| !line.trim().is_empty());
        Err(DeviceError::Command {
            device: self.address.to_string(),
            doing,
            reason: said.map_or_else(|| format!("exit status {status}"), Clone::clone),
        })
    }

    /// Sends bytes to a file on the device, and waits until they are there.
    pub(super) fn send(
        mut self,
        doing: &'static str,
        path: &str,
        mut bytes: impl Read,
        mut sent: impl FnMut(u64),
    ) -> Result<(), DeviceError> {
        let until = Instant::now() + COMMAND_PATIENCE;
        let line = format!("echo; echo 'pkgtool' begin; exec cat > {}\n", quoted(path));
        self.write(line.as_bytes())
            .map_err(|error| self.lost(doing, &error))?;
        while self.line(until).map_err(|error| self.lost(doing, &error))? != BEGIN {}
        let mut piece = [0; PIECE_BYTES];
        let mut total = 0;
        loop {
            let count = match bytes.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.lost(doing, &error)),
            };
            let written = self
                .wait_writable()
                .and_then(|()| self.write(&piece[..count]));
            written.map_err(|error| self.lost(doing, &error))?;
            total += count as u64;
            sent(total);
        }
        self.program.close_input();
        // The end of its output is the end of the command.
        let until = Instant::now() + SEND_PATIENCE;
        loop {
            match self.line(until) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(self.lost(doing, &error)),
            }
        }
        // A full disk is reported there.
        match self.printed.last_line() {
            Some(reason) if !self.program.succeeds() => Err(DeviceError::Command {
                device: self.address.to_string(),
                doing,
                reason,
            }),
            _ => Ok(()),
        }
    }

    /// Replaces the shell with the agent that a command starts. Returns its version, too. An error is what it said
    /// instead.
    pub(super) fn become_agent(mut self, command: &str) -> Result<(Process, String), String> {
        let until = Instant::now() + COMMAND_PATIENCE;
        let line = format!("exec {command}\n");
        self.write(line.as_bytes()).map_err(|it| it.to_string())?;
        let mut last = String::new();
        let version = loop {
            match self.line(until) {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => match line.strip_prefix(START_LINE) {
                    Some(version) => break version.to_owned(),
                    None => last = line,
                },
                Err(error) => {
                    self.program.kill();
                    let said = self.printed.last_line();
                    let said = said.or_else(|| Some(last).filter(|last| !last.is_empty()));
                    return Err(said.unwrap_or_else(|| error.to_string()));
                }
            }
        };
        let machine = self.address.to_string();
        let program = self.program.0.take().ok_or("the connection ended")?;
        let process = Process::of_agent(program, self.printed, machine);
        let process = process.map_err(|error| error.to_string())?;
        Ok((process, version))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let input = self.program.input()?;
        input.write_all(bytes)?;
        input.flush()
    }

    fn wait_writable(&mut self) -> io::Result<()> {
        let input = self.program.input()?;
        let patience = PollTimeout::try_from(SEND_PATIENCE).unwrap_or(PollTimeout::MAX);
        let mut streams = [PollFd::new(input.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut streams, patience)? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    /// Reads a line, byte by byte: what follows belongs to the next reader.
    fn line(&mut self, until: Instant) -> io::Result<String> {
        let output = self.program.output()?;
        let mut line = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !wait_readable(output, left)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut byte = [0];
            match output.read(&mut byte) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if byte[0] == b'\n' => break,
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if line.len() > MAX_OUTPUT_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let text = String::from_utf8_lossy(&line);
        Ok(text.trim_end_matches('\r').to_owned())
    }

    /// Describes a connection that gave no shell, or ended.
    fn lost(&mut self, doing: &'static str, error: &io::Error) -> DeviceError {
        self.program.kill();
        let reason = match error.kind() {
            io::ErrorKind::TimedOut => "it does not answer".to_owned(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                "the connection ended".to_owned()
            }
            _ => error.to_string(),
        };
        DeviceError::Unreachable {
            device: self.address.to_string(),
            reason: format!("{}, while {doing}", self.printed.after(reason)),
            help: self.address.help(),
        }
    }
}

/// Returns a text as one word of a shell's command.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> DeviceShell {
        DeviceShell::open(&DeviceAddress::Exec("sh".to_owned())).expect("there is a shell")
    }

    #[test]
    fn commands_answer_one_after_the_other() {
        let mut shell = shell();
        let lines = shell.run("asking", "echo a; printf b").expect("it runs");
        assert_eq!(lines, ["a", "b"]);
        assert!(shell.run("asking", "true").expect("it runs").is_empty());
        let error = shell
            .run("asking", "echo bad; false")
            .expect_err("it fails");
        assert!(error.to_string().ends_with("asking failed: bad"), "{error}");
    }

    #[test]
    fn files_are_sent_as_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("it's");
        let bytes: Vec<u8> = (0..100_000_u32).map(|it| (it % 251) as u8).collect();
        let mut sent = 0;
        let place = path.to_str().expect("UTF-8");
        let done = shell().send("sending", place, &bytes[..], |count| sent = count);
        done.expect("it is sent");
        assert_eq!(std::fs::read(&path).expect("a file"), bytes);
        assert_eq!(sent, 100_000);
        let place = folder.path().join("absent/file");
        let place = place.to_str().expect("UTF-8");
        assert!(shell().send("sending", place, &bytes[..], drop).is_err());
    }

    #[test]
    fn a_command_that_gives_no_shell_is_told() {
        let command = "echo welcome; echo no route >&2; exit 3";
        let mut shell =
            DeviceShell::open(&DeviceAddress::Exec(command.to_owned())).expect("it starts");
        let error = shell.run("asking", "true").expect_err("it ends");
        let text = error.to_string();
        assert!(
            text.contains("the connection ended; its last words: no route"),
            "{text}"
        );
    }
}
