//! Puts the tool's binary on a device: finds one for its processor, sends it once, and starts it as an agent.
//!
//! Invariant: a binary on a device is named by its hash, and complete.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::WORK;
use super::address::DeviceAddress;
use super::error::DeviceError;
use super::files::stored;
use super::hashes::KnownHashes;
use super::options::{DeviceOptions, VersionText};
use super::protocol::DeviceFile;
use super::shell::{DeviceShell, quoted};
use super::store::PROGRAMS;
use crate::runtime::process::{Process, RUNNER_VARIABLE, WORKER_ARGUMENT};

/// Name of the tool's directory on a device.
const OWN_DIRECTORY: &str = "pkgtool";

/// A binary that is on a device.
#[derive(Debug, Clone)]
pub(super) struct Installed {
    /// The command that starts the agent.
    command: String,
    /// Its path on the device.
    place: String,
    /// The binary on this machine.
    program: PathBuf,
    pub(super) sha256: String,
    /// Whether it was sent just now.
    pub(super) is_new: bool,
}

/// The system and processor of a device.
struct DeviceKind {
    system: String,
    processor: String,
}

impl DeviceKind {
    /// Returns the Rust target of the static binary for the device; `None` if no binary is built for it.
    fn target(&self) -> Option<&'static str> {
        match (self.system.as_str(), self.processor.as_str()) {
            ("Linux", "aarch64" | "arm64") => Some("aarch64-unknown-linux-musl"),
            ("Linux", "armv7l" | "armv8l" | "arm") => Some("armv7-unknown-linux-musleabihf"),
            ("Linux", "x86_64" | "amd64") => Some("x86_64-unknown-linux-musl"),
            _ => None,
        }
    }

    /// Returns whether the binary of this machine may run there.
    fn is_like_this_machine(&self) -> bool {
        let system = match std::env::consts::OS {
            "linux" => "Linux",
            "macos" => "Darwin",
            other => other,
        };
        let processor = match self.processor.as_str() {
            "arm64" => "aarch64",
            "amd64" => "x86_64",
            other => other,
        };
        self.system == system && processor == std::env::consts::ARCH
    }
}

impl Installed {
    /// Puts the binary on the device, unless it is there.
    pub(super) fn on(
        address: &DeviceAddress,
        (options, hashes): (&DeviceOptions, &KnownHashes),
    ) -> Result<Self, DeviceError> {
        let mut shell = DeviceShell::open(address)?;
        let given = options.directory.as_deref().or(address.directory());
        let directory = match given {
            Some(directory) => quoted(&own_directory(directory)),
            None => r#""${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/pkgtool""#.to_owned(),
        };
        let facts = shell.run(
            "asking for its processor",
            &format!("uname -s; uname -m; echo {directory}"),
        )?;
        let [system, processor, directory] = &facts[..] else {
            return Err(DeviceError::Command {
                device: address.to_string(),
                doing: "asking for its processor",
                reason: format!("it answered {facts:?}"),
            });
        };
        let kind = DeviceKind {
            system: system.clone(),
            processor: processor.clone(),
        };
        let program = find_program(address, &kind, options)?;
        let binary = stored(String::new(), &program, hashes)?;
        let folder = format!("{directory}/{PROGRAMS}");
        let place = format!("{folder}/{}", binary.sha256);
        let size = shell.run(
            "making its directory",
            &format!(
                "umask 077; mkdir -p {0} && test -w {0} && {{ test -f {1} && wc -c < {1} || echo 0; }}",
                quoted(&folder),
                quoted(&place)
            ),
        )?;
        let is_there = size
            .last()
            .is_some_and(|size| size.trim() == binary.size.to_string());
        if !is_there {
            let new = NewProgram {
                file: &binary,
                local: &program,
                place: &place,
            };
            new.send(address, &mut shell, options)?;
        }
        let program_there = quoted(&place);
        let mut command = format!("{program_there} {WORKER_ARGUMENT} {WORK}");
        if !options.runner.is_empty() {
            let runner: Vec<String> = options.runner.iter().map(|word| quoted(word)).collect();
            let variable = quoted(&options.runner.join(" "));
            command = format!(
                "env {RUNNER_VARIABLE}={variable} {} {command}",
                runner.join(" ")
            );
        }
        Ok(Self {
            command,
            place,
            program,
            sha256: binary.sha256,
            is_new: !is_there,
        })
    }

    /// Starts the binary as an agent, which must be of this version.
    pub(super) fn start(
        &self,
        address: &DeviceAddress,
        version: VersionText,
    ) -> Result<Process, DeviceError> {
        let shell = DeviceShell::open(address)?;
        let started = shell.become_agent(&self.command);
        let (process, found) = started.map_err(|reason| DeviceError::Program {
            device: address.to_string(),
            program: self.program.clone(),
            reason,
        })?;
        let own = version.0;
        if found == own {
            return Ok(process);
        }
        Err(DeviceError::Refused {
            device: address.to_string(),
            reason: format!(
                "the binary for it is pkgtool {found}, and this is pkgtool {own}: give one of this version with --device-binary"
            ),
        })
    }

    /// Removes the binary from the device.
    pub(super) fn remove(&self, address: &DeviceAddress) -> Result<(), DeviceError> {
        let mut shell = DeviceShell::open(address)?;
        let command = format!("rm -f {}", quoted(&self.place));
        shell.run("removing the binary", &command).map(drop)
    }
}

/// Returns the tool's own directory in one that the user named. Nothing else is there, so that it can be removed.
fn own_directory(named: &str) -> String {
    let named = named.trim_end_matches('/');
    match named.rsplit('/').next() {
        Some(OWN_DIRECTORY) => named.to_owned(),
        _ => format!("{named}/{OWN_DIRECTORY}"),
    }
}

/// A binary that a device lacks.
struct NewProgram<'a> {
    file: &'a DeviceFile,
    local: &'a Path,
    place: &'a str,
}

impl NewProgram<'_> {
    fn send(
        &self,
        address: &DeviceAddress,
        shell: &mut DeviceShell,
        options: &DeviceOptions,
    ) -> Result<(), DeviceError> {
        let opened = File::open(self.local).map_err(|error| DeviceError::File {
            path: self.local.to_owned(),
            error,
        })?;
        // Two callers may send it at once.
        let part = format!("{}.{}.part", self.place, std::process::id());
        let name = self.local.file_name().unwrap_or_default().to_string_lossy();
        let sending = DeviceShell::open(address)?;
        let sent = sending.send("sending the binary", &part, opened, |bytes| {
            (options.sent)(&name, bytes, self.file.size);
        });
        let (part, place) = (quoted(&part), quoted(self.place));
        if let Err(error) = sent {
            let _ = shell.run("removing a file", &format!("rm -f {part}"));
            return Err(error);
        }
        let check = format!(
            "test \"$(($(wc -c < {part})))\" = {} && chmod 700 {part} && mv -f {part} {place}",
            self.file.size
        );
        let moved = shell.run("storing the binary", &check);
        moved.map(drop)
    }
}

/// Finds the binary for a device.
fn find_program(
    address: &DeviceAddress,
    kind: &DeviceKind,
    options: &DeviceOptions,
) -> Result<PathBuf, DeviceError> {
    if let Some(named) = &options.binary {
        return Ok(named.clone());
    }
    let name = kind.target().map(|target| format!("pkgtool-{target}"));
    let mut places = options.folders.iter().zip(std::iter::repeat(&name));
    let found = places.find_map(|(folder, name)| {
        let place = folder.join(name.as_deref()?);
        place.is_file().then_some(place)
    });
    if let Some(found) = found {
        return Ok(found);
    }
    if kind.is_like_this_machine()
        && options.runner.is_empty()
        && let Ok(own) = std::env::current_exe()
    {
        return Ok(own);
    }
    let folder = options.folders.last().cloned().unwrap_or_default();
    Err(DeviceError::NoProgram {
        device: address.to_string(),
        kind: format!("{} on {}", kind.system, kind.processor),
        place: folder.join(name.unwrap_or_else(|| "pkgtool-TARGET".to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_directory_gets_one_of_our_own() {
        for (named, own) in [
            ("/home/pi", "/home/pi/pkgtool"),
            ("/data/local/tmp/pkgtool/", "/data/local/tmp/pkgtool"),
            ("pkgtool", "pkgtool"),
            ("/", "/pkgtool"),
        ] {
            assert_eq!(own_directory(named), own);
        }
    }
}
