//! Devices: the phone on a cable, the board on the network, the container or emulator.
//!
//! A device is reached through a program that gives a shell there, such as `ssh`. The tool sends its own binary for
//! that machine once, and starts it as an agent, which stores files by content and runs models in worker processes. The
//! worker's protocol goes through the same wire.
//!
//! Invariant: a connection that breaks is resumed or reported, and leaves no process behind. Files on a device are named by
//! their hashes and complete.

mod address;
#[cfg(unix)]
mod agent;
pub mod describe;
mod error;
#[cfg(unix)]
mod files;
#[cfg(unix)]
mod hashes;
#[cfg(unix)]
mod install;
mod options;
mod protocol;
#[cfg(unix)]
mod remote;
#[cfg(not(unix))]
#[path = "remote_absent.rs"]
mod remote;
#[cfg(unix)]
mod shell;
#[cfg(unix)]
mod store;

pub use address::{DeviceAddress, InvalidDevice};
#[cfg(unix)]
pub use agent::serve;
pub use error::DeviceError;
pub use options::{DeviceOptions, VersionText};
pub use protocol::{DeviceBackend, DeviceReport, Removed, sense_this_machine};
pub use remote::RemoteDevice;

/// The work of an agent, as an argument of a process of this program.
pub const WORK: &str = "device";
