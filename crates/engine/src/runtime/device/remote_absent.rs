//! Devices on a system that reaches none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::address::DeviceAddress;
use super::describe::SensorReading;
use super::error::DeviceError;
use super::options::DeviceOptions;
use super::protocol::{DeviceBackend, DeviceReport, Removed};
use crate::LoadOptions;
use crate::runtime::process::Process;
use crate::surroundings::Surroundings;

/// A device that is connected. There is none.
#[derive(Debug)]
pub enum RemoteDevice {}

impl RemoteDevice {
    /// Fails: devices are reached from other systems.
    pub fn open(address: &DeviceAddress, _: DeviceOptions) -> Result<Arc<Self>, DeviceError> {
        Err(DeviceError::Unreachable {
            device: address.to_string(),
            reason: "this build reaches no devices".to_owned(),
            help: "use pkgtool on Linux or macOS",
        })
    }

    /// Returns its address.
    pub fn address(&self) -> &DeviceAddress {
        match *self {}
    }

    pub(in crate::runtime) fn surroundings(&self) -> Surroundings {
        match *self {}
    }

    /// Describes the device.
    pub fn describe(&self) -> Result<DeviceReport, DeviceError> {
        match *self {}
    }

    /// Returns what its sensors say now.
    pub fn sense(&self) -> Result<SensorReading, DeviceError> {
        match *self {}
    }

    /// Runs a command of the tool there.
    pub fn run(&self, _: &[&str]) -> Result<String, DeviceError> {
        match *self {}
    }

    /// Returns the backends that run a small model there.
    pub fn backends(&self) -> Result<Vec<DeviceBackend>, DeviceError> {
        match *self {}
    }

    /// Checks that the device answers.
    pub fn check(&self) -> Result<bool, DeviceError> {
        match *self {}
    }

    /// Ends the connection for good.
    pub fn close(&self) {
        match *self {}
    }

    /// Returns the place of the first library that the user named.
    pub fn library(&self) -> Result<Option<PathBuf>, DeviceError> {
        match *self {}
    }

    /// Removes all files of the tool from the device.
    pub fn clean(&self) -> Result<Removed, DeviceError> {
        match *self {}
    }

    pub(in crate::runtime) fn localized(
        &self,
        _: &Path,
        _: &LoadOptions,
    ) -> Result<(PathBuf, LoadOptions), DeviceError> {
        match *self {}
    }

    pub(in crate::runtime) fn work(
        &self,
        _: Vec<(String, String)>,
    ) -> Result<Process, DeviceError> {
        match *self {}
    }
}
