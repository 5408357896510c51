//! The agent: the tool's own binary on a device, which answers to the machine that started it.
//!
//! Invariant: it serves one caller, and ends with it. A worker that it becomes ends before it does.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::options::VersionText;
use super::protocol::{AgentReply, AgentRequest, DeviceFile, DeviceReport, sense_this_machine};
use super::store::{FileAdmission, PROGRAMS, Store};
use crate::runtime::process::wire::{self, CallerWire};
use crate::runtime::process::{WORKER_ARGUMENT, command_of, frame, run_in_channel};
use crate::surroundings::Surroundings;
use pkgtool_base::source::same_bytes::sha256;

/// Number of lines of the system's log that are searched for a crash, and the maximum length of the line that is
/// reported.
const LOG_LINES: &str = "400";
const MAX_LOG_LINE: usize = 300;
/// Maximum output of a command that is sent, in bytes.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// Serves the caller at the other end of standard input and output.
pub fn serve(version: VersionText) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let (mut channel, caller) = wire::connect_caller(version.0)?;
    let mut store = match Store::open(root_of(&program)) {
        Ok(store) => store,
        Err(error) => {
            caller.end(&format!("{}: {error}", root_of(&program).display()));
            return Err(error);
        }
    };
    loop {
        // The channel ends with the caller.
        let Ok(request) = frame::receive::<AgentRequest>(&mut channel) else {
            return Ok(());
        };
        let reply = match request {
            AgentRequest::Work { variables } => {
                work((&program, variables), &store, channel, caller);
                return Ok(());
            }
            AgentRequest::Clean => {
                let cleaned = store.clean().map(AgentReply::Cleaned);
                send(&mut channel, cleaned)?;
                drop(channel);
                caller.end("its files were removed");
                return Ok(());
            }
            AgentRequest::Put(file) => receive_file(&store, file, &mut channel)?,
            request => answer(request, &mut store, &program),
        };
        send(&mut channel, reply)?;
    }
}

/// Returns the directory of a binary's device: the one above the folder of binaries.
fn root_of(program: &Path) -> PathBuf {
    let folder = program.parent().unwrap_or(Path::new("."));
    match folder.parent() {
        Some(root) if folder.file_name().is_some_and(|name| name == PROGRAMS) => root.to_owned(),
        _ => folder.join("pkgtool-device"),
    }
}

fn send(channel: &mut UnixStream, reply: Result<AgentReply, String>) -> io::Result<()> {
    frame::send(channel, &reply.unwrap_or_else(AgentReply::Failed))
}

fn answer(request: AgentRequest, store: &mut Store, program: &Path) -> Result<AgentReply, String> {
    Ok(match request {
        AgentRequest::Hello { hash } => AgentReply::Hello {
            sha256: hash.then(|| sha256(program).unwrap_or_default()),
            surroundings: Surroundings::of_this_process(),
        },
        AgentRequest::Missing { files, most } => AgentReply::Missing(store.missing(&files, most)?),
        AgentRequest::Folder(files) => {
            AgentReply::Folder(store.folder(&files)?.to_string_lossy().into_owned())
        }
        AgentRequest::Describe => AgentReply::Report(Box::new(DeviceReport::of_this_machine())),
        AgentRequest::Sense => AgentReply::Sensed(sense_this_machine()),
        AgentRequest::Command(arguments) => run_command(program, &arguments)?,
        // The caller handles these itself.
        AgentRequest::Put(_) | AgentRequest::Work { .. } | AgentRequest::Clean => {
            return Err("the request is out of turn".to_owned());
        }
    })
}

/// Receives a file if it is not there. The outer error ends the connection.
fn receive_file(
    store: &Store,
    file: DeviceFile,
    channel: &mut UnixStream,
) -> io::Result<Result<AgentReply, String>> {
    let incoming = match store.admit(file) {
        Ok(FileAdmission::Stored) => return Ok(Ok(AgentReply::Stored)),
        Ok(FileAdmission::Busy) => return Ok(Ok(AgentReply::Busy)),
        Ok(FileAdmission::Open(incoming)) => incoming,
        Err(reason) => return Ok(Err(reason)),
    };
    frame::send(channel, &AgentReply::SendFrom(incoming.offset))?;
    let received = incoming.receive(channel)?;
    Ok(received.map(|()| AgentReply::Stored))
}

/// Becomes a worker process: connects one with the caller, and reports how it ended.
fn work(
    (program, variables): (&Path, Vec<(String, String)>),
    store: &Store,
    channel: UnixStream,
    caller: CallerWire,
) {
    let ran = store.scratch().and_then(|(scratch, _lock)| {
        let mut command = command_of(program);
        command
            .arg(WORKER_ARGUMENT)
            .current_dir(scratch.path())
            .env("TMPDIR", scratch.path())
            .envs(variables);
        run_in_channel(command, channel)
    });
    match ran {
        Ok((id, ended)) => {
            let told = if ended.starts_with("signal") {
                word_of_the_system(id)
            } else {
                None
            };
            caller.end(&match told {
                Some(told) => format!("{ended}; the system's log: {told}"),
                None => ended,
            });
        }
        Err(error) => caller.end(&format!("cannot start a worker process: {error}")),
    }
}

/// Runs a command of the tool.
fn run_command(program: &Path, arguments: &[String]) -> Result<AgentReply, String> {
    let mut command = command_of(program);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| {
        let bytes = &bytes[..bytes.len().min(MAX_OUTPUT_BYTES)];
        String::from_utf8_lossy(bytes).into_owned()
    };
    Ok(AgentReply::Printed {
        output: text(&output.stdout),
        errors: text(&output.stderr),
    })
}

/// Returns the last line of the system's log about a process, if it has one that this user may read.
fn word_of_the_system(id: u32) -> Option<String> {
    let logs: [&[&str]; 2] = [&["logcat", "-d", "-t", LOG_LINES], &["dmesg"]];
    let id = id.to_string();
    logs.iter().find_map(|words| {
        let output = Command::new(words[0]).args(&words[1..]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = |line: &&str| {
            line.split(|c: char| !c.is_ascii_digit())
                .any(|word| word == id)
        };
        let line = text.lines().rfind(names)?.trim();
        Some(line.chars().take(MAX_LOG_LINE).collect())
    })
}
