//! Settings of devices: phones and boards on which models run.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{GatewaySettings, SettingsError};
use pkgtool_base::package::Backend;
use pkgtool_engine::runtime::device::DeviceAddress;

/// Maximum number of devices.
const MAX_DEVICES: usize = 64;

/// Maximum size of the files on a device by default, in bytes.
const DEFAULT_SPACE_BYTES: u64 = 16 << 30;

/// A device on which models run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSettings {
    /// Its address: `adb[:SERIAL]`, `ssh:[USER@]HOST[:PORT]`, or `exec:COMMAND`.
    #[serde(with = "address")]
    pub address: DeviceAddress,
    /// Its name for clients, logs and metrics; empty: the address.
    #[serde(default)]
    pub name: String,
    /// The backends whose models run there; empty: all.
    #[serde(default, with = "backends")]
    pub backends: Vec<Backend>,
    /// The pkgtool binary for the device; empty: search for it.
    #[serde(default)]
    pub binary: PathBuf,
    /// Program that runs binaries there, with its arguments, such as an emulator; empty: none.
    #[serde(default)]
    pub runner: String,
    /// Directory on the device for the folder `pkgtool`; empty: `/data/local/tmp` on Android, otherwise the user's cache.
    #[serde(default)]
    pub directory: String,
    /// Libraries of engines for the device. The first is opened, and may need the others.
    #[serde(default)]
    pub libraries: Vec<PathBuf>,
    /// Maximum size of all files on the device, in bytes.
    #[serde(default = "default_space")]
    pub space_bytes: u64,
    /// Maximum memory of all loaded models there, in bytes; 0: half of the device's memory.
    #[serde(default)]
    pub memory_budget: u64,
}

fn default_space() -> u64 {
    DEFAULT_SPACE_BYTES
}

impl DeviceSettings {
    /// Returns the settings of a device with the defaults.
    pub fn new(address: DeviceAddress) -> Self {
        Self {
            address,
            name: String::new(),
            backends: Vec::new(),
            binary: PathBuf::new(),
            runner: String::new(),
            directory: String::new(),
            libraries: Vec::new(),
            space_bytes: DEFAULT_SPACE_BYTES,
            memory_budget: 0,
        }
    }

    /// Returns its name.
    pub fn shown_name(&self) -> String {
        if self.name.is_empty() {
            return self.address.to_string();
        }
        self.name.clone()
    }
}

impl GatewaySettings {
    pub(super) fn check_devices(&self) -> Result<(), SettingsError> {
        let invalid = |place: String, found: String, expected: &str| SettingsError::Value {
            place,
            found,
            expected: expected.to_owned(),
        };
        if self.devices.len() > MAX_DEVICES {
            let (found, expected) = (self.devices.len().to_string(), "there are at most 64");
            return Err(invalid("devices".to_owned(), found, expected));
        }
        let (mut addresses, mut names) = (BTreeSet::new(), BTreeSet::new());
        for (position, device) in self.devices.iter().enumerate() {
            let place = |field: &str| format!("devices[{position}].{field}");
            let address = device.address.to_string();
            if device.address == DeviceAddress::Local {
                let expected = "this machine is always there: leave it out";
                return Err(invalid(place("address"), address, expected));
            }
            if device.space_bytes == 0 {
                let expected = "it must be at least 1";
                return Err(invalid(place("space_bytes"), "0".to_owned(), expected));
            }
            if !addresses.insert(address.clone()) {
                let expected = "give each device once";
                return Err(invalid(place("address"), address, expected));
            }
            if !names.insert(device.shown_name()) {
                let expected = "give each device a name of its own";
                return Err(invalid(place("name"), device.shown_name(), expected));
            }
        }
        Ok(())
    }
}

/// The text of an address.
mod address {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        address: &DeviceAddress,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(address)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DeviceAddress, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// The names of backends.
mod backends {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        backends: &[Backend],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(backends.iter().map(|backend| backend.name()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Backend>, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let backends = names.iter().map(|name| {
            Backend::from_name(name).ok_or_else(|| {
                let known = Backend::ALL.map(Backend::name).join(", ");
                D::Error::custom(format!("unknown backend `{name}`: expected {known}"))
            })
        });
        backends.collect()
    }
}
