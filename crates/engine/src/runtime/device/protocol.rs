//! The messages between this program and its agent on a device.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::describe::{
    DeviceFacts, SensorReading, Sensors, battery_from_dumpsys, parse_properties, read_facts,
};
use crate::runtime::machine::Machine;
use crate::surroundings::Surroundings;

/// The directory below which a system describes itself.
const ROOT: &str = "/";

/// A file by its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeviceFile {
    /// Path below the folder that is asked for, with `/` between names.
    pub(super) path: String,
    /// SHA-256 of the bytes, in hexadecimal digits.
    pub(super) sha256: String,
    /// Size in bytes.
    pub(super) size: u64,
}

/// A request to the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AgentRequest {
    /// Return the surroundings. Always the first.
    Hello {
        /// Return the hash of the agent's binary, too.
        hash: bool,
    },
    /// Return which files are missing, and make room for them.
    Missing {
        /// The files.
        files: Vec<DeviceFile>,
        /// Maximum size of all files on the device, in bytes.
        most: u64,
    },
    /// Take a file. After the reply [`AgentReply::SendFrom`] its bytes follow from there on.
    Put(DeviceFile),
    /// Make a folder of files that are there. It stays as long as this agent lives.
    Folder(Vec<DeviceFile>),
    /// Describe the device.
    Describe,
    /// Become a worker process. Nothing but its messages follows.
    Work {
        /// Environment variables of the worker.
        variables: Vec<(String, String)>,
    },
    /// Return what the sensors say now.
    Sense,
    /// Run a command of the tool.
    Command(Vec<String>),
    /// Remove all files of the tool. Always the last.
    Clean,
}

/// Maximum size of a part of a file that is read at once, in bytes.
pub(super) const MAX_PART_BYTES: usize = 1 << 20;

/// A reply of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AgentReply {
    /// The agent is there.
    Hello {
        /// SHA-256 of its binary.
        sha256: Option<String>,
        /// What its processes find on the device.
        surroundings: Surroundings,
    },
    /// Positions of the missing files.
    Missing(Vec<usize>),
    /// The offset of the first byte that is missing.
    SendFrom(u64),
    /// Another caller is sending the file.
    Busy,
    /// The file is there with its hash.
    Stored,
    /// The folder.
    Folder(String),
    /// The device.
    Report(Box<DeviceReport>),
    /// The current values of the sensors.
    Sensed(SensorReading),
    /// The command printed this.
    Printed {
        /// On standard output.
        output: String,
        /// On standard error.
        errors: String,
    },
    /// The files are removed.
    Cleaned(Removed),
    /// The request failed.
    Failed(String),
}

/// The number and size of the files that were removed from a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Number of files.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// A backend that runs a small model on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBackend {
    /// The backend.
    pub backend: String,
    /// The engine that runs it.
    pub engine: String,
    /// The execution provider of the engine.
    pub provider: String,
    /// Whether the engine is not the backend's own.
    pub fallback: bool,
}

/// A device, as its agent describes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceReport {
    /// The properties that affect measured times.
    pub machine: Machine,
    /// Model, chip, and groups of cores.
    #[serde(flatten)]
    pub facts: DeviceFacts,
    /// The current values of its sensors.
    pub sensors: SensorReading,
}

impl DeviceReport {
    /// Describes this machine.
    pub fn of_this_machine() -> Self {
        let android = parse_properties(&printed_by("getprop", &[]));
        Self {
            machine: Machine::this(),
            facts: read_facts(Path::new(ROOT), &android),
            sensors: sense_this_machine(),
        }
    }
}

/// Returns what the sensors of this machine say now.
pub fn sense_this_machine() -> SensorReading {
    static SENSORS: OnceLock<Sensors> = OnceLock::new();
    let sensors = SENSORS.get_or_init(|| Sensors::find(Path::new(ROOT)));
    let read = sensors.read();
    if read.battery_percent.is_some() {
        return read;
    }
    // Android's shell may not read the files of the battery.
    read.or(battery_from_dumpsys(&printed_by("dumpsys", &["battery"])))
}

/// Returns what a program of the system prints; nothing if there is none.
fn printed_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).into_owned()
}
