//! Options of devices, and the devices that a command has connected with.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use super::byte_count::byte_count;
use super::exit::Failure;
use super::{data_dir, progress};
use pkgtool_engine::runtime::device::describe::SensorReading;
use pkgtool_engine::runtime::device::{
    DeviceAddress, DeviceError, DeviceOptions, InvalidDevice, RemoteDevice, VersionText,
    sense_this_machine,
};
use pkgtool_engine::runtime::machine::Machine;

/// Folder of the user's data directory with binaries for devices.
const PROGRAMS: &str = "devices";
/// File of hashes there.
const HASHES: &str = "hashes.json";

/// Options of devices.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Device")]
pub(super) struct DeviceArgs {
    /// Device that runs the models: `adb[:SERIAL]`, `ssh:[USER@]HOST[:PORT]`, `exec:COMMAND` for a command that gives a
    /// shell there, or `local`; `bench`, `compare` and `serve` take several
    #[arg(
        long,
        value_name = "DEVICE,…",
        default_value = "local",
        env = "PKGTOOL_ON"
    )]
    on: DeviceList,

    #[command(flatten)]
    pub(super) how: DeviceUse,
}

/// How devices are used.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Device")]
pub(super) struct DeviceUse {
    /// The pkgtool binary for the device [default: one beside this program or in the data directory]
    #[arg(long, value_name = "FILE", env = "PKGTOOL_DEVICE_BINARY")]
    pub(super) device_binary: Option<PathBuf>,

    /// Program that runs binaries there, with its arguments, such as an emulator
    #[arg(long, value_name = "COMMAND", env = "PKGTOOL_DEVICE_RUNNER")]
    pub(super) device_runner: Option<String>,

    /// Directory on the device for the folder `pkgtool` [default: `/data/local/tmp` on Android, else the user's cache]
    #[arg(long, value_name = "DIR", env = "PKGTOOL_DEVICE_DIR", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) device_dir: Option<String>,

    /// Library of an engine for the device, such as its ONNX Runtime; the first is opened, and may need the others
    #[arg(long, value_name = "FILE")]
    pub(super) device_lib: Vec<PathBuf>,

    /// Maximum size of all files on the device; those used longest ago leave first
    #[arg(long, value_name = "SIZE", default_value = "16GiB", value_parser = byte_count)]
    pub(super) device_space: u64,

    #[arg(skip)]
    pub(super) connected: ConnectedDevices,
}

/// The devices that are connected, by their addresses.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectedDevices(Arc<Mutex<HashMap<DeviceAddress, Arc<RemoteDevice>>>>);

/// Several addresses between commas.
#[derive(Debug, Clone)]
pub(super) struct DeviceList(Vec<DeviceAddress>);

impl DeviceList {
    pub(super) fn addresses(&self) -> &[DeviceAddress] {
        &self.0
    }
}

impl FromStr for DeviceList {
    type Err = InvalidDevice;

    fn from_str(text: &str) -> Result<Self, InvalidDevice> {
        DeviceAddress::list(text).map(Self)
    }
}

impl DeviceArgs {
    /// Returns all devices that the user named.
    pub(super) fn each(&self) -> &[DeviceAddress] {
        &self.on.0
    }

    /// Returns the first device that the user named.
    pub(super) fn first(&self) -> &DeviceAddress {
        self.on.0.first().unwrap_or(&DeviceAddress::Local)
    }

    /// Fails if the user named several devices.
    pub(super) fn require_one(&self) -> Result<(), Failure> {
        if self.on.0.len() <= 1 {
            return Ok(());
        }
        let reason = "--on takes one device here: `bench` without a baseline and `compare` of two sides take several";
        Err(Failure::Other(reason.to_owned()))
    }

    /// Returns what the sensors of a device say now.
    pub(super) fn sense(&self, address: &DeviceAddress) -> Result<SensorReading, Failure> {
        match self.how.connect(address)? {
            Some(device) => Ok(device.sense()?),
            None => Ok(sense_this_machine()),
        }
    }

    /// Describes the machine that runs the models.
    pub(super) fn machine(&self, address: &DeviceAddress) -> Result<Machine, Failure> {
        match self.how.connect(address)? {
            Some(device) => Ok(device.describe()?.machine),
            None => Ok(Machine::this()),
        }
    }
}

impl DeviceUse {
    /// Connects with a device, once; returns `None` for this machine.
    pub(super) fn connect(
        &self,
        address: &DeviceAddress,
    ) -> Result<Option<Arc<RemoteDevice>>, Failure> {
        if *address == DeviceAddress::Local {
            return Ok(None);
        }
        let mut connected = self
            .connected
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = connected.get(address) {
            return Ok(Some(Arc::clone(device)));
        }
        let device = RemoteDevice::open(address, self.options(progress::sent))?;
        connected.insert(address.clone(), Arc::clone(&device));
        Ok(Some(device))
    }

    /// Returns the options of a device. `sent` is called with the progress of files.
    pub(super) fn options(&self, sent: fn(&str, u64, u64)) -> DeviceOptions {
        let runner = self.device_runner.as_deref().unwrap_or_default();
        let beside = std::env::current_exe().ok();
        let beside = beside.and_then(|program| Some(program.parent()?.to_owned()));
        let own = data_dir::folder(None, PROGRAMS).ok();
        DeviceOptions {
            version: VersionText(env!("VERSION_AND_COMMIT")),
            binary: self.device_binary.clone(),
            folders: beside.into_iter().chain(own.clone()).collect(),
            runner: runner.split_whitespace().map(str::to_owned).collect(),
            directory: self.device_dir.clone(),
            libraries: self.device_lib.clone(),
            most_bytes: self.device_space,
            hashes: own.map(|folder| folder.join(HASHES)),
            sent,
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::Other(error.to_string())
    }
}
