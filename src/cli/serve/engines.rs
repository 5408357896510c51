//! The engines of a server, with the devices on which they run models.

use std::path::PathBuf;
use std::sync::Arc;

use super::super::device_args::{ConnectedDevices, DeviceArgs, DeviceUse};
use super::super::exit::Failure;
use pkgtool_engine::runtime::device::DeviceAddress;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_serve::gateway::settings::{DeviceSettings, GatewaySettings};
use pkgtool_serve::service::engine::{DeviceParameters, Engines};
use pkgtool_serve::service::meter::Meters;

/// Lets the devices of the command line replace those of the settings.
pub(super) fn name_devices(args: &DeviceArgs, settings: &mut GatewaySettings) {
    let named = args.each().iter().filter(|it| **it != DeviceAddress::Local);
    let named: Vec<DeviceSettings> = named.map(|it| of_arguments(it, &args.how)).collect();
    if !named.is_empty() {
        settings.devices = named;
    }
}

fn of_arguments(address: &DeviceAddress, how: &DeviceUse) -> DeviceSettings {
    DeviceSettings {
        binary: how.device_binary.clone().unwrap_or_default(),
        runner: how.device_runner.clone().unwrap_or_default(),
        directory: how.device_dir.clone().unwrap_or_default(),
        libraries: how.device_lib.clone(),
        space_bytes: how.device_space,
        ..DeviceSettings::new(address.clone())
    }
}

/// Starts the engines, and connects with the devices.
pub(super) fn engines(settings: &GatewaySettings) -> Result<Arc<Engines>, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Other(format!("cannot find the pkgtool binary: {error}")))?;
    let budget = match settings.memory_budget {
        0 => Machine::this().memory_bytes / 2,
        bytes => bytes,
    };
    let library = &settings.ort_library;
    let library: Option<PathBuf> = (!library.as_os_str().is_empty()).then(|| library.clone());
    let bounds = &settings.metrics;
    let meters = Meters::new(bounds.services, bounds.accounts);
    let devices = parameters(settings);
    Ok(Engines::with_devices(
        program,
        budget,
        library,
        (meters, devices),
    ))
}

/// Returns how the devices of the settings are used.
fn parameters(settings: &GatewaySettings) -> Vec<DeviceParameters> {
    let devices = settings.devices.iter().map(|device| DeviceParameters {
        name: device.shown_name(),
        address: device.address.clone(),
        options: use_of(device).options(|_, _, _| {}),
        backends: device.backends.clone(),
        memory_budget: device.memory_budget,
    });
    devices.collect()
}

fn use_of(device: &DeviceSettings) -> DeviceUse {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let path = |path: &PathBuf| Some(path.clone()).filter(|path| !path.as_os_str().is_empty());
    DeviceUse {
        device_binary: path(&device.binary),
        device_runner: text(&device.runner),
        device_dir: text(&device.directory),
        device_lib: device.libraries.clone(),
        device_space: device.space_bytes,
        connected: ConnectedDevices::default(),
    }
}
